// Slices of any orientation from stored lines, by direct backprojection with linear interpolation.
//
// Compiled for: ROWS (rows of a chunk of the lines), EDGE (edge of the pixels of a block: 64, 32, 16 or 8), TILTED (1 if
// rows have axes of their own), BETWEEN (0 if all pixels lie on rows).
//
// A block brings what its pixels can need of a line, columns and groups of 8 rows, to shared memory. The rows are the
// same for all lines.
#include "lines.cuh"

constexpr int WARP = 32;
// Pixels of a warp, so that its columns and rows lie close in every direction.
constexpr int WARP_X = 8, WARP_Y = 4;
// A row of warps, and the pixels of a thread: one in each such row of the block.
constexpr int WARPS = EDGE / WARP_X, PIXELS = EDGE / WARP_Y;
constexpr int THREADS = WARP * WARPS;

// A plane: pixel (i, j) lies at `origin + i * down + j * right`: z in rows, y and x from the rotation axis.
struct Plane {
    double origin[3], down[3], right[3];
};

// A line as a block sees it; positions count from its first column.
struct LocalRay {
    // Position of the first pixel, and steps of it along both axes of the plane.
    float origin, down, right;
    // What the values of the line are multiplied with.
    float scale;
    int first_column, columns;
};

// What a block can bring of a stage's lines to shared memory.
struct Window {
    int columns, groups, lines;
};

// The lowest and the highest of the steps of a block.
__device__ inline double lowest(double down, double right) {
    return fmin(0.0, (EDGE - 1) * down) + fmin(0.0, (EDGE - 1) * right);
}
__device__ inline double highest(double down, double right) { return -lowest(-down, -right); }

__device__ inline LocalRay localise(const Plane& plane, Ray ray, float scale, double axis, double spread, int first_i,
                                    int first_j) {
    double down = plane.down[2] * ray.cos + plane.down[1] * ray.sin;
    double right = plane.right[2] * ray.cos + plane.right[1] * ray.sin;
    double origin = axis + plane.origin[2] * ray.cos + plane.origin[1] * ray.sin + first_i * down + first_j * right;
    int first_column = static_cast<int>(floor(origin + lowest(down, right))) - 1;
    // One column below the first pixel, one after the last, and the two that rounding may add.
    int columns = static_cast<int>(ceil((EDGE - 1) * (fabs(down) + fabs(right)) + spread)) + 4;
    return {static_cast<float>(origin - first_column), static_cast<float>(down), static_cast<float>(right), scale,
            first_column, columns};
}

__device__ inline float load_half(unsigned address) {
    f16 value;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value.bits) : "r"(address));
    return to_float(value);
}

// A value between two columns of a line in shared memory, of one row.
__device__ inline float between_columns(unsigned row_address, float position, int column_bytes) {
    const float column = __fadd_rd(position, INTEGERS), part = position - (column - INTEGERS);
    const unsigned from = row_address + (__float_as_uint(column) - __float_as_uint(INTEGERS)) * column_bytes;
    const float here = load_half(from), there = load_half(from + column_bytes);
    return here + part * (there - here);
}

// The pieces of 8 rows of one column that a thread copies, the same in all stages.
struct Copies {
    // First line, column and group of rows, and steps to the next; no line if there is nothing to copy.
    int line, line_step, place, place_step, group;
    // Where its rows begin in a line.
    size_t start;
    // Columns of a line; 0 if the rows are off the detector.
    unsigned columns;
};

__device__ inline Copies copies_of_thread(Window window, int first_group, int groups, int chunks,
                                           int columns) {
    const int group = threadIdx.x % groups, slot = threadIdx.x / groups;
    const int slots = THREADS / groups, lines = slots / window.columns;
    const int row = (first_group + group) * GROUP_ROWS, chunk = row / ROWS;
    Copies copies;
    copies.group = group;
    const bool inside = row >= 0 && chunk < chunks;
    copies.start = inside ? chunk_start(0, chunks, chunk, columns) + row % ROWS : 0;
    copies.columns = inside ? columns : 0;
    if (lines == 0) {
        copies.line = slot < slots ? 0 : window.lines;
        copies.line_step = 1;
        copies.place = slot;
        copies.place_step = slots;
    } else {
        copies.line = slot / window.columns < lines ? slot / window.columns : window.lines;
        copies.line_step = lines;
        copies.place = slot % window.columns;
        copies.place_step = window.columns;
    }
    return copies;
}

