//! What all sinks do: one output for each series, whatever the kind of file.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use beamstream_node::prelude::*;
use beamstream_ops::{Backend, OUTPUT_TYPES};
use serde_json::{Value, json};

use super::path::{PathTemplate, unused};
use crate::output::{Output, OutputError, OutputKind, OutputSpec, PROGRAM, VERSION, create_output, is_free};

/// Settings that the kinds of sinks share.
pub(super) struct SinkSettings {
    pub(super) path: String,
    pub(super) dtype: Option<ElementType>,
    pub(super) range: Option<String>,
    pub(super) overwrite: bool,
    /// The kind of output that a path stands for.
    pub(super) kind_of: fn(&Path) -> OutputKind,
}

/// Writes volumes and frames to files that appear only when they are whole.
///
/// A volume of which slices are missing at the end is not kept; of frames, those that came are.
pub struct FileSink {
    path: PathTemplate,
    element: Option<ElementType>,
    range: [f32; 2],
    overwrite: bool,
    kind_of: fn(&Path) -> OutputKind,
    node: String,
    date: String,
    ops: Arc<dyn Backend>,
    /// Paths of this run.
    written: HashSet<PathBuf>,
    series: Option<OpenSeries>,
}

/// The output of the series that is under way, through all its passes.
struct OpenSeries {
    header: SeriesHeader,
    path: PathBuf,
    /// Begun by the first block, so that a series without one leaves no file.
    output: Option<Box<dyn Output>>,
    /// One buffer for blocks that are written in another type.
    converted: Option<Pool>,
    blocks: u64,
    /// The latest parameters that a block was made with.
    epoch: u32,
}

impl FileSink {
    pub(super) fn new(settings: SinkSettings, cx: &BuildContext) -> Result<Self, BuildError> {
        let SinkSettings { path, dtype, range, overwrite, kind_of } = settings;
        let path = PathTemplate::new(&path).map_err(|text| BuildError::key("path", text))?;
        if let Some(element) = dtype.filter(|element| !OUTPUT_TYPES.contains(element)) {
            let known = OUTPUT_TYPES.map(ElementType::name).join(", ");
            return Err(BuildError::key("dtype", format!("expected one of {known}, found {element}")));
        }
        let is_integer = dtype.is_some_and(|element| element.integer_max().is_some());
        let range = match range {
            Some(range) => parse_range(&range).map_err(|text| BuildError::key("range", text))?,
            None if is_integer => {
                return Err(BuildError::key("range", "integers need a range LO:HI, found none"));
            }
            None => [0.0, 1.0],
        };
        Ok(Self {
            path,
            element: dtype,
            range,
            overwrite: overwrite || cx.overwrite,
            kind_of,
            node: cx.node.clone(),
            date: cx.date.clone(),
            ops: cx.ops.clone(),
            written: HashSet::new(),
            series: None,
        })
    }

    /// The format in which blocks are written.
    fn written_format(&self, format: Format) -> Format {
        self.element.map_or(format, |element| format.with_element(element))
    }

    fn create(&self, series: &OpenSeries) -> Result<Box<dyn Output>, NodeError> {
        let header = &series.header;
        let is_volume = header.content == Content::Volume;
        let spec = OutputSpec {
            path: series.path.clone(),
            overwrite: self.overwrite,
            content: header.content,
            format: self.written_format(header.format),
            count: is_volume.then_some(header.pass.total_rows as u64),
            first_number: if is_volume { header.detector_row(0) } else { 0 },
        };
        create_output((self.kind_of)(&series.path), &spec).map_err(output_failed)
    }

    /// How the data were made.
    fn provenance(&self, series: &OpenSeries, summary: &SeriesSummary, out: &Outlet) -> Value {
        let header = &series.header;
        let records = out.journal().all_series();
        let record = records.iter().find(|record| record.id == header.id);
        json!({
            "program": PROGRAM,
            "version": VERSION,
            "date": self.date,
            "node": self.node,
            "series": header.id.number,
            "epoch": series.epoch,
            "rotation_axis_px": record.and_then(|record| record.rotation_axis_px).or(header.rotation_axis_px),
            "pixel_size_m": header.pixel_size_m,
            "voxel_size_m": header.pixel_size_m.map(|metres| metres * header.window.bin as f64),
            "window": header.window,
            "complete": summary.is_complete(),
            "frames": summary.counts,
            "range": self.element.filter(|element| element.integer_max().is_some()).map(|_| self.range),
            "source": *header.metadata,
        })
    }
}

