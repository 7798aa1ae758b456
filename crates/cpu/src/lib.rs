//! Every operation on the CPU: the reference.
