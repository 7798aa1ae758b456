// Small pieces between the host and the device: parameters and tables there, results back.
//
// The copies of the driver stand in line behind those of all other streams in the same direction: while frames come and
// a volume leaves, a few numbers would wait for hundreds of blocks. A kernel that reads or writes pinned memory by itself
// does not.

// from, to  memory of the device or pinned memory of the host, as the device sees it
// bytes     any number; both addresses are multiples of 16
//
// A thread carries 16 bytes; the first one also those that are left.
extern "C" __global__ void carry(const unsigned char* from, unsigned char* to, size_t bytes) {
    size_t word = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    size_t words = bytes / sizeof(uint4);
    if (word < words) {
        // The host may have written anew what a cache holds.
        reinterpret_cast<uint4*>(to)[word] = __ldcv(reinterpret_cast<const uint4*>(from) + word);
    }
    if (word == 0) {
        for (size_t byte = words * sizeof(uint4); byte < bytes; ++byte) {
            to[byte] = __ldcv(from + byte);
        }
    }
}
