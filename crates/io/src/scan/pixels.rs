//! From numbers as they are stored to the element types of frames.

use beamstream_core::ElementType;

use crate::hdf5::{Number, NumberClass};

/// The element type that holds a stored number: the same one, or the next that there is.
///
/// 64-bit numbers become `f32` and lose what does not fit 24 bits; `i8` becomes `i16`.
pub(crate) fn element_type(number: Number) -> ElementType {
    match (number.class, number.size) {
        (NumberClass::Unsigned, 1) => ElementType::U8,
        (NumberClass::Unsigned, 2) => ElementType::U16,
        (NumberClass::Unsigned, 4) => ElementType::U32,
        (NumberClass::Signed, 1 | 2) => ElementType::I16,
        (NumberClass::Signed, 4) => ElementType::I32,
        (NumberClass::Float, 2) => ElementType::F16,
        _ => ElementType::F32,
    }
}

/// The number that stands for an element type in memory.
pub(crate) fn native(element: ElementType) -> Number {
    let class = match element {
        ElementType::U8 | ElementType::U16 | ElementType::U32 => NumberClass::Unsigned,
        ElementType::I16 | ElementType::I32 => NumberClass::Signed,
        ElementType::F16 | ElementType::F32 => NumberClass::Float,
    };
    Number { size: element.size(), class, big_endian: cfg!(target_endian = "big") }
}

/// Whether stored numbers are elements as they stand, or after a swap of their bytes.
pub(crate) fn is_native_but_for_order(number: Number, element: ElementType) -> bool {
    let native = native(element);
    (number.size, number.class) == (native.size, native.class)
}

/// Swaps the bytes of numbers that are stored in the other order.
pub(crate) fn swap_to_native(number: Number, bytes: &mut [u8]) {
    if number.big_endian != cfg!(target_endian = "big") && number.size > 1 {
        bytes.chunks_exact_mut(number.size).for_each(<[u8]>::reverse);
    }
}

/// Converts stored numbers to `element`, which is their own [`element_type`] or `f32`.
pub(crate) fn convert(number: Number, stored: &[u8], element: ElementType, out: &mut [u8]) {
    if is_native_but_for_order(number, element) {
        out.copy_from_slice(stored);
        swap_to_native(number, out);
        return;
    }
    let values = stored.chunks_exact(number.size).map(|bytes| number.value(bytes));
    if element == ElementType::F32 {
        for (value, to) in values.zip(out.chunks_exact_mut(4)) {
            to.copy_from_slice(&(value as f32).to_ne_bytes());
        }
    } else {
        // The only other conversion is from i8.
        for (value, to) in values.zip(out.chunks_exact_mut(2)) {
            to.copy_from_slice(&(value as i16).to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(number: Number, stored: &[u8], element: ElementType) -> Vec<u8> {
        let mut out = vec![0; stored.len() / number.size * element.size()];
        convert(number, stored, element, &mut out);
        out
    }

    #[test]
    fn big_endian_counts_are_swapped() {
        let number = Number { size: 2, class: NumberClass::Unsigned, big_endian: true };
        assert_eq!(converted(number, &[1, 2, 3, 4], ElementType::U16), bytemuck::bytes_of(&[258_u16, 772]));
        assert_eq!(converted(number, &[1, 2], ElementType::F32), 258_f32.to_ne_bytes());
    }

    #[test]
    fn doubles_become_floats_and_bytes_with_sign_become_i16() {
        let double = Number { size: 8, class: NumberClass::Float, big_endian: false };
        assert_eq!(converted(double, &2.5_f64.to_le_bytes(), element_type(double)), 2.5_f32.to_ne_bytes());
        let byte = Number { size: 1, class: NumberClass::Signed, big_endian: false };
        assert_eq!(converted(byte, &[0xfe], element_type(byte)), (-2_i16).to_ne_bytes());
    }

    #[test]
    fn every_element_type_is_its_own() {
        for element in ElementType::ALL {
            assert_eq!(element_type(native(element)), element);
        }
    }
}
