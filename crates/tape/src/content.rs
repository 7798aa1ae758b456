//! What records say: the heads of series, blocks and ends.

use std::borrow::Cow;
use std::sync::Arc;

use beamstream_core::{
    Axes, BlockMeta, Content as HeaderContent, ElementType, Format, FrameCounts, FrameId, Pass, Role,
    RoleCounts, SeriesHeader, SeriesId, SeriesSummary, Shape, Timestamps, Window,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::prefix::{Kind, u32_at, u64_at};

/// Bytes of the head of a block.
const BLOCK_HEAD_BYTES: usize = 64;
/// Flag: the angle is known.
const HAS_ANGLE: u8 = 1;
/// Flag: the detector told when the frame was exposed.
const HAS_DETECTOR_TIME: u8 = 2;

/// What is written.
#[derive(Debug, Clone, Copy)]
pub enum Record<'a> {
    /// A series begins.
    Series(&'a SeriesHeader),
    /// A block of the series that began last.
    Block {
        /// What travels with it.
        meta: &'a BlockMeta,
        /// What it holds.
        format: Format,
        /// Its bytes, as many as the format says.
        pixels: &'a [u8],
    },
    /// The series that began last ends.
    End(&'a SeriesSummary),
    /// What the account of a series came to in the end, where that differs from its `End`: by frames that came late.
    Account {
        /// Which series.
        id: SeriesId,
        /// Its account.
        summary: &'a SeriesSummary,
    },
    /// Where the series begin; written by the writer itself.
    Index(&'a [u8]),
}

/// What was read; pixels are read apart.
#[derive(Debug, Clone)]
pub enum Content {
    /// A series begins.
    Series(Box<SeriesHeader>),
    /// A block of the series that began last.
    Block {
        /// What travels with it.
        meta: BlockMeta,
        /// What it holds.
        format: Format,
    },
    /// The series that began last ends.
    End(Box<SeriesSummary>),
    /// What the account of a series came to in the end.
    Account {
        /// Which series.
        id: SeriesId,
        /// Its account.
        summary: Box<SeriesSummary>,
    },
    /// The end of the tape.
    Index,
}

/// [`SeriesHeader`] without its angles, which are the payload.
#[derive(Serialize, Deserialize)]
struct SeriesHead {
    id: SeriesId,
    content: HeaderContent,
    format: Format,
    window: Window,
    pass: Pass,
    expected_frames: Option<u64>,
    roles: Option<RoleCounts>,
    has_angles: bool,
    rotation_axis_px: Option<f64>,
    pixel_size_m: Option<f64>,
    epoch: u32,
    metadata: Value,
}

#[derive(Serialize, Deserialize)]
struct EndHead {
    /// Which series; only in an account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<SeriesId>,
    counts: FrameCounts,
    unreplaced: u64,
    aborted: bool,
}

impl EndHead {
    fn new(id: Option<SeriesId>, summary: &SeriesSummary) -> Self {
        let counts = summary.counts.clone();
        Self { id, unreplaced: counts.unreplaced, counts, aborted: summary.aborted }
    }

    fn summary(self) -> SeriesSummary {
        SeriesSummary {
            counts: FrameCounts { unreplaced: self.unreplaced, ..self.counts },
            aborted: self.aborted,
        }
    }
}

impl<'a> Record<'a> {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Series(_) => Kind::Series,
            Self::Block { .. } => Kind::Block,
            Self::End(_) => Kind::End,
            Self::Account { .. } => Kind::Account,
            Self::Index(_) => Kind::Index,
        }
    }

    /// Adds the head to `head`.
    pub(crate) fn write_head(&self, head: &mut Vec<u8>) -> std::io::Result<()> {
        match self {
            Self::Series(header) => serde_json::to_writer(head, &series_head(header))?,
            Self::Block { meta, format, .. } => head.extend_from_slice(&block_head(meta, *format)?),
            Self::End(summary) => serde_json::to_writer(head, &EndHead::new(None, summary))?,
            Self::Account { id, summary } => serde_json::to_writer(head, &EndHead::new(Some(*id), summary))?,
            Self::Index(_) => {}
        }
        Ok(())
    }

    pub(crate) fn payload(&self) -> Cow<'a, [u8]> {
        match self {
            Self::Series(header) => {
                let angles = header.angles_rad.iter().flat_map(|angles| angles.iter());
                angles.flat_map(|angle| angle.to_le_bytes()).collect::<Vec<u8>>().into()
            }
            Self::Block { pixels, .. } => Cow::Borrowed(pixels),
            Self::Index(entries) => Cow::Borrowed(entries),
            Self::End(_) | Self::Account { .. } => Cow::Borrowed(&[]),
        }
    }
}

