// Complex Fourier transforms of several sequences side by side, in shared memory.
//
// A transform of LENGTH = R0 * R1 * ... points takes one step per radix R. In each step a thread takes R points
// of one sequence to registers, transforms them there and puts them back where they were (decimation in
// frequency), so that one buffer suffices. The first step reads from a source instead and the last writes to a
// sink, so that global memory is read and written by the transform itself, whatever the order there.
//
// Layout in shared memory: (point, sequence), with a gap after each LENGTH / R0 points that keeps the last step
// free of bank conflicts.
//
// Source: J. W. Cooley, J. W. Tukey, Math. Comp. 19 (1965) 297, doi:10.1090/S0025-5718-1965-0178586-1.
#pragma once

__device__ inline float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ inline float2 operator-(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
__device__ inline float2 operator*(float a, float2 b) { return make_float2(a * b.x, a * b.y); }
__device__ inline float2 times(float2 a, float2 b) {
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
__device__ inline float2 conjugate(float2 a) { return make_float2(a.x, -a.y); }

// i * a or -i * a.
template <int SIGN>
__device__ inline float2 quarter_turn(float2 a) {
    return SIGN > 0 ? make_float2(-a.y, a.x) : make_float2(a.y, -a.x);
}

// cos and sin of whole parts of a turn, when the kernel is compiled.
struct Turn {
    double cos, sin;
    constexpr Turn(int part, int whole) : cos(0.0), sin(0.0) {
        const double angle = 6.283185307179586476925 * part / whole;
        double term = 1.0;
        for (int n = 0; n < 40; n += 2) {
            cos += n % 4 == 0 ? term : -term;
            term *= angle / (n + 1);
            sin += n % 4 == 0 ? term : -term;
            term *= angle / (n + 2);
        }
    }
};

// exp(SIGN 2 pi i K / R) * a.
template <int SIGN, int R, int K>
__device__ inline float2 turned(float2 a) {
    constexpr int k = K % R;
    if constexpr (k == 0) {
        return a;
    } else if constexpr (4 * k == R) {
        return quarter_turn<SIGN>(a);
    } else if constexpr (2 * k == R) {
        return make_float2(-a.x, -a.y);
    } else if constexpr (4 * k == 3 * R) {
        return quarter_turn<-SIGN>(a);
    } else {
        constexpr Turn turn(k, R);
        return times(a, make_float2(float(turn.cos), float(SIGN * turn.sin)));
    }
}

// Calls f with the numbers 0 .. COUNT - 1 as compile-time constants.
template <int N>
struct Number {
    static constexpr int value = N;
};
template <int COUNT, int FIRST = 0, typename F>
__device__ inline void for_each(F&& f) {
    if constexpr (FIRST < COUNT) {
        f(Number<FIRST>());
        for_each<COUNT, FIRST + 1>(f);
    }
}

// The factor that a radix is split by; 1 if it is transformed as it is.
constexpr int split_of(int r) {
    return r <= 5 ? 1 : r % 4 == 0 ? 4 : r % 3 == 0 ? 3 : 2;
}

// Transform of R values in registers: x[k] = sum over n of exp(SIGN 2 pi i n k / R) x[n].
template <int R, int SIGN>
__device__ inline void transform(float2 (&x)[R]) {
    if constexpr (R == 1) {
    } else if constexpr (R == 2) {
        const float2 a = x[0];
        x[0] = a + x[1];
        x[1] = a - x[1];
    } else if constexpr (R == 3) {
        const float2 sum = x[1] + x[2];
        const float2 side = 0.8660254037844386f * quarter_turn<SIGN>(x[1] - x[2]);
        const float2 middle = x[0] - 0.5f * sum;
        x[0] = x[0] + sum;
        x[1] = middle + side;
        x[2] = middle - side;
    } else if constexpr (R == 4) {
        const float2 a = x[0] + x[2], b = x[0] - x[2];
        const float2 c = x[1] + x[3], d = quarter_turn<SIGN>(x[1] - x[3]);
        x[0] = a + c;
        x[1] = b + d;
        x[2] = a - c;
        x[3] = b - d;
    } else if constexpr (R == 5) {
        constexpr float c1 = 0.3090169943749474f, c2 = -0.8090169943749475f;
        constexpr float s1 = 0.9510565162951535f, s2 = 0.5877852522924731f;
        const float2 a = x[1] + x[4], b = x[2] + x[3];
        const float2 c = quarter_turn<SIGN>(x[1] - x[4]), d = quarter_turn<SIGN>(x[2] - x[3]);
        const float2 middle1 = x[0] + c1 * a + c2 * b, side1 = s1 * c + s2 * d;
        const float2 middle2 = x[0] + c2 * a + c1 * b, side2 = s2 * c - s1 * d;
        x[0] = x[0] + a + b;
        x[1] = middle1 + side1;
        x[2] = middle2 + side2;
        x[3] = middle2 - side2;
        x[4] = middle1 - side1;
    } else {
        constexpr int A = split_of(R), B = R / A;
        static_assert(A > 1, "a radix has no prime factor but 2, 3 and 5");
        float2 parts[B][A];
        for_each<B>([&](auto n2) {
            constexpr int N2 = decltype(n2)::value;
            for_each<A>([&](auto n1) { parts[N2][n1.value] = x[B * n1.value + N2]; });
            transform<A, SIGN>(parts[N2]);
        });
        for_each<A>([&](auto k1) {
            constexpr int K1 = decltype(k1)::value;
            float2 line[B];
            for_each<B>([&](auto n2) {
                constexpr int N2 = decltype(n2)::value;
                line[N2] = turned<SIGN, R, N2 * K1>(parts[N2][K1]);
            });
            transform<B, SIGN>(line);
            for_each<B>([&](auto k2) { x[K1 + A * k2.value] = line[k2.value]; });
        });
    }
}

// Multiplies x[q] with w^q.
template <int R>
__device__ inline void multiply_by_powers(float2 (&x)[R], float2 w) {
    float2 powers[R];
    powers[0] = make_float2(1.0f, 0.0f);
    powers[1 % R] = w;
    for_each<R>([&](auto q) {
        constexpr int Q = decltype(q)::value;
        if constexpr (Q > 1) {
            powers[Q] = times(powers[Q / 2], powers[Q - Q / 2]);
        }
        if constexpr (Q > 0) {
            x[Q] = times(x[Q], powers[Q]);
        }
    });
}

// Transforms of R0 * R1 * ... points of SEQUENCES sequences by a block of BLOCK threads.
// SIGN is that of the exponent; ROOT_STEP is how many entries of the table of roots make a step of 1 / LENGTH.
template <int SEQUENCES, int BLOCK, int SIGN, int ROOT_STEP, int R0, int... RS>
struct Fft {
    static constexpr int LENGTH = (R0 * ... * RS);
    static constexpr int PART = LENGTH / R0;
    static constexpr int PITCH = PART | 1;
    // Elements of shared memory.
    static constexpr int SHARED = R0 * PITCH * SEQUENCES;

    // Calls source(point, sequence) once for each value and sink(frequency, sequence, value) once for each result.
    // Where BETWEEN, the frequencies are half of one higher: those between the others, of which there are as many.
    // roots: exp(-2 pi i n / (ROOT_STEP LENGTH)). Whoever used `shared` before must be done with it.
    template <bool BETWEEN = false, typename Source, typename Sink>
    __device__ static void run(float2* shared, const float2* __restrict__ roots, Source source, Sink sink) {
        static_assert(!BETWEEN || ROOT_STEP % 2 == 0, "half a frequency is a whole step in the table of roots");
        step<BETWEEN, 1, R0, RS...>(shared, roots, source, sink);
    }

private:
    template <bool BETWEEN, int BEFORE, int R, int... REST, typename Source, typename Sink>
    __device__ static void step(float2* shared, const float2* __restrict__ roots, Source source, Sink sink) {
        constexpr bool is_first = BEFORE == 1, is_last = sizeof...(REST) == 0;
        // Sub-sequences of `span` neighbours are transformed by themselves; `stride` is between a thread's points.
        constexpr int span = LENGTH / BEFORE, stride = span / R;
        for (int at = threadIdx.x; at < LENGTH / R * SEQUENCES; at += BLOCK) {
            const int sequence = at % SEQUENCES, butterfly = at / SEQUENCES;
            const int within = butterfly % stride;
            // In the last step neighbouring threads make neighbouring frequencies.
            const int first = is_last ? position_of(butterfly) : butterfly / stride * span + within;
            float2* const points = shared + place(first) * SEQUENCES + sequence;
            float2 x[R];
            for_each<R>([&](auto t) {
                if constexpr (is_first) {
                    const float2 value = source(first + t.value * stride, sequence);
                    // exp(i pi point / LENGTH) makes frequencies half of one higher: here what is the same for all
                    // threads, below the rest.
                    x[t.value] = BETWEEN ? turned<SIGN, 2 * R, t.value>(value) : value;
                } else {
                    x[t.value] = points[t.value * stride * SEQUENCES];
                }
            });
            transform<R, SIGN>(x);
            if constexpr (is_last) {
                for_each<R>([&](auto q) { sink(butterfly + q.value * BEFORE, sequence, x[q.value]); });
            } else {
                const float2 root = roots[within * (BEFORE * ROOT_STEP)];
                multiply_by_powers<R>(x, SIGN > 0 ? conjugate(root) : root);
                if constexpr (is_first && BETWEEN) {
                    const float2 half_root = roots[within * (ROOT_STEP / 2)];
                    for_each<R>([&](auto q) {
                        x[q.value] = times(x[q.value], SIGN > 0 ? conjugate(half_root) : half_root);
                    });
                }
                constexpr int written = is_first ? PITCH : stride;
                for_each<R>([&](auto q) { points[q.value * written * SEQUENCES] = x[q.value]; });
            }
        }
        if constexpr (!is_last) {
            __syncthreads();
            step<BETWEEN, BEFORE * R, REST...>(shared, roots, source, sink);
        }
    }

    // Where a point lies in shared memory.
    __device__ static int place(int point) { return point / PART * PITCH + point % PART; }

    // First point of the butterfly of the last step that makes the frequencies `lowest` + multiples of BEFORE.
    __device__ static int position_of(int lowest) { return position<LENGTH, R0, RS...>(lowest); }

    template <int SPAN, int R, int... REST>
    __device__ static int position(int lowest) {
        if constexpr (sizeof...(REST) == 0) {
            return 0;
        } else {
            return lowest % R * (SPAN / R) + position<SPAN / R, REST...>(lowest / R);
        }
    }
};