// lines       (line, chunk, column, row of the chunk), halves
// rays, scales  one a line
// chunks, columns  of a line
// axis        column of the rotation axis, the lowest where rows have their own
// spread      how far the axes of the rows are apart
// row_axis    how far the axis of each row of all chunks is from it, in columns; not read unless TILTED
// out         (i, j) of `height` x `width` pixels, f32
//
// Blocks of THREADS threads for EDGE x EDGE pixels: grid (j, i).
// Shared memory: two stages of `window.lines` windows of `(groups | 1) * 16` bytes a column, three of LocalRays.
extern "C" __global__ void __launch_bounds__(THREADS)
    backproject_plane(const f16* __restrict__ lines, const Ray* __restrict__ rays, const float* __restrict__ scales,
                      int line_count, int chunks, int columns, double axis, double spread,
                      const float* __restrict__ row_axis,
                      __grid_constant__ const Plane plane, int height, int width,
                      __grid_constant__ const Window window, float scale, float* __restrict__ out) {
    extern __shared__ __align__(16) unsigned char shared[];
    const int first_i = blockIdx.y * EDGE, first_j = blockIdx.x * EDGE;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int i = lane / WARP_X, j = warp * WARP_X + lane % WARP_X;
    // An odd number of 16 bytes spreads columns over the banks.
    const int column_bytes = (window.groups | 1) * 16;
    const int line_bytes = window.columns * column_bytes, stage_bytes = window.lines * line_bytes;
    LocalRay* const local = reinterpret_cast<LocalRay*>(shared + 2 * stage_bytes);

    const double first_z = plane.origin[0] + first_i * plane.down[0] + first_j * plane.right[0];
    // Rows that the pixels need, with a margin for rounding.
    const double low = first_z + lowest(plane.down[0], plane.right[0]) + (BETWEEN ? -1e-6 : 0.5);
    const double high = first_z + highest(plane.down[0], plane.right[0]) + (BETWEEN ? 1.0 + 1e-6 : 0.5);
    const int first_group = static_cast<int>(floor(low / GROUP_ROWS));
    const int groups = min(window.groups, static_cast<int>(floor(high / GROUP_ROWS)) - first_group + 1);
    const int last_row = chunks * ROWS - 1;

    // Rows of the pixels: the nearest below, as bytes in a column, and how far it is to the next. With an axis of its
    // own, a row has positions of its own.
    int row_bytes[PIXELS];
    float to_next_row[PIXELS], row_px[PIXELS], next_row_px[PIXELS];
#pragma unroll
    for (int pixel = 0; pixel < PIXELS; ++pixel) {
        const double z = first_z + (i + pixel * WARP_Y) * plane.down[0] + j * plane.right[0];
        const int row = static_cast<int>(BETWEEN ? floor(z) : rint(z));
        to_next_row[pixel] = static_cast<float>(z - row);
        row_bytes[pixel] = 2 * (row - first_group * GROUP_ROWS);
        if (TILTED) {
            row_px[pixel] = row_axis[min(max(row, 0), last_row)];
            next_row_px[pixel] = row_axis[min(max(row + 1, 0), last_row)];
        }
    }

    auto localise_stage = [&](int stage) {
        int line = stage * window.lines + threadIdx.x;
        if (threadIdx.x < window.lines && line < line_count) {
            local[stage % 3 * window.lines + threadIdx.x] =
                localise(plane, rays[line], scales[line], axis, spread, first_i, first_j);
        }
    };
    const Copies copies = copies_of_thread(window, first_group, groups, chunks, columns);
    const size_t line_halves = chunk_start(1, chunks, 0, columns);
    auto copy_stage = [&](int stage) {
        const int first = stage * window.lines, count = min(window.lines, line_count - first);
        const LocalRay* ray = local + stage % 3 * window.lines + copies.line;
        const f16* from = lines + copies.start + (first + copies.line) * line_halves;
        unsigned to = shared_address(shared) + stage % 2 * stage_bytes + copies.group * 16 + copies.line * line_bytes;
        for (int line = copies.line; line < count; line += copies.line_step) {
            const int first_column = ray->first_column, last_place = min(ray->columns, window.columns);
            for (int place = copies.place; place < last_place; place += copies.place_step) {
                const unsigned column = first_column + place;
                const bool inside = column < copies.columns;
                copy_or_zero(to + place * column_bytes, inside ? from + column * ROWS : lines, inside);
            }
            ray += copies.line_step;
            from += copies.line_step * line_halves;
            to += copies.line_step * line_bytes;
        }
        commit_copies();
    };

    // Of the rows below the pixels, and of those above.
    float sums[PIXELS] = {}, next_sums[PIXELS] = {};
    const int stages = (line_count + window.lines - 1) / window.lines;
    localise_stage(0);
    localise_stage(1);
    __syncthreads();
    copy_stage(0);
    for (int stage = 0; stage < stages; ++stage) {
        // Then this stage has arrived, and all are done with the one before.
        wait_for_copies<0>();
        __syncthreads();
        copy_stage(stage + 1);
        localise_stage(stage + 2);
        const int count = min(window.lines, line_count - stage * window.lines);
        const LocalRay* ray = local + stage % 3 * window.lines;
        unsigned address = shared_address(shared) + stage % 2 * stage_bytes;
        for (int line = 0; line < count; ++line, ++ray, address += line_bytes) {
            const float first = ray->origin + ray->down * i + ray->right * j;
#pragma unroll
            for (int pixel = 0; pixel < PIXELS; ++pixel) {
                const float position = first + ray->down * float(pixel * WARP_Y);
                const unsigned row = address + row_bytes[pixel];
                const float at = position + (TILTED ? row_px[pixel] : 0.0f);
                sums[pixel] += ray->scale * between_columns(row, at, column_bytes);
                if (BETWEEN) {
                    const float next_at = position + (TILTED ? next_row_px[pixel] : 0.0f);
                    next_sums[pixel] += ray->scale * between_columns(row + 2, next_at, column_bytes);
                }
            }
        }
    }
#pragma unroll
    for (int pixel = 0; pixel < PIXELS; ++pixel) {
        int y = first_i + i + pixel * WARP_Y, x = first_j + j;
        if (y < height && x < width) {
            const float next = BETWEEN ? to_next_row[pixel] * (next_sums[pixel] - sums[pixel]) : 0.0f;
            out[size_t(y) * width + x] = scale * (sums[pixel] + next);
        }
    }
}
