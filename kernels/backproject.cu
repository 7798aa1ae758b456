// Direct backprojection with linear interpolation, on tensor cores.
//
// For 4 x 4 pixels of a slice and one line, interpolation is a product of matrices: the weights of 8 neighbouring
// columns for the 16 pixels, times the values of these columns for all rows of a chunk. A pixel at `s` weighs column k
// with `max(0, 1 - |s - k|)`; 4 x 4 pixels reach over at most 3 |cos| + 3 |sin| + 2 < 7 columns. The weights are made
// once for all rows of a chunk, and the products are summed in f32. One instruction (m16n8k16) takes two lines.
//
// For PARTS 1, positions are rounded to 1/2048 column, so that both weights of a pixel are exact in half precision. For
// PARTS 2, what rounding takes from the weights is multiplied with the first line in one more product.
//
// Compiled for: ROWS (rows of a chunk), PARTS (lines of a projection: 1 or 2), STAGE_LINES (lines that are copied
// together, even).
//
// Source: A. C. Kak, M. Slaney, "Principles of Computerized Tomographic Imaging" (1988), section 3.3.
#include "lines.cuh"

constexpr int WARP = 32;
constexpr int WARPS = 16;
constexpr int THREADS = WARPS * WARP;
// Pixels of a block.
constexpr int TILE_X = 32, TILE_Y = 16;
// Edge of the pixels of one product: a subtile.
constexpr int EDGE = 4;
constexpr int SUBTILES = TILE_X * TILE_Y / (EDGE * EDGE);
constexpr int WARP_SUBTILES = SUBTILES / WARPS;
static_assert(TILE_X / EDGE % WARP_SUBTILES == 0, "the subtiles of a warp lie side by side");
// Columns that the pixels of a block can need: its diagonal, the 8 of a product, and one at either side.
constexpr int PLACES = 46;
// Groups of 8 rows, which one instruction takes.
constexpr int GROUPS = ROWS / GROUP_ROWS;
static_assert(GROUPS % 2 == 0, "two groups of rows are loaded together");
static_assert(THREADS / GROUPS >= PLACES, "a thread copies one piece of a line");
// Halves from one column to the next in shared memory: 16 bytes more than needed, so that 8 columns are in different
// banks.
constexpr int STRIDE = ROWS + GROUP_ROWS;
// Stages of copies.
constexpr int STAGES = 3;
constexpr int LINE_HALVES = PLACES * STRIDE;
// Most lines of a launch.
constexpr int MAX_LINES = 256;
// 1.5 * 2^12: a float plus this is a multiple of 1/2048.
constexpr float FRACTIONS = 6144.0f;

// A line as a block sees it; positions count from its first column.
struct LocalRay {
    float cos, sin;
    // Position of the first pixel.
    float origin;
    // Position of the lowest pixel of a subtile from its first, minus a half.
    float lowest;
};

struct Shared {
    LocalRay rays[MAX_LINES];
    int first_columns[MAX_LINES];
    f16 lines[STAGES][STAGE_LINES][LINE_HALVES];
};

// Where a block adds its sums: (chunk, y, x of the tile, group of rows, subtile, lane), four of a lane.
__device__ inline size_t sums_index(int chunk, int group, int subtile) {
    size_t tile = (size_t(chunk) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    return ((tile * GROUPS + group) * SUBTILES + subtile) * WARP + threadIdx.x % WARP;
}

// Two values as halves, the first in the lower; negative ones become 0.
__device__ inline unsigned positive_halves(float first, float second) {
    unsigned packed;
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
    return packed;
}

// What rounding took from a positive value whose half stands in the lower bits; 0 for a negative one.
__device__ inline float lost(float value, unsigned half_bits) {
    return fmaxf(value, 0.0f) - to_float(f16{static_cast<unsigned short>(half_bits)});
}

// Weights of two columns, and what rounding to halves took from them.
struct Weights {
    unsigned rounded, rest;
};

__device__ inline Weights weights(float position) {
    if (PARTS == 1) {
        position = (position + FRACTIONS) - FRACTIONS;
    }
    const float first = 1.0f - fabsf(position), second = 1.0f - fabsf(position - 1.0f);
    const unsigned rounded = positive_halves(first, second);
    unsigned rest = 0;
    if (PARTS == 2) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(rest) : "f"(lost(second, rounded >> 16)), "f"(lost(first, rounded)));
    }
    return {rounded, rest};
}

__device__ inline void load_columns(unsigned (&columns)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(columns[0]), "=r"(columns[1]), "=r"(columns[2]), "=r"(columns[3])
                 : "r"(address));
}

__device__ inline void multiply_add(float (&sums)[4], const unsigned (&weights)[4], unsigned first,
                                    unsigned second) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "r"(first), "r"(second));
}

