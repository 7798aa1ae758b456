// From the spectra of slices to the slices: an inverse transform along v, then along u.
//
// Only what the slice holds is kept of each transform. Zero stands at index GRID / 2 of neither: pixel SIZE / 2 is
// at index 0.
//
// Constants: GRID points along an axis; SIZE, the edge of a slice; FACTORS whose product is GRID; LANES of a block;
// THREADS.
#include "fft.cuh"

// Lanes that lie together in memory; a lane is a pair of slices, real and imaginary part.
constexpr int CHUNK = 32;
using GridFft = Fft<LANES, THREADS, 1, 1, FACTORS>;

// Slices of a chunk, each (y, x); null where none is wanted.
struct Slices {
    float* voxels[2 * CHUNK];
};

// The pixel that an index of a transform stands for; SIZE or more outside of the slice.
__device__ inline int pixel_of(int index) {
    const int pixel = index + SIZE / 2;
    return pixel >= GRID ? pixel - GRID : pixel;
}

__device__ inline int signed_frequency(int index) { return index <= GRID / 2 ? index : index - GRID; }

// Grid of a chunk (u, v, lane) to middle (y, u, lane).
// Launch: (GRID * groups), THREADS, GridFft::SHARED elements of shared memory; groups of LANES from first_lane on.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    fourier_along_v(int first_lane, int groups, const float2* __restrict__ grid, const float2* __restrict__ roots,
                    float2* __restrict__ middle) {
    extern __shared__ float2 shared[];
    const int u = blockIdx.x / groups, lanes = first_lane + blockIdx.x % groups * LANES;
    // Samples lie within half of the grid, and reach two points further along each axis.
    constexpr int reach = GRID / 2 + 3;
    const int square = reach * reach - signed_frequency(u) * signed_frequency(u);
    const float2* __restrict__ from = grid + size_t(u) * GRID * CHUNK + lanes;
    float2* __restrict__ to = middle + size_t(u) * CHUNK + lanes;
    GridFft::run(
        shared, roots,
        [&](int v, int lane) {
            const int frequency = signed_frequency(v);
            return frequency * frequency <= square ? from[v * CHUNK + lane] : make_float2(0.0f, 0.0f);
        },
        [&](int index, int lane, float2 value) {
            const int y = pixel_of(index);
            if (y < SIZE) {
                to[size_t(y) * GRID * CHUNK + lane] = value;
            }
        });
}

// Middle of a chunk (y, u, lane) to slices; correction: that of the window for each pixel along an axis.
// Launch: (SIZE * groups), as above.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    fourier_along_u(int first_lane, int groups, float scale, const float2* __restrict__ middle,
                    const float2* __restrict__ roots, const float* __restrict__ correction,
                    __grid_constant__ const Slices slices) {
    extern __shared__ float2 shared[];
    const int y = blockIdx.x / groups, lanes = first_lane + blockIdx.x % groups * LANES;
    const float2* __restrict__ from = middle + size_t(y) * GRID * CHUNK + lanes;
    const float row_scale = scale * correction[y];
    GridFft::run(
        shared, roots, [&](int u, int lane) { return from[u * CHUNK + lane]; },
        [&](int index, int lane, float2 value) {
            const int x = pixel_of(index);
            if (x < SIZE) {
                const float pixel_scale = row_scale * correction[x];
                float* const real = slices.voxels[2 * (lanes + lane)];
                float* const imaginary = slices.voxels[2 * (lanes + lane) + 1];
                if (real != nullptr) {
                    real[size_t(y) * SIZE + x] = pixel_scale * value.x;
                }
                if (imaginary != nullptr) {
                    imaginary[size_t(y) * SIZE + x] = pixel_scale * value.y;
                }
            }
        });
}
