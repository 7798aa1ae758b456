// Means of frames: dark and flat images.
//
// Compiled for: ELEMENT (a type of element.cuh), COUNTS_MISSING (1 for floats, whose values may be no numbers).
//
// Sums are f64, in the order of the frames, as on the CPU: exact for all integers that detectors give.
#include "element.cuh"

// frame    (row, column) of ELEMENT
// sums     (row, column), f64
// missing  (row, column): values that were NaN or infinite and are left out; not touched without COUNTS_MISSING
//
// One thread a pixel.
extern "C" __global__ void add_frame(const ELEMENT* __restrict__ frame, size_t pixels, double* __restrict__ sums,
                                     unsigned* __restrict__ missing) {
    size_t pixel = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (pixel >= pixels) {
        return;
    }
    float value = to_float(frame[pixel]);
    if (COUNTS_MISSING && !is_finite(value)) {
        ++missing[pixel];
    } else {
        sums[pixel] += value;
    }
}

// Writes the mean of `frames` frames, f32; 0 where there was no value at all. One thread a pixel.
extern "C" __global__ void mean_of_frames(const double* __restrict__ sums, const unsigned* __restrict__ missing,
                                          size_t pixels, unsigned long long frames, float* __restrict__ mean) {
    size_t pixel = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (pixel >= pixels) {
        return;
    }
    unsigned long long count = frames - (COUNTS_MISSING ? missing[pixel] : 0);
    mean[pixel] = count == 0 ? 0.0f : static_cast<float>(sums[pixel] / static_cast<double>(count));
}
