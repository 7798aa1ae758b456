//! From a message's payload to the pixels of a block.

use beamstream_buffer::LeaseMut;
use beamstream_codec::{Compression, decode};
use beamstream_core::{Format, Shape};

use crate::assembler::Ticket;
use crate::source::Lent;
use crate::zmtp::Message;

/// Why a frame did not become a block.
pub(crate) enum FillError<E> {
    /// The payload does not decode; says why.
    Damaged(String),
    /// There is no buffer.
    NoBuffer(E),
}

/// The pixels of a frame in a buffer: the one that they were received into if they can stay there, else a
/// new one by `lease`.
pub(crate) fn fill<E>(
    ticket: &Ticket,
    message: &mut Message<Lent>,
    lease: impl FnOnce(Format) -> Result<LeaseMut, E>,
) -> Result<LeaseMut, FillError<E>> {
    let (image, payload) = (&ticket.image, &ticket.image.payload);
    let received = match payload.compression {
        Compression::None => message.take_lease(payload.part).and_then(Lent::into_lease),
        _ => None,
    };
    let mut buffer = match received {
        Some(buffer) if buffer.format() == ticket.format => buffer,
        Some(mut other) => {
            // Received into a buffer for the frames of the series before.
            let mut buffer = lease(ticket.format).map_err(FillError::NoBuffer)?;
            decode(Compression::None, other.bytes_mut(), buffer.bytes_mut(), 1)
                .map_err(|error| FillError::Damaged(error.to_string()))?;
            buffer
        }
        None => {
            let mut buffer = lease(ticket.format).map_err(FillError::NoBuffer)?;
            let bytes = message.part(payload.part).and_then(|part| part.get(payload.bytes.clone()));
            decode(payload.compression, bytes.unwrap_or_default(), buffer.bytes_mut(), image.element.size())
                .map_err(|error| FillError::Damaged(error.to_string()))?;
            buffer
        }
    };
    let element_bytes = image.element.size();
    let pixels = buffer.bytes_mut();
    if payload.big_endian {
        swap_bytes(pixels, element_bytes);
    }
    if image.mirror {
        mirror(pixels, element_bytes, image.shape);
    }
    if image.upside_down {
        turn(pixels, element_bytes);
    }
    Ok(buffer)
}

/// Turns big-endian elements into little-endian ones.
fn swap_bytes(pixels: &mut [u8], element_bytes: usize) {
    match element_bytes {
        2 => pixels.as_chunks_mut::<2>().0.iter_mut().for_each(|element| element.reverse()),
        4 => pixels.as_chunks_mut::<4>().0.iter_mut().for_each(|element| element.reverse()),
        _ => {}
    }
}

/// Reverses each row.
fn mirror(pixels: &mut [u8], element_bytes: usize, shape: Shape) {
    for row in pixels.chunks_exact_mut((shape.columns * element_bytes).max(1)) {
        turn(row, element_bytes);
    }
}

/// Reverses the order of the elements; for a frame this is a turn by 180 degrees.
fn turn(pixels: &mut [u8], element_bytes: usize) {
    match element_bytes {
        1 => pixels.reverse(),
        2 => pixels.as_chunks_mut::<2>().0.reverse(),
        4 => pixels.as_chunks_mut::<4>().0.reverse(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_put_in_order() {
        let mut pixels = [1, 2, 3, 4, 5, 6, 7, 8];
        swap_bytes(&mut pixels, 2);
        assert_eq!(pixels, [2, 1, 4, 3, 6, 5, 8, 7]);
        swap_bytes(&mut pixels, 4);
        assert_eq!(pixels, [3, 4, 1, 2, 7, 8, 5, 6]);
        let mut pixels = [1, 2, 3, 4, 5, 6, 7, 8];
        mirror(&mut pixels, 2, Shape::new(2, 2));
        assert_eq!(pixels, [3, 4, 1, 2, 7, 8, 5, 6]);
        turn(&mut pixels, 1);
        assert_eq!(pixels, [6, 5, 8, 7, 2, 1, 4, 3]);
    }
}