impl Node for FileSink {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        let element = header.format.element;
        if let Some(wanted) = self.element.filter(|wanted| *wanted != element)
            && element != ElementType::F32
        {
            return Err(NodeError::config(format!("expected f32 to write {wanted}, found {element}")));
        }
        if header.content == Content::Frames && header.pass.count > 1 {
            let passes = header.pass.count;
            return Err(NodeError::config(format!(
                "frames are written in one pass over their rows, not in {passes}"
            )));
        }
        let mut agreed = Negotiated::unchanged(header);
        agreed.memory_bytes = self.element.map_or(0, |element| header.format.with_element(element).bytes());
        Ok(agreed)
    }

    fn begin(&mut self, header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        if !header.pass.is_first() && self.series.is_some() {
            return Ok(());
        }
        let path = unused(&self.path.expand(header.id.number, &self.date, &self.node), &self.written);
        // Said now, not after an hour of computing.
        is_free((self.kind_of)(&path), &path, self.overwrite).map_err(output_failed)?;
        let converted = match self.element.filter(|element| *element != header.format.element) {
            Some(element) => Some(Pool::host(&self.node, 1, header.format.with_element(element).bytes())?),
            None => None,
        };
        self.series =
            Some(OpenSeries { header: header.clone(), path, output: None, converted, blocks: 0, epoch: 0 });
        Ok(())
    }

    fn process(&mut self, block: Block, _out: &mut Outlet) -> Result<(), NodeError> {
        let Some(mut series) = self.series.take() else {
            return Err(NodeError::new(NodeErrorKind::Internal, "a block came outside a series"));
        };
        let mut output = if let Some(output) = series.output.take() {
            output
        } else {
            self.written.insert(series.path.clone());
            self.create(&series)?
        };
        series.epoch = series.epoch.max(block.meta.epoch);
        let id = match series.header.content {
            Content::Volume => FrameId::new(series.header.detector_row(block.meta.frame.number)),
            Content::Frames => block.meta.frame,
        };
        match &series.converted {
            None => output.write(id, block.bytes()),
            Some(pool) => {
                let mut lease = pool.lease(self.written_format(block.format()))?;
                let converted = self.ops.rescale(&block, self.range, &mut lease);
                converted.map_err(|error| {
                    NodeError::because(NodeErrorKind::Internal, "conversion failed", error)
                })?;
                output.write(id, lease.freeze(block.meta).bytes())
            }
        }
        .map_err(output_failed)?;
        series.blocks += 1;
        series.output = Some(output);
        self.series = Some(series);
        Ok(())
    }

    fn end(&mut self, summary: &SeriesSummary, out: &mut Outlet) -> Result<(), NodeError> {
        let Some(mut series) = self.series.take() else {
            return Ok(());
        };
        let is_last = out.header().is_none_or(|header| header.pass.is_last());
        if !is_last && !summary.aborted {
            self.series = Some(series);
            return Ok(());
        }
        let Some(output) = series.output.take() else {
            return Ok(());
        };
        let slices = series.header.pass.total_rows as u64;
        if series.header.content == Content::Volume && series.blocks < slices {
            let (path, blocks) = (series.path.display(), series.blocks);
            out.journal().warn(format!("only {blocks} of {slices} slices came: {path} is not kept"));
            return Ok(());
        }
        let provenance = self.provenance(&series, summary, out);
        output.finish(&provenance).map_err(output_failed)
    }
}

/// What is in the way at the place is the user's to change; what the system refuses is a failure of the sink.
fn output_failed(error: OutputError) -> NodeError {
    let kind = match error {
        OutputError::Io { .. } => NodeErrorKind::Io,
        OutputError::BlockSize { .. } | OutputError::OutOfRange { .. } => NodeErrorKind::Internal,
        _ => NodeErrorKind::Config,
    };
    NodeError::because(kind, "the output failed", error)
}