// The same for the 8 columns of one line.
__device__ inline void multiply_add(float (&sums)[4], const unsigned (&weights)[2], unsigned columns) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(weights[0]), "r"(weights[1]), "r"(columns));
}

// Makes the rays of all lines local to the block.
__device__ inline void localise(Shared& shared, const Ray* rays, int lines, double axis, int size) {
    const double x = blockIdx.x * TILE_X - 0.5 * (size - 1), y = blockIdx.y * TILE_Y - 0.5 * (size - 1);
    // One more, so that the last line of an odd number has a partner: of zeros, but zero times no number is none.
    for (int line = threadIdx.x; line < min(lines + 1, MAX_LINES); line += THREADS) {
        Ray ray = line < lines ? rays[line] : Ray{};
        double origin = axis + x * ray.cos + y * ray.sin;
        double lowest = origin + fmin(0.0, (TILE_X - 1) * ray.cos) + fmin(0.0, (TILE_Y - 1) * ray.sin);
        int first_column = static_cast<int>(floor(lowest)) - 1;
        float cos = static_cast<float>(ray.cos), sin = static_cast<float>(ray.sin);
        float of_subtile = fminf(0.0f, (EDGE - 1) * cos) + fminf(0.0f, (EDGE - 1) * sin);
        shared.rays[line] = {cos, sin, static_cast<float>(origin - first_column), of_subtile - 0.5f};
        shared.first_columns[line] = first_column;
    }
}

// Starts copies of the columns of a few lines that the block needs; zeros off the detector.
__device__ inline void copy_stage(Shared& shared, const f16* lines, int line_count, int columns, int stage) {
    const int group = threadIdx.x % GROUPS, place = threadIdx.x / GROUPS;
    if (place >= PLACES) {
        return;
    }
    const unsigned to = shared_address(shared.lines[stage % STAGES]) + 2 * (place * STRIDE + group * GROUP_ROWS);
#pragma unroll
    for (int within = 0; within < STAGE_LINES; ++within) {
        int line = stage * STAGE_LINES + within;
        int column = line < line_count ? shared.first_columns[line] + place : -1;
        bool inside = column >= 0 && column < columns;
        const f16* from = lines + chunk_start(line, gridDim.z, blockIdx.z, columns) + group * GROUP_ROWS;
        copy_or_zero(to + 2 * within * LINE_HALVES, inside ? from + column * ROWS : lines, inside);
    }
}

// lines       (line, chunk, column, row of the chunk), halves
// rays        one a line
// line_count  at most MAX_LINES
// axis        column of the rotation axis
// size        edge of a slice, and columns of a line
// peak, gain  as they were for the lines
// sums        as `sums_index` says, f32: what is added to
//
// Blocks of THREADS threads for TILE_X x TILE_Y pixels and a chunk of rows: grid (x, y, chunk).
// Shared memory: Shared.
extern "C" __global__ void __launch_bounds__(THREADS)
    backproject(const f16* __restrict__ lines, const Ray* __restrict__ rays, int line_count, double axis, int size,
                const unsigned* __restrict__ peak, float gain, float4* __restrict__ sums) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int stages = (line_count + STAGE_LINES - 1) / STAGE_LINES;

    localise(shared, rays, line_count, axis, size);
    __syncthreads();
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        copy_stage(shared, lines, line_count, size, stage);
        commit_copies();
    }

    // The first subtile of the warp; the others follow it along x.
    const float warp_x = warp * WARP_SUBTILES % (TILE_X / EDGE) * EDGE;
    const float warp_y = warp * WARP_SUBTILES / (TILE_X / EDGE) * EDGE;
    // In the weights, a lane has pixels `lane / 4` and 8 more of a subtile, and two columns.
    const float pixel_x = lane / 4 % EDGE, pixel_y = lane / 4 / EDGE, first_weight = lane % 4 * 2;
    // Loading columns, lanes 0..15 point to the first line, the others to the second; to 8 columns of two groups.
    const bool loads_second = lane >= 16;
    const unsigned lane_offset =
        2 * (lane / 16 * LINE_HALVES + lane % 8 * STRIDE + lane / 8 % 2 * GROUP_ROWS) -
        2 * STRIDE * __float_as_uint(INTEGERS);

    float added[WARP_SUBTILES][GROUPS][4] = {};
    for (int stage = 0; stage < stages; ++stage) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        copy_stage(shared, lines, line_count, size, stage + STAGES - 1);
        commit_copies();
