//! A recorded scan as a very fast detector.

mod follow;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use beamstream_core::{Ledger, Pass, RoleCounts, Timestamps, Window};
use beamstream_node::prelude::*;

use crate::scan::pixels::{convert, native};
use crate::scan::{Scan, ScanError, ScanOptions};

/// Longest that a scan may be waited for.
const LONGEST_WAIT: Duration = Duration::from_hours(24 * 365);

/// Reads a recorded scan, from the files of many facilities.
///
/// NXtomo, DXchange, DECTRIS master files, BLISS, other HDF5 by dataset, TIFF, EDF, TXRM, HIS, MRC, Zarr, NumPy, raw
/// pixels by their layout, and folders of TIFF or EDF files. What the file is, is found by looking inside. Darks and
/// flats are sent before the projections, numbered as in the file; frames that are marked as invalid are left out.
///
/// ```yaml
/// version: 1
/// nodes:
///   scan:    { kind: scan_source, path: "scan.nxs", rows: "100:200" }
///   correct: { kind: flat_field, input: scan }
///   volume:  { kind: recon, input: correct }
///   keep:    { kind: hdf5_sink, input: volume, path: "volume.h5" }
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScanSourceConfig {
    /// The file or folder.
    pub path: PathBuf,
    /// Where the projections are, or all frames of a file with image keys: a dataset in the file, another file or
    /// folder, or `FILE:/dataset`; for bare pixels their layout, `raw:ROWSxCOLUMNS:TYPE` with `:offset=BYTES` and
    /// `:gap=BYTES` where they apply, for example `raw:2048x2560:u16:offset=1024`. Without it where the file's kind
    /// has them.
    #[serde(default)]
    pub data: Option<String>,
    /// Where the flats are, likewise.
    #[serde(default)]
    pub flats: Option<String>,
    /// Where the darks are, likewise.
    #[serde(default)]
    pub darks: Option<String>,
    /// Where the angles of the projections are: a dataset in the file, `FILE:/dataset`, or a text with one angle in
    /// degrees a line.
    #[serde(default)]
    pub angles: Option<String>,
    /// Detector rows to read, `"first:end"`, the end excluded. Without it all.
    #[serde(default)]
    pub rows: Option<IndexRange>,
    /// Detector columns to read, `"first:end"`, the end excluded. Without it all.
    #[serde(default)]
    pub columns: Option<IndexRange>,
    /// Pixels along each axis of which one is made, their mean; rows and columns that fill none are left out.
    #[serde(default = "one")]
    pub bin: usize,
    /// Rows, after binning, that are sent in one pass over the scan: for volumes that do not fit memory. Without it
    /// all.
    #[serde(default)]
    pub band_rows: Option<usize>,
    /// Follows a scan that is still being written, an HDF5 file or a folder that is being filled: frames are sent in
    /// the order of the file as they appear, and the scan ends when none has appeared for so long. Unit: seconds.
    #[serde(default)]
    pub follow_secs: Option<f64>,
}

fn one() -> usize {
    1
}

impl SourceConfig for ScanSourceConfig {
    const KIND: &'static str = "scan_source";
    type Source = ScanSource;

    fn build(self, _cx: &BuildContext) -> Result<ScanSource, BuildError> {
        if self.bin == 0 {
            return Err(BuildError::key("bin", "expected 1 or more, found 0"));
        }
        if self.band_rows == Some(0) {
            return Err(BuildError::key("band_rows", "expected 1 or more, found 0"));
        }
        let follow = match self.follow_secs {
            None => None,
            Some(secs) => {
                let patience = Duration::try_from_secs_f64(secs).ok();
                let patience = patience.filter(|patience| !patience.is_zero() && *patience <= LONGEST_WAIT);
                let expected = || format!("expected seconds above 0, up to a year, found {secs}");
                Some(patience.ok_or_else(|| BuildError::key("follow_secs", expected()))?)
            }
        };
        if follow.is_some() && self.band_rows.is_some() {
            let text = "a scan that is followed passes once: leave out band_rows or follow_secs";
            return Err(BuildError::key("band_rows", text));
        }
        Ok(ScanSource { config: self, follow, open: None })
    }
}

/// Out: frames `(row, column)` in the type of the file, or f32 if they are binned. Unit: counts.
pub struct ScanSource {
    config: ScanSourceConfig,
    /// How long to wait for further frames of a scan that is being written.
    follow: Option<Duration>,
    open: Option<OpenScan>,
}

/// A scan and the part of it that is sent.
struct OpenScan {
    scan: Scan,
    /// Detector rows and columns, a multiple of the bin.
    rows: Range<usize>,
    columns: Range<usize>,
    bin: usize,
    /// Frames in the order in which they are sent.
    order: Vec<Sent>,
    stored: Vec<u8>,
    values: Vec<f32>,
}

