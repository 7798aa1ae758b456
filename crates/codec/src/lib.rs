//! Bitshuffle and LZ4: the compression of detector frames.
