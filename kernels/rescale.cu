// Fewer bits for slices: f32 to u16, u8, f16 or as it is.
//
// Compiled for: OUTPUT (u16, u8, f16 or f32 of element.cuh).
#include "element.cuh"

// Voxels of a thread.
constexpr int VOXELS = 4;

struct alignas(sizeof(OUTPUT) * VOXELS) Packed {
    OUTPUT voxels[VOXELS];
};

template <class T>
struct Convert {
    // Stretches the range over the integers and rounds. `fmaxf` turns NaN into 0.
    static __device__ T from(float value, float low, float scale, float highest) {
        return static_cast<T>(fminf(fmaxf((value - low) * scale, 0.0f), highest) + 0.5f);
    }
};

// Floats are converted as they are.
template <>
struct Convert<f16> {
    static __device__ f16 from(float value, float, float, float) { return to_half(value); }
};

template <>
struct Convert<f32> {
    static __device__ f32 from(float value, float, float, float) { return value; }
};

// from     voxels, f32
// low      value that becomes 0
// scale    integers a unit of value
// highest  largest integer
// to       voxels of OUTPUT
//
// One thread four voxels; both begin on 16 bytes.
extern "C" __global__ void rescale(const float* __restrict__ from, size_t voxels, float low, float scale,
                                   float highest, OUTPUT* __restrict__ to) {
    size_t first = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * VOXELS;
    if (first + VOXELS <= voxels) {
        float4 values = *reinterpret_cast<const float4*>(from + first);
        Packed packed = {{
            Convert<OUTPUT>::from(values.x, low, scale, highest),
            Convert<OUTPUT>::from(values.y, low, scale, highest),
            Convert<OUTPUT>::from(values.z, low, scale, highest),
            Convert<OUTPUT>::from(values.w, low, scale, highest),
        }};
        *reinterpret_cast<Packed*>(to + first) = packed;
        return;
    }
    for (size_t voxel = first; voxel < voxels; ++voxel) {
        to[voxel] = Convert<OUTPUT>::from(from[voxel], low, scale, highest);
    }
}
