//! Bounds-checked reading of little-endian fields.

use super::{Error, Result};

/// A position in a block of metadata; reading past its end is an error, never a panic.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    what: &'static str,
}

impl<'a> Cursor<'a> {
    /// Reads `bytes`, which are part of `what` (for errors).
    pub(super) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { bytes, at: 0, what }
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count).ok_or_else(|| self.short())?;
        let taken = self.bytes.get(self.at..end).ok_or_else(|| self.short())?;
        self.at = end;
        Ok(taken)
    }

    pub(super) fn skip(&mut self, count: usize) -> Result<()> {
        self.take(count).map(|_| ())
    }

    /// An unsigned integer of `size` bytes, 8 at most.
    pub(super) fn uint(&mut self, size: usize) -> Result<u64> {
        if size > 8 {
            return Err(Error::Malformed(self.what));
        }
        let taken = self.take(size)?;
        Ok(taken.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(self.uint(1)? as u8)
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        Ok(self.uint(2)? as u16)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(self.uint(4)? as u32)
    }

    /// Fails unless the next bytes are `signature`.
    pub(super) fn signature(&mut self, signature: &[u8]) -> Result<()> {
        if self.take(signature.len())? == signature { Ok(()) } else { Err(Error::Malformed(self.what)) }
    }

    /// Bytes up to the next zero byte, which is skipped.
    pub(super) fn until_zero(&mut self) -> Result<&'a [u8]> {
        let length = self.rest().iter().position(|&b| b == 0).ok_or_else(|| self.short())?;
        let taken = self.take(length)?;
        self.skip(1)?;
        Ok(taken)
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    fn short(&self) -> Error {
        Error::Malformed(self.what)
    }
}

/// Text of a name or value: up to the first zero byte, trailing blanks removed.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_any_size_are_little_endian() {
        let mut cursor = Cursor::new(&[1, 2, 3, 4, 5], "a test");
        assert_eq!(cursor.uint(3).unwrap(), 0x03_02_01);
        assert!(cursor.uint(3).is_err());
        assert_eq!(cursor.u16().unwrap(), 0x05_04);
    }

    #[test]
    fn text_ends_at_zero() {
        assert_eq!(text(b"NXtomo\0\0\xff"), "NXtomo");
        assert_eq!(text(b"mm  "), "mm");
    }
}
