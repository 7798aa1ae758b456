// Gridding: adds samples of spectra to the spectra of slices, on a regular grid.
//
// A sample is spread over 4 x 4 grid points. Here each grid point gathers instead, so that nothing is added in an
// order that depends on time: `fourier_samples` lists for every tile of 4 x 4 points the samples of a batch that
// reach it, with their weights; `fourier_grid` adds them up, a warp a tile, a thread a lane (a pair of rows).
// The lists are the same for all lanes.
//
// Grid (chunk of 32 lanes, u, v, lane), complex. Frequencies along u and v are modulo GRID.
//
// Constants: GRID points along an axis; HALF, the highest frequency of a spectrum; MAX_BATCH projections;
// WEIGHT_STEPS of the table of weights; LISTED_TOGETHER blocks of a list that one thread block looks at.
//
// Source: J. D. O'Sullivan, IEEE Trans. Med. Imaging 4 (1985) 200 (gridding for tomography).

constexpr int FREQUENCIES = 2 * HALF + 1;
constexpr int CHUNK = 32;
constexpr int TAPS = 4;
// Grid points along an edge of a tile; tiles along an axis, the last of which may be narrower.
constexpr int TILE = 4;
constexpr int TILES = (GRID + TILE - 1) / TILE;
constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr bool WHOLE_TILES = GRID % TILE == 0;

// Grid points along u and v between two samples of each projection of a batch, times 2^32.
struct Rays {
    long long u[MAX_BATCH];
    long long v[MAX_BATCH];
    int count;
};

// Samples of one tile: `count` of them from `first` on in the list.
struct TileSamples {
    int first;
    int count;
};

// A block's place in units of 8 points, and the samples of its tiles (u, v).
struct BlockSamples {
    int u, v;
    TileSamples tiles[4];
};

// Weights of a tile's points along u and v for one sample.
struct Weights {
    float4 u;
    float4 v;
};

// How much of the lists is in use: zeros before the first kernel of a batch.
struct Used {
    int samples;
    int blocks;
};

// Weights of a tile's points for a sample `fraction` / 2^32 past a grid point, whose first tap is at point `tap`.
// table: weights of the four points around a sample at the places n / WEIGHT_STEPS, for n from 0 to WEIGHT_STEPS.
// The sample in the middle is its own mirror: it leaves out the tap at the very end of the window, so that it spreads
// evenly and the rows of a pair stay apart.
__device__ inline float4 weights(const float4* __restrict__ table, unsigned fraction, int tap, bool is_middle) {
    constexpr unsigned STEP = (1u << 31) / (WEIGHT_STEPS / 2);
    const unsigned step = fraction / STEP;
    const float rest = float(fraction % STEP) / float(STEP);
    const float4 a = table[step], b = table[step + 1];
    const float taps[TAPS] = {a.x + rest * (b.x - a.x), a.y + rest * (b.y - a.y), a.z + rest * (b.z - a.z),
                              is_middle ? 0.0f : a.w + rest * (b.w - a.w)};
    float points[TILE] = {};
#pragma unroll
    for (int point = 0; point < TILE; ++point) {
#pragma unroll
        for (int t = 0; t < TAPS; ++t) {
            points[point] = point - tap == t ? taps[t] : points[point];
        }
    }
    return make_float4(points[0], points[1], points[2], points[3]);
}

// Where the sample of a frequency lies, times 2^32. One that falls on a grid point has four points on one side or
// the other, by its sign: then k and -k mirror each other, and pairs of rows stay apart.
__device__ inline long long position(int k, long long step) { return k * step - (k < 0 ? 1 : 0); }

// Projections of a batch in shared memory, where each thread can read another one.
struct SharedRays {
    long long u[MAX_BATCH];
    long long v[MAX_BATCH];
};

// Frequencies from <= k < until.
struct Range {
    int from;
    int until;
};

