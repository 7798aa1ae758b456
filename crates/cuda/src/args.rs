//! Arguments of a kernel.

use std::ffi::c_void;

use bytemuck::{Pod, Zeroable};
use cudarc::driver::sys::CUdeviceptr;

use crate::device_buffer::DeviceBuffer;

/// Sixteen bytes at an address that suits every type of a kernel's parameters.
#[derive(Debug, Clone, Copy, Zeroable, Pod)]
#[repr(C, align(16))]
struct Cell([u8; 16]);

/// The arguments of one launch, in the order of the kernel's parameters.
#[derive(Debug, Clone, Default)]
pub struct Args {
    cells: Vec<Cell>,
    /// First cell and size in bytes of each argument.
    places: Vec<(usize, usize)>,
}

impl Args {
    /// No arguments yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value as it lies in memory: a number, or a `repr(C)` struct that the kernel takes by value.
    #[must_use]
    pub fn value<T: Pod>(mut self, value: &T) -> Self {
        let bytes = bytemuck::bytes_of(value);
        let first = self.cells.len();
        self.cells.extend(bytes.chunks(size_of::<Cell>()).map(|chunk| {
            let mut cell = Cell([0; 16]);
            cell.0[..chunk.len()].copy_from_slice(chunk);
            cell
        }));
        self.places.push((first, bytes.len()));
        self
    }

    /// Adds an address of device memory.
    #[must_use]
    pub fn pointer(self, pointer: CUdeviceptr) -> Self {
        self.value(&pointer)
    }

    /// Adds the address of a buffer.
    #[must_use]
    pub fn buffer<T>(self, buffer: &DeviceBuffer<T>) -> Self {
        self.pointer(buffer.pointer())
    }

    /// Adds an `unsigned`.
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        self.value(&value)
    }

    /// Adds an `int`.
    #[must_use]
    pub fn i32(self, value: i32) -> Self {
        self.value(&value)
    }

    /// Adds a `float`.
    #[must_use]
    pub fn f32(self, value: f32) -> Self {
        self.value(&value)
    }

    /// Sizes of the arguments. Unit: bytes.
    pub(crate) fn sizes(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.places.iter().map(|&(_, bytes)| bytes)
    }

    /// Addresses of the arguments, as the driver takes them; valid while `self` is not changed.
    pub(crate) fn addresses(&self) -> Vec<*mut c_void> {
        let address = |&(first, _): &(usize, usize)| {
            // An argument without bytes has no cell.
            let cell: *const Cell = self.cells.get(first..).map_or(std::ptr::null(), <[Cell]>::as_ptr);
            cell.cast_mut().cast()
        };
        self.places.iter().map(address).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Zeroable, Pod)]
    #[repr(C)]
    struct Shape {
        numbers: [u32; 6],
    }

    #[test]
    fn every_argument_is_whole_and_aligned() {
        let shape = Shape { numbers: [1, 2, 3, 4, 5, 6] };
        let args = Args::new().u32(7).value(&shape).pointer(0x1234_5678_9abc).f32(0.5);
        assert_eq!(args.sizes().collect::<Vec<_>>(), [4, 24, 8, 4]);
        let addresses = args.addresses();
        assert!(addresses.iter().all(|address| (*address as usize).is_multiple_of(16)));
        let bytes: &[u8] = bytemuck::cast_slice(&args.cells);
        assert_eq!(bytes[..4], 7_u32.to_ne_bytes());
        assert_eq!(bytes[16..40], *bytemuck::bytes_of(&shape));
        assert_eq!(addresses[2] as usize - addresses[0] as usize, 48);
        assert_eq!(bytes[48..56], 0x1234_5678_9abc_u64.to_ne_bytes());
        assert_eq!(bytes[64..68], 0.5_f32.to_ne_bytes());
    }
}
