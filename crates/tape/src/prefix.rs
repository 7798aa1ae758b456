//! The forty bytes that every record begins with.

/// First bytes of every record.
const MAGIC: [u8; 4] = *b"BREC";
/// Bytes of a prefix.
pub(crate) const PREFIX_BYTES: usize = 40;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Series = 1,
    Block = 2,
    End = 3,
    Account = 4,
    Index = 5,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Series, Self::Block, Self::End, Self::Account, Self::Index]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// How long the parts of a record are, and their checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) kind: Kind,
    pub(crate) head_bytes: u32,
    pub(crate) head_crc: u32,
    pub(crate) payload_bytes: u64,
    pub(crate) time_ns: u64,
    pub(crate) payload_crc: u32,
}

impl Prefix {
    pub(crate) fn to_bytes(self) -> [u8; PREFIX_BYTES] {
        let mut bytes = [0; PREFIX_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[8..12].copy_from_slice(&self.head_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.head_crc.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.time_ns.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a prefix; says what is wrong with one that was never written so.
    pub(crate) fn from_bytes(bytes: &[u8; PREFIX_BYTES]) -> Result<Self, &'static str> {
        if bytes[..4] != MAGIC {
            return Err("another beginning than BREC");
        }
        let crc = u32_at(bytes, 36);
        if crc32c::crc32c(&bytes[..36]) != crc {
            return Err("a prefix that does not fit its checksum");
        }
        Ok(Self {
            kind: Kind::of(bytes[4]).ok_or("a kind that this version does not know")?,
            head_bytes: u32_at(bytes, 8),
            head_crc: u32_at(bytes, 12),
            payload_bytes: u64_at(bytes, 16),
            time_ns: u64_at(bytes, 24),
            payload_crc: u32_at(bytes, 32),
        })
    }
}

/// The little-endian number at `at`; whoever calls it knows that it is there, else it is 0.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The little-endian number at `at`; whoever calls it knows that it is there, else it is 0.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}