/// A frame to send.
struct Sent {
    /// Its position in the scan.
    frame: usize,
    id: FrameId,
    role: Role,
    projection: u64,
    angle_rad: Option<f64>,
}

impl ScanSource {
    fn open(&mut self) -> Result<&mut OpenScan, NodeError> {
        let open = match self.open.take() {
            Some(open) => open,
            None => OpenScan::new(&self.config)?,
        };
        Ok(self.open.insert(open))
    }

    /// Rows of each pass.
    fn band_rows(&self, total: usize) -> usize {
        self.config.band_rows.unwrap_or(total).clamp(1, total)
    }
}

impl OpenScan {
    fn new(config: &ScanSourceConfig) -> Result<Self, NodeError> {
        let ScanSourceConfig { path, data, flats, darks, angles, .. } = config.clone();
        let options = ScanOptions { data, flats, darks, angles };
        let is_growing = config.follow_secs.is_some();
        let scan = if is_growing { Scan::open_growing(&path, &options) } else { Scan::open(&path, &options) };
        let scan = scan.map_err(|error| unreadable(NodeErrorKind::Config, error))?;
        let shape = scan.info().format.shape;
        let part = |what, range: Option<IndexRange>, extent: usize| {
            let chosen = range.map_or(Some(0..extent), |range| range.within(extent));
            let chosen = chosen.ok_or_else(|| {
                let range = range.map(|range| range.to_string()).unwrap_or_default();
                NodeError::config(format!(
                    "{what} {range} end beyond the {extent} {what} of {}",
                    path.display()
                ))
            })?;
            let binned = chosen.len() / config.bin;
            if binned == 0 {
                let (bin, len) = (config.bin, chosen.len());
                return Err(NodeError::config(format!(
                    "a bin of {bin} is more than the {len} {what} of {}",
                    path.display()
                )));
            }
            Ok(chosen.start..chosen.start + binned * config.bin)
        };
        let rows = part("rows", config.rows, shape.rows)?;
        let columns = part("columns", config.columns, shape.columns)?;
        let order = sending_order(&scan, !is_growing);
        Ok(Self { scan, rows, columns, bin: config.bin, order, stored: Vec::new(), values: Vec::new() })
    }

    /// Rows that are sent, all passes together.
    fn total_rows(&self) -> usize {
        self.rows.len() / self.bin
    }

    /// The header of a pass over `rows` of the rows that are sent.
    fn header(&self, index: usize, count: usize, rows: &Range<usize>) -> SeriesHeader {
        let info = self.scan.info();
        let element = if self.bin > 1 { ElementType::F32 } else { info.format.element };
        let format = Format::frame(element, rows.len(), self.columns.len() / self.bin);
        let count_of = |role| info.count(role) as u64;
        let mut header = SeriesHeader::frames(SeriesId { number: 0, ordinal: 0 }, format);
        header.window = Window {
            first_row: self.rows.start + rows.start * self.bin,
            first_column: self.columns.start,
            bin: self.bin,
        };
        header.pass = Pass { index, count, first_row: rows.start, total_rows: self.total_rows() };
        header.expected_frames = Some(self.order.len() as u64);
        header.roles = Some(RoleCounts {
            darks: count_of(Role::Dark),
            flats: count_of(Role::Flat),
            projections: count_of(Role::Projection),
            references_first: true,
        });
        let angles =
            self.order.iter().filter(|sent| sent.role == Role::Projection).filter_map(|sent| sent.angle_rad);
        header.angles_rad = Some(angles.collect::<Arc<[f64]>>());
        header.pixel_size_m = info.pixel_size_m;
        header.metadata = Arc::new(serde_json::json!({
            "path": info.path,
            "kind": info.kind,
            "values": info.metadata,
        }));
        header
    }

    /// Reads `rows` of the rows that are sent into `lease`.
    fn read(&mut self, frame: usize, rows: &Range<usize>, out: &mut [u8]) -> Result<(), ScanError> {
        let format = self.scan.info().format;
        let (element, width) = (format.element, format.shape.columns);
        let detector_rows = self.rows.start + rows.start * self.bin..self.rows.start + rows.end * self.bin;
        if self.bin == 1 && self.columns == (0..width) {
            return self.scan.read(frame, detector_rows, out);
        }
        let row_bytes = width * element.size();
        self.stored.resize(detector_rows.len() * row_bytes, 0);
        self.scan.read(frame, detector_rows, &mut self.stored)?;
        let columns = self.columns.start * element.size()..self.columns.end * element.size();
        let lines = self.stored.chunks_exact(row_bytes).map(|line| &line[columns.clone()]);
        if self.bin == 1 {
            for (line, to) in lines.zip(out.chunks_exact_mut(columns.len())) {
                to.copy_from_slice(line);
            }
        } else {
            bin_lines(lines, element, self.bin, &mut self.values, out);
        }
        Ok(())
    }
}

