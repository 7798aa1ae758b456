//! Element types of frames, sinograms and slices.

use half::f16;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The type of one pixel or voxel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ElementType {
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// IEEE 754 half precision.
    F16,
    /// IEEE 754 single precision.
    F32,
}

impl ElementType {
    /// All element types.
    pub const ALL: [Self; 7] = [Self::U8, Self::U16, Self::U32, Self::I16, Self::I32, Self::F16, Self::F32];

    /// Size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
        }
    }

    /// The name used in pipeline files and reports, for example `u16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::F16 => "f16",
            Self::F32 => "f32",
        }
    }

    /// NumPy's name, for example `uint16`.
    pub const fn numpy_name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::F16 => "float16",
            Self::F32 => "float32",
        }
    }

    /// NumPy's type string for little-endian data, for example `<u2`.
    pub const fn numpy_descr(self) -> &'static str {
        match self {
            Self::U8 => "|u1",
            Self::U16 => "<u2",
            Self::U32 => "<u4",
            Self::I16 => "<i2",
            Self::I32 => "<i4",
            Self::F16 => "<f2",
            Self::F32 => "<f4",
        }
    }

    /// The largest integer of the type; detectors mark gaps and masked pixels with it. `None` for floats.
    pub const fn integer_max(self) -> Option<u64> {
        match self {
            Self::U8 => Some(u8::MAX as u64),
            Self::U16 => Some(u16::MAX as u64),
            Self::U32 => Some(u32::MAX as u64),
            Self::I16 => Some(i16::MAX as u64),
            Self::I32 => Some(i32::MAX as u64),
            Self::F16 | Self::F32 => None,
        }
    }
}

impl std::fmt::Display for ElementType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that stands for an [`ElementType`].
pub trait Element: Copy + Send + Sync + 'static {
    /// The element type of `Self`.
    const TYPE: ElementType;
    /// The value as `f32`, exact for up to 24 bits.
    fn to_f32(self) -> f32;
}

macro_rules! element {
    ($($rust:ty => $variant:ident, $convert:expr;)*) => {$(
        impl Element for $rust {
            const TYPE: ElementType = ElementType::$variant;
            #[inline(always)]
            fn to_f32(self) -> f32 {
                let convert: fn($rust) -> f32 = $convert;
                convert(self)
            }
        }
    )*};
}

element! {
    u8 => U8, f32::from;
    u16 => U16, f32::from;
    u32 => U32, |v| v as f32;
    i16 => I16, f32::from;
    i32 => I32, |v| v as f32;
    f16 => F16, f16::to_f32;
    f32 => F32, |v| v;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_agree_with_numpy_descriptions() {
        for element in ElementType::ALL {
            let digit = element.numpy_descr().chars().last().and_then(|c| c.to_digit(10));
            assert_eq!(digit, Some(element.size() as u32), "{element}");
        }
    }
}
