// Filtered projections in half precision: what direct backprojection takes.
//
// Two neighbouring rows are the real and the imaginary part of one sequence: the filter is real in space, so they stay
// apart. A block transforms a few sequences, multiplies them, transforms them back and writes them as lines.
//
// Compiled for: ROWS (rows of a chunk), PARTS (lines of a projection: 1 or 2), COLUMNS of a row, PADDED length of a
// transform (at least 2 * COLUMNS), FACTORS whose product it is, PAIRS of rows and THREADS of a block, EDGE_PADDING (0 or
// 1), TILTED (1 if rows are moved before they become lines).
//
// Source: A. C. Kak, M. Slaney, "Principles of Computerized Tomographic Imaging" (1988), section 3.3.
#include "fft.cuh"
#include "lines.cuh"

constexpr int WARP = 32;
using Forward = Fft<PAIRS, THREADS, -1, 1, FACTORS>;
using Backward = Fft<PAIRS, THREADS, 1, 1, FACTORS>;
static_assert(Forward::LENGTH == PADDED, "the factors make the length");

// Raises `peak` (bits of a float, at first 0) to the largest finite magnitude of `values`. Any blocks of whole warps.
extern "C" __global__ void largest_value(const float* __restrict__ values, size_t count, unsigned* peak) {
    // Loads of a thread that are on their way together.
    constexpr int LOADS = 8;
    const size_t step = size_t(gridDim.x) * blockDim.x;
    unsigned largest = 0;
    for (size_t first = size_t(blockIdx.x) * blockDim.x + threadIdx.x; first < count; first += LOADS * step) {
#pragma unroll
        for (int load = 0; load < LOADS; ++load) {
            size_t at = first + load * step;
            float magnitude = at < count ? fabsf(values[at]) : 0.0f;
            // Floats that are not negative are ordered like their bits.
            largest = max(largest, is_finite(magnitude) ? __float_as_uint(magnitude) : 0u);
        }
    }
    // Few blocks ask for `peak` at once, so that they do not wait for each other.
    __shared__ unsigned of_block;
    if (threadIdx.x == 0) {
        of_block = 0;
    }
    __syncthreads();
    largest = __reduce_max_sync(0xffffffffu, largest);
    if (threadIdx.x % WARP == 0) {
        atomicMax(&of_block, largest);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicMax(peak, of_block);
    }
}

// A value of a row and of what stands beside it; 0 if there is no row.
__device__ inline float padded(const float* row, int column) {
    if (row == nullptr || (!EDGE_PADDING && column >= COLUMNS)) {
        return 0.0f;
    }
    // Round the corner, the padding before the first column follows that after the last.
    int inside = column < COLUMNS ? column : column < COLUMNS + (PADDED - COLUMNS) / 2 ? COLUMNS - 1 : 0;
    return is_finite(row[inside]) ? row[inside] : 0.0f;
}

// exp(2 pi i k by / PADDED) * a, for k from -PADDED / 2 to PADDED / 2; of both for the highest frequency the mean.
__device__ inline float2 moved(float2 a, int k, double by) {
    const double turns = k * by / PADDED;
    float sin, cos;
    sincospif(static_cast<float>(2.0 * (turns - rint(turns))), &sin, &cos);
    return times(a, make_float2(cos, 2 * k == PADDED ? 0.0f : sin));
}

// Moves two rows in one spectrum, each by its own distance. With A + iB the spectrum of two real rows,
// conj((A + iB)(-k)) = (A - iB)(k), which tells them apart.
__device__ inline float2 moved_apart(float2 up, float2 down, int k, const double* by) {
    const float2 other = conjugate(down);
    const float2 first = moved(0.5f * (up + other), k, by[0]);
    const float2 second = moved(0.5f * quarter_turn<-1>(up - other), k, by[1]);
    return first + quarter_turn<1>(second);
}

// pixels    (row, column) of one projection
// rows      that are filtered; those after them in the last chunk become zeros
// weight    that the projection is multiplied with
// response  of the filter at the frequencies 0 ..= PADDED / 2, over PADDED
// roots     exp(-2 pi i n / PADDED)
// by        columns that each row is moved by, for all rows of all chunks; not read unless TILTED
// spectra   room for PADDED values of each sequence of the launch
// peak      largest value of the pixels and of those of all projections that share their scale
// gain      most that filter and weights make of it
// cos, sin  of the angle
// lines     from the first line of the projection on
// rays, scales  of each of these lines: its direction, and what it is to be multiplied with
//
// Blocks of THREADS threads for PAIRS pairs of rows: grid (chunks * ROWS / 2 / PAIRS).
// Shared memory: Forward::SHARED pairs of floats.
extern "C" __global__ void __launch_bounds__(THREADS)
    filter_lines(const float* __restrict__ pixels, int rows, float weight, const float* __restrict__ response,
                 const float2* __restrict__ roots, const double* __restrict__ by, float2* spectra,
                 const unsigned* __restrict__ peak, float gain, double cos, double sin, f16* __restrict__ lines,
                 Ray* __restrict__ rays, float* __restrict__ scales) {
    extern __shared__ float2 shared[];
    const int first_row = blockIdx.x * PAIRS * 2, chunk = first_row / ROWS;
    const int chunks = gridDim.x * PAIRS * 2 / ROWS;
    const float scale = half_scale(__uint_as_float(*peak) * gain);
    if (blockIdx.x == 0 && threadIdx.x < PARTS) {
        rays[threadIdx.x] = {cos, sin};
        scales[threadIdx.x] = 1.0f / scale;
    }
    float2* const spectrum = spectra + size_t(blockIdx.x) * PAIRS * PADDED;

    Forward::run(
        shared, roots,
        [&](int column, int sequence) {
            int row = first_row + 2 * sequence;
            const float* first = row < rows ? pixels + size_t(row) * COLUMNS : nullptr;
            const float* second = row + 1 < rows ? pixels + size_t(row + 1) * COLUMNS : nullptr;
            return make_float2(padded(first, column), padded(second, column));
        },
        [&](int k, int sequence, float2 value) { spectrum[k * PAIRS + sequence] = value; });
    __syncthreads();
    Backward::run(
        shared, roots,
        [&](int k, int sequence) {
            float2 value = spectrum[k * PAIRS + sequence];
            if (TILTED) {
                float2 mirrored = spectrum[(k == 0 ? 0 : PADDED - k) * PAIRS + sequence];
                value = moved_apart(value, mirrored, 2 * k > PADDED ? k - PADDED : k, by + first_row + 2 * sequence);
            }
            return weight * scale * response[min(k, PADDED - k)] * value;
        },
        [&](int column, int sequence, float2 value) {
            if (column >= COLUMNS) {
                return;
            }
            int row = first_row % ROWS + 2 * sequence;
            for (int part = 0; part < PARTS; ++part) {
                f16 first = to_half(value.x), second = to_half(value.y);
                f16* to = lines + chunk_start(part, chunks, chunk, COLUMNS) + column * ROWS + row;
                *reinterpret_cast<unsigned*>(to) = first.bits | unsigned(second.bits) << 16;
                value = value - make_float2(to_float(first), to_float(second));
            }
        });
}
