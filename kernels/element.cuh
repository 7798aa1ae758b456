// Element types of frames and volumes by the names that `beamstream_core::ElementType` gives them, and their values
// as f32. NVRTC compiles without the toolkit's headers, so half precision is converted by its PTX instructions.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef short i16;
typedef int i32;
typedef float f32;

// A half-precision number, as its bits.
struct f16 {
    unsigned short bits;
};

template <class T>
__device__ inline float to_float(T value) {
    return static_cast<float>(value);
}

template <>
__device__ inline float to_float(f16 value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}

// The nearest half; what is beyond its range becomes infinite.
__device__ inline f16 to_half(float value) {
    f16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}

__device__ inline bool is_finite(float value) {
    return fabsf(value) < __int_as_float(0x7f800000);
}