// Narrows the frequencies low ..= high to those whose samples may reach the points `first` ..< `first` + `edge`
// along one axis, where neighbouring samples are `step` points apart.
__device__ inline void narrow(float& low, float& high, int first, int edge, float step) {
    // Wider than what the samples reach, by more than rounding.
    const float before = first - 2.05f, after = first + edge + 1.05f;
    if (step == 0.0f) {
        high = before < 0.0f && after > 0.0f ? high : low - 1.0f;
        return;
    }
    const float a = before / step, b = after / step;
    low = fmaxf(low, fminf(a, b));
    high = fminf(high, fmaxf(a, b));
}

// Frequencies of a projection whose samples may reach a square of `edge` points; a few too many at most.
__device__ inline Range near(const SharedRays& rays, int projection, int count, int first_u, int first_v, int edge) {
    if (projection >= count) {
        return {0, 0};
    }
    float low = -HALF, high = HALF;
    narrow(low, high, first_u, edge, float(rays.u[projection]) * 0x1p-32f);
    narrow(low, high, first_v, edge, float(rays.v[projection]) * 0x1p-32f);
    return {int(ceilf(low)), int(floorf(high)) + 1};
}

// Calls f(first_u, first_v) for each way to write the place of a square modulo GRID that samples may reach.
template <typename F>
__device__ inline void for_images(int first_u, int first_v, int edge, F f) {
    for (int u = first_u; u >= first_u - GRID; u -= GRID) {
        for (int v = first_v; v >= first_v - GRID; v -= GRID) {
            // Samples reach two points past half of the grid.
            if (u <= GRID / 2 + 2 && u + edge > -GRID / 2 - 2 && v <= GRID / 2 + 2 && v + edge > -GRID / 2 - 2) {
                f(u, v);
            }
        }
    }
}

// Whether samples may reach a square. The same for all threads of a warp.
__device__ inline bool is_near(const SharedRays& rays, int count, int first_u, int first_v, int edge) {
    bool found = false;
    for_images(first_u, first_v, edge, [&](int u, int v) {
        for (int start = 0; start < count; start += WARP) {
            const Range range = near(rays, start + threadIdx.x % WARP, count, u, v, edge);
            found = found || __any_sync(ALL_LANES, range.from < range.until);
        }
    });
    return found;
}

// Calls use(projection, frequency, u, v) for the samples that reach the tile at (first_u, first_v), in their
// order: by all threads of a warp, each with a sample or with frequency -HALF - 1 for none.
template <typename Use>
__device__ inline void for_samples(const SharedRays& rays, int count, int first_u, int first_v, Use use) {
    const int lane = threadIdx.x % WARP;
    for (int start = 0; start < count; start += WARP) {
        const Range range = near(rays, start + lane, count, first_u, first_v, TILE);
        unsigned waiting = __ballot_sync(ALL_LANES, range.from < range.until);
        while (waiting != 0) {
            const int next = __ffs(waiting) - 1;
            waiting &= waiting - 1;
            const int projection = start + next;
            const int until = __shfl_sync(ALL_LANES, range.until, next);
            for (int k = __shfl_sync(ALL_LANES, range.from, next); k < until; k += WARP) {
                const long long u = position(k + lane, rays.u[projection]), v = position(k + lane, rays.v[projection]);
                const int to_u = int(u >> 32) - 1 - first_u, to_v = int(v >> 32) - 1 - first_v;
                const bool reaches = k + lane < until && to_u > -TAPS && to_u < TILE && to_v > -TAPS && to_v < TILE;
                use(projection, reaches ? k + lane : -HALF - 1, u, v);
            }
        }
    }
}

