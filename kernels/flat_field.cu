// Flat-field correction: detector counts to transmissions or line integrals.
//
// Compiled for: ELEMENT (a type of element.cuh), FLATS (1 or 2), MINUS_LOG (0 or 1).
//
// The order of the operations is that of the CPU, without contraction, so that the transmissions are the same to the
// last bit and bad and clipped pixels are counted alike.
#include "element.cuh"

// `MIN_TRANSMISSION` of crates/ops.
constexpr float MIN_TRANSMISSION = 1e-6f;
// Pixels that a thread has in flight.
constexpr int PIXELS = 2;
constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

enum Cause { NO_BEAM, SATURATED, NON_FINITE, CLIPPED, CAUSES };

// One over the open beam of a pixel; not finite where there is none.
__device__ inline float inverse_beam(const float* beam, const float* later_beam, float later, size_t pixel) {
    if (FLATS == 1) {
        return beam[pixel];
    }
    float mixed = __fadd_rn(__fmul_rn(1.0f - later, beam[pixel]), __fmul_rn(later, later_beam[pixel]));
    return __frcp_rn(mixed);
}

// The column of the nearest good pixel before `column`, or -1. A set bit of `good` is a good pixel.
__device__ inline int good_before(const unsigned* good, int column) {
    int word = column / WARP;
    unsigned bits = good[word] & ((1u << (column % WARP)) - 1u);
    while (bits == 0 && word > 0) {
        bits = good[--word];
    }
    return bits == 0 ? -1 : word * WARP + 31 - __clz(bits);
}

// The column of the nearest good pixel after `column`, or -1.
__device__ inline int good_after(const unsigned* good, int column, int columns) {
    int word = column / WARP, last = (columns - 1) / WARP;
    unsigned bits = good[word] & (0xfffffffeu << (column % WARP));
    while (bits == 0 && word < last) {
        bits = good[++word];
    }
    return bits == 0 ? -1 : word * WARP + __ffs(bits) - 1;
}

// The value of a bad pixel: that of its nearest good neighbour in the row, the mean of two at the same distance.
__device__ inline float repaired(const float* row, const unsigned* good, int column, int columns) {
    int before = good_before(good, column), after = good_after(good, column, columns);
    if (before < 0 && after < 0) {
        return MINUS_LOG ? 0.0f : 1.0f;
    }
    if (before >= 0 && after >= 0 && column - before == after - column) {
        return 0.5f * (row[before] + row[after]);
    }
    bool take_before = after < 0 || (before >= 0 && column - before < after - column);
    return row[take_before ? before : after];
}

// Frames of one launch.
constexpr int MOST_FRAMES = 16;

// Frames, (row, column) of ELEMENT each, and where they go, (row, column) of f32.
struct Frames {
    const ELEMENT* from[MOST_FRAMES];
    float* to[MOST_FRAMES];
};

// dark        (row, column), counts
// beam        (row, column): one over the open beam for one flat, the open beam of the first of two
// later_beam  (row, column): the open beam of the second flat, not read for one
// later       part of the second flat, 0..1
// saturated   counts from which on a pixel is saturated
// bad         4 sums, in the order of Cause
//
// Grid (row, frame), blocks of a multiple of 32 threads; shared memory: a bit a column, in words of 32.
extern "C" __global__ void flat_field(__grid_constant__ const Frames frames, const float* __restrict__ dark,
                                      const float* __restrict__ beam, const float* __restrict__ later_beam,
                                      float later, float saturated, int columns, unsigned long long* bad) {
    const ELEMENT* __restrict__ const frame = frames.from[blockIdx.y];
    float* const out = frames.to[blockIdx.y];
    extern __shared__ unsigned good[];
    __shared__ unsigned counts[CAUSES];
    const size_t start = size_t(blockIdx.x) * columns;
    const int threads = blockDim.x;
    unsigned causes[CAUSES] = {0, 0, 0, 0};

    for (int first = 0; first < columns; first += threads * PIXELS) {
        float count[PIXELS], offset[PIXELS], inverse[PIXELS];
#pragma unroll
        for (int at = 0; at < PIXELS; ++at) {
            int column = first + at * threads + threadIdx.x;
            if (column < columns) {
                count[at] = to_float(frame[start + column]);
                offset[at] = dark[start + column];
                inverse[at] = inverse_beam(beam, later_beam, later, start + column);
            }
        }
#pragma unroll
        for (int at = 0; at < PIXELS; ++at) {
            int column = first + at * threads + threadIdx.x;
            bool is_good = false;
            if (column < columns) {
                float transmission = (count[at] - offset[at]) * inverse[at];
                if (!is_finite(count[at])) {
                    ++causes[NON_FINITE];
                } else if (count[at] >= saturated) {
                    ++causes[SATURATED];
                } else if (!is_finite(transmission)) {
                    ++causes[NO_BEAM];
                } else {
                    is_good = true;
                    causes[CLIPPED] += MINUS_LOG && transmission <= MIN_TRANSMISSION;
                    out[start + column] =
                        MINUS_LOG ? -__logf(fmaxf(transmission, MIN_TRANSMISSION)) : transmission;
                }
            }
            unsigned bits = __ballot_sync(ALL_LANES, is_good);
            if (column < columns && threadIdx.x % WARP == 0) {
                good[column / WARP] = bits;
            }
        }
    }

    const unsigned any = causes[NO_BEAM] | causes[SATURATED] | causes[NON_FINITE] | causes[CLIPPED];
    if (threadIdx.x < CAUSES) {
        counts[threadIdx.x] = 0;
    }
    if (!__syncthreads_or(any)) {
        return;
    }
    for (int cause = 0; cause < CAUSES; ++cause) {
        if (causes[cause] != 0) {
            atomicAdd(&counts[cause], causes[cause]);
        }
    }
    for (int column = threadIdx.x; column < columns; column += threads) {
        if (!(good[column / WARP] >> (column % WARP) & 1u)) {
            out[start + column] = repaired(out + start, good, column, columns);
        }
    }
    __syncthreads();
    if (threadIdx.x < CAUSES && counts[threadIdx.x] != 0) {
        atomicAdd(&bad[threadIdx.x], static_cast<unsigned long long>(counts[threadIdx.x]));
    }
}