fn series_head(header: &SeriesHeader) -> SeriesHead {
    SeriesHead {
        id: header.id,
        content: header.content,
        format: header.format,
        window: header.window,
        pass: header.pass,
        expected_frames: header.expected_frames,
        roles: header.roles,
        has_angles: header.angles_rad.is_some(),
        rotation_axis_px: header.rotation_axis_px,
        pixel_size_m: header.pixel_size_m,
        epoch: header.epoch,
        metadata: (*header.metadata).clone(),
    }
}

/// The header that a head and its payload tell; says what is wrong with them.
pub(crate) fn read_series(head: &[u8], payload: &[u8]) -> Result<SeriesHeader, &'static str> {
    let head: SeriesHead =
        serde_json::from_slice(head).map_err(|_error| "a header of a series that cannot be read")?;
    if head.format.checked_bytes().is_none() {
        return Err("blocks larger than any memory");
    }
    let (angles, rest) = payload.as_chunks::<8>();
    if !rest.is_empty() {
        return Err("a part of an angle");
    }
    let angles: Arc<[f64]> = angles.iter().map(|angle| f64::from_le_bytes(*angle)).collect();
    Ok(SeriesHeader {
        id: head.id,
        content: head.content,
        format: head.format,
        window: head.window,
        pass: head.pass,
        expected_frames: head.expected_frames,
        roles: head.roles,
        angles_rad: head.has_angles.then_some(angles),
        rotation_axis_px: head.rotation_axis_px,
        pixel_size_m: head.pixel_size_m,
        epoch: head.epoch,
        metadata: Arc::new(head.metadata),
    })
}

/// The account that a head tells, and of which series.
pub(crate) fn read_end(head: &[u8]) -> Result<(Option<SeriesId>, Box<SeriesSummary>), &'static str> {
    let head: EndHead = serde_json::from_slice(head).map_err(|_error| "an account that cannot be read")?;
    Ok((head.id, Box::new(head.summary())))
}

fn block_head(meta: &BlockMeta, format: Format) -> std::io::Result<[u8; BLOCK_HEAD_BYTES]> {
    let extent = |extent: usize| {
        u32::try_from(extent)
            .map_err(|_error| std::io::Error::other("a block of more than 2^32 rows or columns"))
    };
    let mut head = [0; BLOCK_HEAD_BYTES];
    head[..8].copy_from_slice(&meta.frame.number.to_le_bytes());
    head[8] = meta.frame.counter;
    head[9] = meta.role.image_key();
    head[10] = position(&ElementType::ALL, format.element);
    head[11] = position(&AXES, format.axes);
    head[12] = if meta.angle_rad.is_some() { HAS_ANGLE } else { 0 }
        | if meta.time.detector_secs.is_some() { HAS_DETECTOR_TIME } else { 0 };
    head[16..20].copy_from_slice(&meta.epoch.to_le_bytes());
    head[24..32].copy_from_slice(&meta.projection.to_le_bytes());
    head[32..40].copy_from_slice(&meta.angle_rad.unwrap_or_default().to_le_bytes());
    head[40..48].copy_from_slice(&meta.time.detector_secs.unwrap_or_default().to_le_bytes());
    head[48..56].copy_from_slice(&meta.time.received_ns.to_le_bytes());
    head[56..60].copy_from_slice(&extent(format.shape.rows)?.to_le_bytes());
    head[60..64].copy_from_slice(&extent(format.shape.columns)?.to_le_bytes());
    Ok(head)
}

/// What a block's head tells; says what is wrong with it.
pub(crate) fn read_block(head: &[u8]) -> Result<(BlockMeta, Format), &'static str> {
    if head.len() != BLOCK_HEAD_BYTES {
        return Err("a head of another length than that of blocks");
    }
    let role = Role::from_image_key(f64::from(head[9])).ok_or("a role that this version does not know")?;
    let element = ElementType::ALL.get(usize::from(head[10])).ok_or("an unknown type of pixel")?;
    let axes = AXES.get(usize::from(head[11])).ok_or("unknown axes")?;
    let number = |at| u64_at(head, at);
    let mut meta = BlockMeta::new(FrameId { counter: head[8], number: number(0) }, role);
    meta.epoch = u32_at(head, 16);
    meta.projection = number(24);
    meta.angle_rad = (head[12] & HAS_ANGLE != 0).then(|| f64::from_bits(number(32)));
    let detector_secs = (head[12] & HAS_DETECTOR_TIME != 0).then(|| f64::from_bits(number(40)));
    meta.time = Timestamps { detector_secs, received_ns: number(48) };
    let shape = Shape::new(u32_at(head, 56) as usize, u32_at(head, 60) as usize);
    Ok((meta, Format { element: *element, axes: *axes, shape }))
}

/// The axes in the order of their numbers on tapes.
const AXES: [Axes; 3] = [Axes::Frame, Axes::Sinogram, Axes::Slice];

/// The number of a value on tapes; all values are listed.
fn position<T: PartialEq + Copy>(all: &[T], value: T) -> u8 {
    all.iter().position(|listed| *listed == value).map_or(u8::MAX, |at| at as u8)
}