// Lists the samples that reach one tile; by all threads of a warp.
__device__ inline TileSamples list_tile(const SharedRays& rays, int count, int first_u, int first_v,
                                        const float4* __restrict__ table, Used* used, int* __restrict__ samples,
                                        Weights* __restrict__ sample_weights) {
    const int lane = threadIdx.x % WARP;
    int found = 0;
    for_images(first_u, first_v, TILE, [&](int u, int v) {
        for_samples(rays, count, u, v, [&](int, int k, long long, long long) {
            found += __popc(__ballot_sync(ALL_LANES, k >= -HALF));
        });
    });
    if (found == 0) {
        return {0, 0};
    }
    const int first = __shfl_sync(ALL_LANES, lane == 0 ? atomicAdd(&used->samples, found) : 0, 0);
    int place = first;
    for_images(first_u, first_v, TILE, [&](int image_u, int image_v) {
        for_samples(rays, count, image_u, image_v, [&](int projection, int k, long long u, long long v) {
            const unsigned reaching = __ballot_sync(ALL_LANES, k >= -HALF);
            if (k >= -HALF) {
                const int at = place + __popc(reaching & ((1u << lane) - 1));
                samples[at] = projection * FREQUENCIES + k + HALF;
                sample_weights[at] = {weights(table, unsigned(u), int(u >> 32) - 1 - image_u, k == 0),
                                      weights(table, unsigned(v), int(v >> 32) - 1 - image_v, k == 0)};
            }
            place += __popc(reaching);
        });
    });
    return {first, found};
}

// Lists the samples of a batch by tiles. 2 x 2 tiles, whose samples are partly the same, make a block of the lists.
// Launch: (TILES / 2 / LISTED_TOGETHER, TILES / 2) rounded up, 4 warps.
extern "C" __global__ void __launch_bounds__(128)
    fourier_samples(__grid_constant__ const Rays rays, const float4* __restrict__ table, Used* used,
                    BlockSamples* __restrict__ blocks, int* __restrict__ samples, Weights* __restrict__ sample_weights) {
    __shared__ SharedRays shared_rays;
    __shared__ TileSamples tiles[4];
    for (int projection = threadIdx.x; projection < rays.count; projection += blockDim.x) {
        shared_rays.u[projection] = rays.u[projection];
        shared_rays.v[projection] = rays.v[projection];
    }
    __syncthreads();
    const int warp = threadIdx.x / WARP, u = blockIdx.y;
    const int until = min(int(blockIdx.x + 1) * LISTED_TOGETHER, (TILES + 1) / 2);
    for (int v = blockIdx.x * LISTED_TOGETHER; v < until; ++v) {
        if (!is_near(shared_rays, rays.count, 2 * u * TILE, 2 * v * TILE, 2 * TILE)) {
            continue;
        }
        const int tile_u = 2 * u + warp / 2, tile_v = 2 * v + warp % 2;
        TileSamples tile = {0, 0};
        if (tile_u < TILES && tile_v < TILES) {
            tile = list_tile(shared_rays, rays.count, tile_u * TILE, tile_v * TILE, table, used, samples,
                             sample_weights);
        }
        if (threadIdx.x % WARP == 0) {
            tiles[warp] = tile;
        }
        __syncthreads();
        if (threadIdx.x == 0 && tiles[0].count + tiles[1].count + tiles[2].count + tiles[3].count > 0) {
            blocks[atomicAdd(&used->blocks, 1)] = {u, v, {tiles[0], tiles[1], tiles[2], tiles[3]}};
        }
        __syncthreads();
    }
}

// Entries of a tile's list on their way to the threads of a warp: two segments, taken in turn.
constexpr int SEGMENT = WARP;
struct Staged {
    int samples[2 * SEGMENT];
    float4 weights_u[2 * SEGMENT];
    float4 weights_v[2 * SEGMENT];
};

// Samples whose values are loaded together.
constexpr int GROUP = 4;

