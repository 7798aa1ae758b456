// Lines: filtered projections as backprojection takes them, and what its kernels share.
//
// A line is one projection of all rows in half precision, `(chunk, column, row of the chunk)`, rows innermost: one
// position serves all rows of a chunk. Values are multiplied by a power of two that keeps them within the range of
// halves (`half_scale`). A projection of PARTS 2 takes two lines, the second with what rounding took from the first;
// their sum has 22 significant bits.
//
// Compiled for: ROWS (rows of a chunk: 16, 32, 48 or 64).
#pragma once
#include "element.cuh"

// The direction of a line: a point (x, y) from the rotation axis lies at column `axis + x * cos + y * sin`.
struct Ray {
    double cos, sin;
};

// Rows that are copied together: 16 bytes.
constexpr int GROUP_ROWS = 8;

// 1.5 * 2^23: a float plus this has lost its fraction, and its integer stands in the lowest bits.
constexpr float INTEGERS = 12582912.0f;

// A power of two that brings values of up to `peak` to 2^14 at most; 1 if there is no such value.
__device__ inline float half_scale(float peak) {
    if (!(peak > 0.0f) || !is_finite(peak)) {
        return 1.0f;
    }
    return exp2f(fminf(fmaxf(13.0f - floorf(log2f(peak)), -96.0f), 96.0f));
}

// Where a chunk of a line begins.
__device__ inline size_t chunk_start(size_t line, int chunks, int chunk, int columns) {
    return (line * chunks + chunk) * columns * ROWS;
}

// Starts the copy of 16 bytes to shared memory, or writes zeros there.
__device__ inline void copy_or_zero(unsigned to_shared, const void* from, bool copy) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from), "r"(copy ? 16 : 0));
}

// Ends a stage of copies.
__device__ inline void commit_copies() {
    asm volatile("cp.async.commit_group;");
}

// Waits until at most `PENDING` of the last stages are on their way.
template <int PENDING>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING));
}

__device__ inline unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
