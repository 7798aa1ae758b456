//! The few items of CBOR that a detector writes.

/// A CBOR text under construction.
///
/// # Source
/// RFC 8949, section 3: a head of major type and argument, then the content.
#[derive(Debug, Default)]
pub(crate) struct Cbor(Vec<u8>);

impl Cbor {
    /// Starts with room for `bytes`, so that a big payload is copied once.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(crate) fn unsigned(&mut self, value: u64) -> &mut Self {
        self.head(0, value)
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.head(2, value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.head(3, value.len() as u64);
        self.0.extend_from_slice(value.as_bytes());
        self
    }

    /// Opens an array; `len` items follow.
    pub(crate) fn array(&mut self, len: u64) -> &mut Self {
        self.head(4, len)
    }

    /// Opens a map; `len` pairs of key and value follow.
    pub(crate) fn map(&mut self, len: u64) -> &mut Self {
        self.head(5, len)
    }

    pub(crate) fn tag(&mut self, tag: u64) -> &mut Self {
        self.head(6, tag)
    }

    pub(crate) fn float(&mut self, value: f64) -> &mut Self {
        self.0.push(0xFB);
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    /// Writes the shortest head for the argument.
    fn head(&mut self, major: u8, argument: u64) -> &mut Self {
        let major = major << 5;
        let bytes = argument.to_be_bytes();
        match argument {
            0..24 => self.0.push(major | bytes[7]),
            24..0x100 => self.0.extend_from_slice(&[major + 24, bytes[7]]),
            0x100..0x1_0000 => self.0.extend_from_slice(&[major + 25, bytes[6], bytes[7]]),
            0x1_0000..0x1_0000_0000 => {
                self.0.push(major + 26);
                self.0.extend_from_slice(&bytes[4..]);
            }
            _ => {
                self.0.push(major + 27);
                self.0.extend_from_slice(&bytes);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(write: impl FnOnce(&mut Cbor)) -> String {
        let mut cbor = Cbor::default();
        write(&mut cbor);
        let digits = b"0123456789abcdef";
        let pair = |byte: &u8| [byte >> 4, byte & 15].map(|half| char::from(digits[usize::from(half)]));
        cbor.finish().iter().flat_map(pair).collect()
    }

    /// The examples of RFC 8949, appendix A.
    #[test]
    fn items_are_written_as_in_the_standard() {
        let unsigned = [
            (0, "00"),
            (23, "17"),
            (24, "1818"),
            (1000, "1903e8"),
            (1_000_000, "1a000f4240"),
            (1_000_000_000_000, "1b000000e8d4a51000"),
        ];
        for (value, expected) in unsigned {
            assert_eq!(hex(|c| _ = c.unsigned(value)), expected);
        }
        assert_eq!(hex(|c| _ = c.float(1.1)), "fb3ff199999999999a");
        assert_eq!(hex(|c| _ = c.bytes(&[1, 2, 3, 4])), "4401020304");
        assert_eq!(hex(|c| _ = c.text("IETF")), "6449455446");
        assert_eq!(hex(|c| _ = c.map(1).text("a").array(2).unsigned(1).unsigned(2)), "a16161820102");
        assert_eq!(hex(|c| _ = c.tag(55799)), "d9d9f7");
    }
}