// Adds the listed samples of spectra (chunk, projection, frequency, lane) to the grid.
// Launch: (any number of blocks, chunks), 4 warps.
extern "C" __global__ void __launch_bounds__(128, 5)
    fourier_grid(int projections, int lanes, const Used* __restrict__ used, const BlockSamples* __restrict__ blocks,
                 const int* __restrict__ samples, const Weights* __restrict__ sample_weights,
                 const float2* __restrict__ spectra, float2* __restrict__ grid) {
    __shared__ Staged all_staged[4];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, chunk = blockIdx.y;
    Staged& staged = all_staged[warp];
    const bool exists = chunk * CHUNK + lane < lanes;
    const float2* __restrict__ values = spectra + size_t(chunk) * projections * FREQUENCIES * CHUNK + lane;
    const int count = used->blocks;
    for (int at = blockIdx.x; at < count; at += gridDim.x) {
        const TileSamples tile = blocks[at].tiles[warp];
        const int first_u = (2 * blocks[at].u + warp / 2) * TILE, first_v = (2 * blocks[at].v + warp % 2) * TILE;
        if (tile.count == 0) {
            continue;
        }
        // An entry of the list, one a thread; past its end the first sample with no weight.
        struct Entry {
            int sample;
            Weights weights;
        };
        auto entry_of = [&](int segment) {
            const int at = segment * SEGMENT + lane;
            Entry entry = {0, {make_float4(0.0f, 0.0f, 0.0f, 0.0f), make_float4(0.0f, 0.0f, 0.0f, 0.0f)}};
            if (at < tile.count) {
                entry = {samples[tile.first + at], sample_weights[tile.first + at]};
            }
            return entry;
        };
        auto stage = [&](int segment, const Entry& entry) {
            const int place = segment % 2 * SEGMENT + lane;
            staged.samples[place] = entry.sample;
            staged.weights_u[place] = entry.weights.u;
            staged.weights_v[place] = entry.weights.v;
        };
        auto load = [&](float2 (&group)[GROUP], int first) {
#pragma unroll
            for (int i = 0; i < GROUP; ++i) {
                const size_t sample = staged.samples[(first + i) % (2 * SEGMENT)];
                group[i] = exists ? values[sample * CHUNK] : make_float2(0.0f, 0.0f);
            }
        };

        __syncwarp();
        stage(0, entry_of(0));
        stage(1, entry_of(1));
        Entry ahead = entry_of(2);
        __syncwarp();
        float2 now[GROUP], next[GROUP];
        load(now, 0);
        load(next, GROUP);

        float2* const points = grid + ((size_t(chunk) * GRID + first_u) * GRID + first_v) * CHUNK + lane;
        float2 sums[TILE][TILE];
#pragma unroll
        for (int u = 0; u < TILE; ++u) {
#pragma unroll
            for (int v = 0; v < TILE; ++v) {
                const bool stored = exists && (WHOLE_TILES || (first_u + u < GRID && first_v + v < GRID));
                sums[u][v] = stored ? points[(size_t(u) * GRID + v) * CHUNK] : make_float2(0.0f, 0.0f);
            }
        }
        auto add = [&](const float2 (&group)[GROUP], int first) {
#pragma unroll
            for (int i = 0; i < GROUP; ++i) {
                const int place = (first + i) % (2 * SEGMENT);
                const float4 by_u = staged.weights_u[place], by_v = staged.weights_v[place];
                const float along_u[TILE] = {by_u.x, by_u.y, by_u.z, by_u.w};
                const float along_v[TILE] = {by_v.x, by_v.y, by_v.z, by_v.w};
#pragma unroll
                for (int u = 0; u < TILE; ++u) {
                    const float re = along_u[u] * group[i].x, im = along_u[u] * group[i].y;
#pragma unroll
                    for (int v = 0; v < TILE; ++v) {
                        sums[u][v].x += re * along_v[v];
                        sums[u][v].y += im * along_v[v];
                    }
                }
            }
        };
        for (int segment = 0; segment * SEGMENT < tile.count; ++segment) {
            if (segment > 0) {
                __syncwarp();
                stage(segment + 1, ahead);
                ahead = entry_of(segment + 2);
                __syncwarp();
            }
            const int until = min(tile.count, (segment + 1) * SEGMENT);
            for (int first = segment * SEGMENT; first < until; first += 2 * GROUP) {
                add(now, first);
                load(now, first + 2 * GROUP);
                if (first + GROUP < until) {
                    add(next, first + GROUP);
                    load(next, first + 3 * GROUP);
                }
            }
        }
#pragma unroll
        for (int u = 0; u < TILE; ++u) {
#pragma unroll
            for (int v = 0; v < TILE; ++v) {
                if (exists && (WHOLE_TILES || (first_u + u < GRID && first_v + v < GRID))) {
                    points[(size_t(u) * GRID + v) * CHUNK] = sums[u][v];
                }
            }
        }
    }
}
