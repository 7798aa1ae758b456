//! Bare pixels, whose layout the user tells: `raw:ROWSxCOLUMNS:TYPE`, perhaps with `:offset=BYTES` and `:gap=BYTES`.

use std::fs::File;
use std::path::Path;

use beamstream_core::{Role, Shape};

use super::plain::PlainStack;
use super::{MAX_FRAMES, Parts, ScanError, ScanKind};
use crate::hdf5::{Number, NumberClass};

/// How a layout begins where it stands for a place.
pub(super) const PREFIX: &str = "raw:";

/// How frames lie in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawLayout {
    shape: Shape,
    number: Number,
    /// Bytes in front of the first frame.
    offset: u64,
    /// Bytes between frames.
    gap: u64,
}

impl RawLayout {
    /// Reads what follows the prefix, for example `2048x2560:u16be:offset=1024`.
    ///
    /// # Errors
    /// [`ScanError::NoFrames`] with the part that is not understood.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, ScanError> {
        let wrong = |expected: &str, found: &str| {
            ScanError::no_frames(
                path,
                format!("expected {expected} in the layout raw:{text}, found {found:?}"),
            )
        };
        let mut fields = text.split(':');
        let extents = fields.next().unwrap_or_default();
        let shape = extents.split_once('x').and_then(|(rows, columns)| {
            Some(Shape::new(rows.trim().parse().ok()?, columns.trim().parse().ok()?))
        });
        let shape = shape.ok_or_else(|| wrong("ROWSxCOLUMNS", extents))?;
        let name = fields.next().unwrap_or_default();
        let number = number(name).ok_or_else(|| wrong("a type as u8, u16, u16be, i32 or f32", name))?;
        let mut layout = Self { shape, number, offset: 0, gap: 0 };
        for field in fields {
            let (key, value) = field.split_once('=').unwrap_or((field, ""));
            let place = match key {
                "offset" => &mut layout.offset,
                "gap" => &mut layout.gap,
                _ => return Err(wrong("offset=BYTES or gap=BYTES", field)),
            };
            *place = value.parse().ok().ok_or_else(|| wrong("a number of bytes", field))?;
        }
        Ok(layout)
    }
}

/// A number by its name, as `u16` or `f32be`.
fn number(name: &str) -> Option<Number> {
    let (name, big_endian) = match name.strip_suffix("be") {
        Some(name) => (name, true),
        None => (name.strip_suffix("le").unwrap_or(name), false),
    };
    let (class, size) = match name {
        "u8" => (NumberClass::Unsigned, 1),
        "u16" => (NumberClass::Unsigned, 2),
        "u32" => (NumberClass::Unsigned, 4),
        "i8" => (NumberClass::Signed, 1),
        "i16" => (NumberClass::Signed, 2),
        "i32" => (NumberClass::Signed, 4),
        "f16" => (NumberClass::Float, 2),
        "f32" => (NumberClass::Float, 4),
        "f64" => (NumberClass::Float, 8),
        _ => return None,
    };
    Some(Number { size, class, big_endian })
}

/// The frames of a file; it must end with a whole frame.
pub(super) fn open(path: &Path, layout: &RawLayout) -> Result<Parts, ScanError> {
    let RawLayout { shape, number, offset, gap } = *layout;
    let file = File::open(path).map_err(ScanError::io(path))?;
    let len = file.metadata().map_err(ScanError::io(path))?.len();
    let frame = shape.checked_len().and_then(|len| len.checked_mul(number.size)).unwrap_or(usize::MAX) as u64;
    let step = frame.saturating_add(gap).max(1);
    let room = len.saturating_sub(offset);
    // The gap behind the last frame may be there or not.
    let count = room.saturating_add(gap) / step;
    let rest = room - (count * frame + count.saturating_sub(1) * gap).min(room);
    if count == 0 || count > MAX_FRAMES as u64 || !(rest == 0 || rest == gap) {
        let what = format!(
            "expected frames of {shape}, {frame} bytes each, {gap} bytes apart, from byte {offset} on; \
             found {len} bytes: {count} frames and {rest} bytes more"
        );
        return Err(ScanError::no_frames(path, what));
    }
    let offsets = (0..count).map(|number| offset + number * step).collect();
    let stack = PlainStack::new(path, file, offsets, shape, number)?;
    Ok(Parts::of_stack(ScanKind::Raw, Box::new(stack), Role::Projection))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Scan, ScanOptions};

    fn scan(path: &Path, layout: &str) -> Result<Scan, ScanError> {
        Scan::open(path, &ScanOptions { data: Some(layout.to_owned()), ..ScanOptions::default() })
    }

    #[test]
    fn offsets_gaps_and_byte_orders_are_obeyed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scan.bin");
        std::fs::write(&path, [9, 9, 9, 0, 1, 0, 2, 8, 8, 0, 3, 1, 0]).unwrap();
        let mut scan = scan(&path, "raw:1x2:u16be:offset=3:gap=2").unwrap();
        assert_eq!(scan.info().frames.len(), 2);
        let mut out = [0; 4];
        scan.read(1, 0..1, &mut out).unwrap();
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, u16>(&out), [3, 256]);
    }

    #[test]
    fn layouts_that_do_not_fit_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scan.bin");
        std::fs::write(&path, [0; 10]).unwrap();
        for (layout, word) in [
            ("raw:1x2:u16", "2 frames and 2 bytes more"),
            ("raw:1x20:u16", "0 frames"),
            ("raw:99999999999x99999999999:f64", "0 frames"),
            ("raw:0x4:u16", "found 10 bytes"),
            ("raw:2:u16", "ROWSxCOLUMNS"),
            ("raw:1x2:u17", "u17"),
            ("raw:1x2:u16:skip=3", "skip=3"),
            ("raw:1x2:u16:offset=x", "offset=x"),
            ("raw:1x1:u16:offset=18446744073709551615", "0 frames"),
        ] {
            let text = scan(&path, layout).unwrap_err().to_string();
            assert!(text.contains(word) && text.contains("scan.bin"), "{layout}: {text}");
        }
        let text = Scan::open(&path, &ScanOptions::default()).unwrap_err().to_string();
        assert!(text.contains("raw:ROWSxCOLUMNS"), "{text}");
    }
}
