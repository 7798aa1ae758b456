// Filtered spectra of projections, for gridding in Fourier space.
//
// Two neighbouring rows are the real and the imaginary part of one lane: all that follows is linear and the same
// for both. A spectrum of P = 2 * HALF frequencies is made as two transforms of HALF points, of the even and of
// the odd frequencies, each by a block of its own.
//
// Constants: COLUMNS of a row; HALF, at least COLUMNS; FACTORS whose product is HALF; LANES of a block; THREADS;
// EDGE_PADDING and TILTED, 0 or 1; MAX_BATCH projections.
#include "fft.cuh"

constexpr int PADDED = 2 * HALF;
constexpr int FREQUENCIES = PADDED + 1;
// Lanes that lie together in memory.
constexpr int CHUNK = 32;
using RowFft = Fft<LANES, THREADS, -1, 2, FACTORS>;

// A batch of projections.
struct Batch {
    // Each (row, column).
    const float* pixels[MAX_BATCH];
    // Weight in radians, and the column that phases refer to.
    double weight[MAX_BATCH];
    double zero_px[MAX_BATCH];
    int count;
};

// Multipliers (projection, frequency 0 ..= HALF): the filter's response, the weight, and the phase that moves the
// zero of the columns to zero_px. The highest frequency stands at both ends of a spectrum, with half of it.
// Launch: (blocks over frequencies, projections).
extern "C" __global__ void fourier_multipliers(__grid_constant__ const Batch batch,
                                               const float* __restrict__ response,
                                               float2* __restrict__ multipliers) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x, projection = blockIdx.y;
    if (k > HALF) {
        return;
    }
    const double turns = k * batch.zero_px[projection] / PADDED;
    float sin, cos;
    sincospif(float(2.0 * (turns - rint(turns))), &sin, &cos);
    const float scale = float(batch.weight[projection]) * response[k] * (k == HALF ? 0.5f : 1.0f);
    multipliers[projection * (HALF + 1) + k] = make_float2(scale * cos, scale * sin);
}

// A value of a row and of what stands beside it. All threads load, so that many loads are under way together.
__device__ inline float padded(const float* __restrict__ row, bool exists, int column) {
    if (EDGE_PADDING) {
        // Round the corner, the padding before the first column follows that after the last.
        const int beside = column < COLUMNS + (PADDED - COLUMNS) / 2 ? COLUMNS - 1 : 0;
        const float value = row[column < COLUMNS ? column : beside];
        return exists && isfinite(value) ? value : 0.0f;
    }
    const float value = row[min(column, COLUMNS - 1)];
    return exists && column < COLUMNS && isfinite(value) ? value : 0.0f;
}

// Spectra (chunk, projection, frequency -HALF ..= HALF, lane of the chunk) of the rows of a batch.
// axis_offset_px: distance of each row's axis from the common one, where TILTED.
// Launch: (lane groups * 2, projections), THREADS, RowFft::SHARED elements of shared memory.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    fourier_spectra(__grid_constant__ const Batch batch, int rows, const float2* __restrict__ multipliers,
                    const float2* __restrict__ roots, const double* __restrict__ axis_offset_px,
                    float2* __restrict__ spectra) {
    extern __shared__ float2 shared[];
    const int odd = blockIdx.x % 2, first_lane = blockIdx.x / 2 * LANES, projection = blockIdx.y;
    const float* __restrict__ pixels = batch.pixels[projection];
    const float2* __restrict__ filter = multipliers + projection * (HALF + 1);
    float2* __restrict__ out =
        spectra + (size_t(first_lane / CHUNK) * batch.count + projection) * (FREQUENCIES * CHUNK) + first_lane % CHUNK;

    auto source = [&](int column, int lane) {
        const int row = 2 * (first_lane + lane);
        const float* __restrict__ real = pixels + size_t(min(row, rows - 1)) * COLUMNS;
        const float* __restrict__ imaginary = pixels + size_t(min(row + 1, rows - 1)) * COLUMNS;
        auto both = [&](int at) {
            return make_float2(padded(real, row < rows, at), padded(imaginary, row + 1 < rows, at));
        };
        float2 value = both(column);
        if (EDGE_PADDING) {
            const float2 later = both(column + HALF);
            value = odd ? value - later : value + later;
        }
        return value;
    };
    auto transform_rows = [&](auto sink) {
        if (odd) {
            RowFft::run<true>(shared, roots, source, sink);
        } else {
            RowFft::run<false>(shared, roots, source, sink);
        }
    };
    auto put = [&](int k, int lane, float2 value) {
        const float2 by = filter[abs(k)];
        out[(k + HALF) * CHUNK + lane] = times(value, k < 0 ? conjugate(by) : by);
    };
    auto sink = [&](int half_frequency, int lane, float2 value) {
        const int k = 2 * half_frequency + odd;
        if (k <= HALF) {
            put(k, lane, value);
        }
        if (k >= HALF) {
            put(k - PADDED, lane, value);
        }
    };
    if (!TILTED) {
        transform_rows(sink);
        return;
    }
    // With A + iB the spectrum of two rows, conj((A + iB)(-k)) = (A - iB)(k), which tells the two apart.
    float2* spectrum = shared + RowFft::SHARED;
    transform_rows(
        [&](int half_frequency, int lane, float2 value) { spectrum[half_frequency * LANES + lane] = value; });
    __syncthreads();
    for (int at = threadIdx.x; at < HALF * LANES; at += THREADS) {
        const int lane = at % LANES, half_frequency = at / LANES;
        const int mirrored = (PADDED - odd - half_frequency) % HALF;
        const float2 here = spectrum[at], there = conjugate(spectrum[mirrored * LANES + lane]);
        const int k = 2 * half_frequency + odd <= HALF ? 2 * half_frequency + odd : 2 * half_frequency + odd - PADDED;
        auto moved = [&](float2 value, int row, int at_k) {
            const double turns = row < rows ? at_k * axis_offset_px[row] / PADDED : 0.0;
            float sin, cos;
            sincospif(float(2.0 * (turns - rint(turns))), &sin, &cos);
            return times(value, make_float2(cos, sin));
        };
        const int row = 2 * (first_lane + lane);
        auto put_moved = [&](int at_k) {
            const float2 real = moved(0.5f * (here + there), row, at_k);
            const float2 imaginary = moved(0.5f * (here - there), row + 1, at_k);
            put(at_k, lane, real + imaginary);
        };
        put_moved(k);
        if (k == HALF) {
            put_moved(-HALF);
        }
    }
}