#pragma unroll 1
        for (int pair = 0; pair < STAGE_LINES; pair += 2) {
            if (stage * STAGE_LINES + pair >= line_count) {
                break;
            }
            LocalRay ray[2];
            float origin[2], of_lane[2];
#pragma unroll
            for (int line = 0; line < 2; ++line) {
                ray[line] = shared.rays[stage * STAGE_LINES + pair + (PARTS == 1 ? line : 0)];
                origin[line] = ray[line].origin + ray[line].cos * warp_x + ray[line].sin * warp_y;
                of_lane[line] = ray[line].cos * pixel_x + ray[line].sin * pixel_y - first_weight;
            }
            const unsigned address = shared_address(shared.lines[stage % STAGES][pair]) + lane_offset;
#pragma unroll
            for (int subtile = 0; subtile < WARP_SUBTILES; ++subtile) {
                unsigned weight[4], rest[2], window[2];
#pragma unroll
                for (int line = 0; line < 2; ++line) {
                    if (PARTS == 2 && line == 1) {
                        window[1] = window[0];
                        weight[2] = weight[0];
                        weight[3] = weight[1];
                        break;
                    }
                    float start = origin[line] + ray[line].cos * float(subtile * EDGE);
                    // Rounding what is half a column too low gives the column below.
                    float column = start + ray[line].lowest + INTEGERS;
                    window[line] = __float_as_uint(column);
                    float position = start - (column - INTEGERS) + of_lane[line];
                    const Weights upper = weights(position), lower = weights(position + 2.0f * ray[line].sin);
                    weight[2 * line] = upper.rounded;
                    weight[2 * line + 1] = lower.rounded;
                    rest[0] = upper.rest;
                    rest[1] = lower.rest;
                }
                unsigned from = address + 2 * STRIDE * (loads_second ? window[1] : window[0]);
#pragma unroll
                for (int group = 0; group < GROUPS; group += 2) {
                    unsigned values[4];
                    load_columns(values, from + 2 * group * GROUP_ROWS);
                    multiply_add(added[subtile][group], weight, values[0], values[2]);
                    multiply_add(added[subtile][group + 1], weight, values[1], values[3]);
                    if (PARTS == 2) {
                        multiply_add(added[subtile][group], rest, values[0]);
                        multiply_add(added[subtile][group + 1], rest, values[1]);
                    }
                }
            }
        }
    }
    wait_for_copies<0>();

    const float scale = 1.0f / half_scale(__uint_as_float(*peak) * gain);
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
#pragma unroll
        for (int subtile = 0; subtile < WARP_SUBTILES; ++subtile) {
            float4& sum = sums[sums_index(blockIdx.z, group, warp * WARP_SUBTILES + subtile)];
            const float(&add)[4] = added[subtile][group];
            float4 old = sum;
            sum = make_float4(old.x + scale * add[0], old.y + scale * add[1], old.z + scale * add[2],
                              old.w + scale * add[3]);
        }
    }
}

// The slices of the rows of a chunk, each (y, x); null where one is not wanted.
struct Slices {
    float* of_row[64];
};
static_assert(ROWS <= 64, "a chunk has no more rows");

// Columns and slices in shared memory, so that all lanes of a warp are in different banks.
constexpr int OUT_ROW = TILE_X + 4;
constexpr int OUT_SLICE = TILE_Y * OUT_ROW + 4;

// Writes `scale` times the sums of a chunk as slices.
//
// Blocks of THREADS threads for TILE_X x TILE_Y pixels and a group of rows: grid (x, y, groups from first_group on).
extern "C" __global__ void __launch_bounds__(THREADS)
    write_slices(const float4* __restrict__ sums, int chunk, int first_group, int size, float scale,
                 __grid_constant__ const Slices slices) {
    __shared__ float out[GROUP_ROWS][OUT_SLICE];
    const int group = first_group + blockIdx.z;
    for (int at = threadIdx.x; at < SUBTILES * WARP; at += THREADS) {
        int lane = at % WARP, subtile = at / WARP;
        int x = subtile % (TILE_X / EDGE) * EDGE + lane / 4 % EDGE, y = subtile / (TILE_X / EDGE) * EDGE + lane / 16;
        float4 values = sums[sums_index(chunk, group, subtile)];
        float* to = &out[lane % 4 * 2][y * OUT_ROW + x];
        to[0] = values.x;
        to[OUT_SLICE] = values.y;
        to[2 * OUT_ROW] = values.z;
        to[2 * OUT_ROW + OUT_SLICE] = values.w;
    }
    __syncthreads();
    for (int at = threadIdx.x; at < GROUP_ROWS * TILE_Y * TILE_X; at += THREADS) {
        int within_x = at % TILE_X, within_y = at / TILE_X % TILE_Y, slice = at / (TILE_X * TILE_Y);
        int x = blockIdx.x * TILE_X + within_x, y = blockIdx.y * TILE_Y + within_y;
        float* to = slices.of_row[group * GROUP_ROWS + slice];
        if (to != nullptr && x < size && y < size) {
            to[size_t(y) * size + x] = scale * out[slice][within_y * OUT_ROW + within_x];
        }
    }
}
