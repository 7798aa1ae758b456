//! Pools, leases, blocks, fences; what a device, a stream and an event are.
