// Small results for the host.
//
// The copies of the driver stand in line behind those of all other streams in the same direction: while a volume
// leaves, the host would wait for hundreds of slices before it sees a few numbers. A kernel that writes to pinned memory
// by itself does not.

// from   device memory
// to     pinned host memory, as the device sees it
// bytes  any number; both addresses are multiples of 16
//
// A thread writes 16 bytes; the first one also those that are left.
extern "C" __global__ void to_host(const unsigned char* __restrict__ from, unsigned char* __restrict__ to,
                                   size_t bytes) {
    size_t word = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    size_t words = bytes / sizeof(uint4);
    if (word < words) {
        reinterpret_cast<uint4*>(to)[word] = reinterpret_cast<const uint4*>(from)[word];
    }
    if (word == 0) {
        for (size_t byte = words * sizeof(uint4); byte < bytes; ++byte) {
            to[byte] = from[byte];
        }
    }
}
