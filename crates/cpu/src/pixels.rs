//! Bytes as elements of a type that is known only at run time.

use beamstream_core::ElementType;
use bytemuck::Pod;

/// Why pixels were not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PixelError {
    /// Another number of elements.
    #[error("expected {expected} {element} elements, found {found_bytes} bytes")]
    Length {
        /// Elements expected.
        expected: usize,
        /// Their type.
        element: ElementType,
        /// Bytes given.
        found_bytes: usize,
    },
    /// The bytes do not start where an element can.
    #[error("expected bytes that are aligned for {element}, found them at an odd address")]
    Alignment {
        /// The element type.
        element: ElementType,
    },
    /// A type that the operation does not write.
    #[error("expected f32, f16, u16 or u8 to write, found {found}")]
    OutputType {
        /// The type asked for.
        found: ElementType,
    },
    /// Two images that should be of one size.
    #[error("expected {expected} pixels, found {found}")]
    Size {
        /// Pixels expected.
        expected: usize,
        /// Pixels given.
        found: usize,
    },
}

/// The bytes as `expected` elements.
pub(crate) fn elements<T: Pod>(
    bytes: &[u8],
    element: ElementType,
    expected: usize,
) -> Result<&[T], PixelError> {
    if bytes.len() != expected.saturating_mul(size_of::<T>()) {
        return Err(PixelError::Length { expected, element, found_bytes: bytes.len() });
    }
    bytemuck::try_cast_slice(bytes).ok().ok_or(PixelError::Alignment { element })
}

/// The same to write into.
pub(crate) fn elements_mut<T: Pod>(
    bytes: &mut [u8],
    element: ElementType,
    expected: usize,
) -> Result<&mut [T], PixelError> {
    if bytes.len() != expected.saturating_mul(size_of::<T>()) {
        return Err(PixelError::Length { expected, element, found_bytes: bytes.len() });
    }
    bytemuck::try_cast_slice_mut(bytes).ok().ok_or(PixelError::Alignment { element })
}

/// Checks that an image has the pixels that are expected.
pub(crate) fn check_size(expected: usize, found: usize) -> Result<(), PixelError> {
    if expected == found { Ok(()) } else { Err(PixelError::Size { expected, found }) }
}

/// Evaluates an expression in which a name stands for the Rust type of an [`ElementType`].
macro_rules! with_element {
    ($element:expr, $name:ident => $body:expr) => {
        match $element {
            beamstream_core::ElementType::U8 => {
                type $name = u8;
                $body
            }
            beamstream_core::ElementType::U16 => {
                type $name = u16;
                $body
            }
            beamstream_core::ElementType::U32 => {
                type $name = u32;
                $body
            }
            beamstream_core::ElementType::I16 => {
                type $name = i16;
                $body
            }
            beamstream_core::ElementType::I32 => {
                type $name = i32;
                $body
            }
            beamstream_core::ElementType::F16 => {
                type $name = half::f16;
                $body
            }
            beamstream_core::ElementType::F32 => {
                type $name = f32;
                $body
            }
        }
    };
}

pub(crate) use with_element;

/// Values from which on an integer is the mark of a gap, a masked or a saturated pixel; infinite for floats.
///
/// As `f32` the largest `u32` and the 127 below it are one value; EIGER detectors use the last two as marks.
pub(crate) fn saturation(element: ElementType) -> f32 {
    element.integer_max().map_or(f32::INFINITY, |max| max as f32)
}