/// Means of `bin` x `bin` pixels, written as `f32`.
fn bin_lines<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    element: ElementType,
    bin: usize,
    values: &mut Vec<f32>,
    out: &mut [u8],
) {
    let mut line_sums: Vec<f32> = Vec::new();
    let mut targets = out.chunks_exact_mut(4);
    for (number, line) in lines.enumerate() {
        values.resize(line.len() / element.size(), 0.0);
        convert(native(element), line, ElementType::F32, bytemuck::cast_slice_mut(values));
        if number % bin == 0 {
            line_sums.clear();
            line_sums.resize(values.len() / bin, 0.0);
        }
        for (sum, pixels) in line_sums.iter_mut().zip(values.chunks_exact(bin)) {
            *sum += pixels.iter().sum::<f32>();
        }
        if number % bin == bin - 1 {
            for (sum, to) in line_sums.iter().zip(&mut targets) {
                to.copy_from_slice(&(sum / (bin * bin) as f32).to_ne_bytes());
            }
        }
    }
}

/// Darks and flats first, so that projections can be corrected as they come, unless the file's own order is asked for;
/// numbers are those of the file.
fn sending_order(scan: &Scan, references_first: bool) -> Vec<Sent> {
    let mut projections = 0;
    let used = scan.info().frames.iter().enumerate().filter(|(_, entry)| entry.role != Role::Invalid);
    let mut order: Vec<Sent> = used
        .enumerate()
        .map(|(number, (frame, entry))| {
            let is_projection = entry.role == Role::Projection;
            let projection = if is_projection { projections } else { 0 };
            projections += u64::from(is_projection);
            let angle_rad = entry.angle_deg.map(f64::to_radians);
            Sent { frame, id: FrameId::new(number as u64), role: entry.role, projection, angle_rad }
        })
        .collect();
    if references_first {
        order.sort_by_key(|sent| sent.role == Role::Projection);
    }
    order
}

impl Source for ScanSource {
    fn header(&mut self) -> Result<Option<SeriesHeader>, NodeError> {
        // A scan that is being written may not even be there yet.
        if self.follow.is_some() {
            return Ok(None);
        }
        let total = self.open()?.total_rows();
        let band = self.band_rows(total);
        let open = self.open()?;
        Ok(Some(open.header(0, total.div_ceil(band), &(0..band))))
    }

    fn buffers(&self, _header: &SeriesHeader) -> usize {
        1
    }

    fn memory_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, |open| {
            let is_direct = open.bin == 1 && open.columns.len() == open.scan.info().format.shape.columns;
            let scratch = if is_direct { 0 } else { open.scan.info().format.bytes() };
            open.scan.memory_bytes() + scratch
        })
    }

    fn run(&mut self, out: &mut Outlet) -> Result<(), NodeError> {
        if let Some(patience) = self.follow {
            return self.follow(patience, out);
        }
        let started = Instant::now();
        let total = self.open()?.total_rows();
        let band = self.band_rows(total);
        let passes = total.div_ceil(band);
        let open = self.open()?;
        for warning in &open.scan.info().warnings {
            out.journal().warn(format!("{}: {warning}", open.scan.info().path.display()));
        }
        for index in 0..passes {
            let rows = index * band..total.min((index + 1) * band);
            let header = open.header(index, passes, &rows);
            let id = header.id;
            let mut ledger = Ledger::new(header.expected_frames);
            let format = header.format;
            out.begin(header, 1)?;
            for position in 0..open.order.len() {
                if out.is_draining() {
                    break;
                }
                let mut lease = out.lease(format)?;
                let frame = open.order[position].frame;
                open.read(frame, &rows, lease.bytes_mut())
                    .map_err(|error| unreadable(NodeErrorKind::Io, error))?;
                let sent = &open.order[position];
                let mut meta = BlockMeta::new(sent.id, sent.role);
                meta.projection = sent.projection;
                meta.angle_rad = sent.angle_rad;
                meta.time =
                    Timestamps { detector_secs: None, received_ns: started.elapsed().as_nanos() as u64 };
                ledger.receive(sent.id);
                out.push(lease.freeze(meta))?;
            }
            let counts = ledger.counts();
            let aborted = !ledger.all_accepted();
            let now = Instant::now();
            out.journal().series(id, |record| {
                record.counts = counts.clone();
                record.first_frame.get_or_insert(started);
                record.last_frame = Some(now);
                record.aborted |= aborted;
            });
            out.end(SeriesSummary { counts, aborted })?;
            if aborted {
                break;
            }
        }
        Ok(())
    }
}

fn unreadable(kind: NodeErrorKind, error: ScanError) -> NodeError {
    NodeError::because(kind, "the scan cannot be used", error)
}

#[cfg(test)]
mod tests;