/// `LO:HI`, LO below HI.
fn parse_range(text: &str) -> Result<[f32; 2], String> {
    let bound = |part: &str| part.trim().parse().ok().filter(|value: &f32| value.is_finite());
    let bounds = text.split_once(':').and_then(|(low, high)| Some([bound(low)?, bound(high)?]));
    bounds.filter(|[low, high]| low < high).ok_or_else(|| {
        format!("'{text}' is no range of values: expected LO:HI with LO below HI, for example 0:0.05")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::{Hdf5SinkConfig, NpySinkConfig, RawSinkConfig, TiffSinkConfig};
    use beamstream_core::{Pass, Window};
    use beamstream_testkit::Harness;
    use std::fs;

    fn slices(rows: usize, first_row: usize) -> SeriesHeader {
        let id = SeriesId { number: 7, ordinal: 0 };
        let mut header = SeriesHeader::frames(id, Format::slice(ElementType::F32, 2));
        header.content = Content::Volume;
        header.window = Window { first_row, ..Window::default() };
        header.pass = Pass::whole(rows);
        header
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn slices_are_numbered_by_detector_row() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("{series}/slices");
        let mut node = Harness::<TiffSinkConfig>::new(json!({ "path": path })).with_header(slices(3, 2));
        node.series(&[1.0, 2.0, 3.0]);
        let expected = ["provenance.json", "slice_00002.tif", "slice_00003.tif", "slice_00004.tif"];
        assert_eq!(names(&folder.path().join("7/slices")), expected);
    }

    #[test]
    fn values_are_stretched_over_the_integers() {
        let folder = tempfile::tempdir().unwrap();
        let settings = json!({ "path": folder.path().join("v.raw"), "dtype": "u8", "range": "0:2" });
        let mut node = Harness::<RawSinkConfig>::new(settings).with_header(slices(3, 0));
        node.series(&[-1.0, 1.0, 9.0]);
        let expected = [[0_u8; 4], [128; 4], [255; 4]].concat();
        assert_eq!(fs::read(folder.path().join("v.raw")).unwrap(), expected);
    }

    #[test]
    fn a_second_series_of_the_same_run_gets_a_path_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut node = Harness::<NpySinkConfig>::new(json!({ "path": folder.path().join("v.npy") }));
        node.series(&[1.0]);
        node.series(&[]);
        node.series(&[2.0]);
        assert_eq!(names(folder.path()), ["v-2.npy", "v.npy"], "the series without a frame has no file");
    }

    #[test]
    fn what_exists_is_refused_before_the_first_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("v.h5");
        fs::write(&path, b"precious").unwrap();
        let error = Harness::<Hdf5SinkConfig>::new(json!({ "path": path })).begin().unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::Config);
        assert!(
            error.full_text().contains("v.h5") && error.full_text().contains("--overwrite"),
            "{}",
            error.full_text()
        );
        let mut node = Harness::<Hdf5SinkConfig>::new(json!({ "path": path, "overwrite": true }));
        node.series(&[1.0]);
        assert_ne!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_volume_with_missing_slices_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let settings = json!({ "path": folder.path().join("v.h5") });
        let mut node = Harness::<Hdf5SinkConfig>::new(settings).with_header(slices(3, 0));
        node.series(&[1.0, 2.0]);
        assert!(names(folder.path()).is_empty());
        assert!(node.warnings()[0].contains("2 of 3 slices"), "{:?}", node.warnings());
    }

    #[test]
    fn passes_over_the_rows_make_one_volume() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("v.raw");
        let mut node = Harness::<RawSinkConfig>::new(json!({ "path": path }));
        for index in 0..2 {
            let mut header = slices(2, 10 + 2 * index);
            header.pass = Pass { index, count: 2, first_row: 2 * index, total_rows: 4 };
            node = node.with_header(header);
            node.begin().unwrap();
            for z in [2 * index + 1, 2 * index] {
                let meta = BlockMeta::new(FrameId::new(z as u64), Role::Projection);
                node.feed(meta, &[z as f32; 4]).unwrap();
            }
            node.end().unwrap();
        }
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(&fs::read(path).unwrap());
        assert_eq!(values, [[0.0; 4], [1.0; 4], [2.0; 4], [3.0; 4]].concat());
    }

    #[test]
    fn unusable_settings_are_named() {
        let refusal = |settings| Harness::<TiffSinkConfig>::refusal(settings);
        assert!(refusal(json!({ "path": "{x}" })).contains("{x}"));
        assert!(refusal(json!({ "path": "v", "dtype": "u8" })).contains("range"));
        assert!(refusal(json!({ "path": "v", "dtype": "u8", "range": "2:1" })).contains("2:1"));
        assert!(refusal(json!({ "path": "v", "dtype": "i32" })).contains("i32"));
        let node = Harness::<TiffSinkConfig>::new(json!({ "path": "v", "dtype": "f16" }));
        let counts =
            SeriesHeader::frames(SeriesId { number: 1, ordinal: 0 }, Format::frame(ElementType::U16, 2, 2));
        assert!(node.with_header(counts).negotiate().is_err());
    }
}
