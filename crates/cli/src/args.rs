//! The command line. Its doc comments are what `--help` says.
#![allow(clippy::doc_markdown, reason = "help is plain text: markup would be seen")]

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use beamstream::{
    AXIS_METHOD, Device, ElementType, Filter, IndexRange, Method, Options, OutputRange, Padding,
    RotationAxisChoice, parse_bytes,
};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::parse;

const EXAMPLES: &str = "\
Examples:
  beamstream demo
  beamstream recon scan.nxs -o volume.h5
  beamstream run pipeline.yaml --set detector.endpoint=tcp://10.0.0.5:9999 --report report.json
  beamstream launch 'zmq endpoint=tcp://127.0.0.1:9999 ! flat_field ! recon ! tiff path=out'
  beamstream inspect scan.nxs
  beamstream nodes recon

Exit codes:
  0    done and complete
  1    internal error
  2    wrong usage, configuration or unreadable input
  3    finished, but the data are incomplete: outputs are written and say so
  4    a source or sink failed for good
  130  stopped by the user: Ctrl-C once finishes what is under way, twice stops at once";

const RECON_EXAMPLES: &str = "\
Examples:
  beamstream recon scan.nxs -o volume.h5
  beamstream recon scan.h5 -o slices --rows 500:520 --rotation-axis 1021.5
  beamstream recon projections/ -o v.tif --flats flats/ --darks darks/ --angles angles.txt
  beamstream recon scan.nxs -o v.tif --dtype u16 --range p0.1:p99.9";

const RUN_EXAMPLES: &str = "\
Examples:
  beamstream run pipeline.yaml
  beamstream run pipeline.yaml --set volume.rotation_axis=1021.5 --report report.json
  beamstream run pipeline.yaml --view 127.0.0.1:8088";

const LAUNCH_EXAMPLES: &str = "\
Examples:
  beamstream launch 'zmq endpoint=tcp://127.0.0.1:9999 ! flat_field ! recon ! tiff path=out'
  beamstream launch 'phantom size=128 angles=200 ! flat_field ! recon ! [view, npy path=v.npy]'";

const REPLAY_EXAMPLES: &str = "\
Examples:
  beamstream replay night.tape
  beamstream replay night.tape --speed 0 -p pipeline.yaml --set volume.rotation_axis=1021.5";

const CONVERT_EXAMPLES: &str = "\
Examples:
  beamstream convert scan.h5 scan.nxs
  beamstream convert projections/ scan.nxs --flats flats/ --darks darks/ --angles angles.txt
  beamstream convert volume.h5 volume.zarr
  beamstream convert slices/ volume.tif --overwrite";

const DEMO_EXAMPLES: &str = "\
Examples:
  beamstream demo
  beamstream demo --seconds 60 --size 512 --angles 800
  beamstream demo --scan scan.nxs --out results";

/// Live tomography: detector frames in, volumes out, while the scan still runs
#[derive(Debug, Parser)]
#[command(name = "beamstream", version, after_help = EXAMPLES, arg_required_else_help = true, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Tell more; twice for even more
    #[arg(short, long, action = ArgAction::Count, global = true, help_heading = "Messages")]
    pub(crate) verbose: u8,
    /// Tell errors only
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Messages")]
    pub(crate) quiet: bool,
    /// Form of messages on standard error; RUST_LOG chooses them in detail
    #[arg(long, value_enum, default_value_t, global = true, value_name = "FORM", help_heading = "Messages")]
    pub(crate) log_format: LogFormat,
}

/// Form of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

impl LogFormat {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show everything at once: a simulated detector, live reconstruction, a web page, files
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Run a pipeline file until its sources end
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Run a pipeline that is written in one line
    #[command(after_help = LAUNCH_EXAMPLES)]
    Launch(LaunchArgs),
    /// Replay what a record node has kept: as a detector in a pipeline, or just to see what is in it
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArgs),
    /// Reconstruct a recorded scan
    #[command(after_help = RECON_EXAMPLES)]
    Recon(Box<ReconArgs>),
    /// Write a scan as NXtomo, or a volume as another kind of file; values stay as they are
    #[command(after_help = CONVERT_EXAMPLES)]
    Convert(ConvertArgs),
    /// Find the rotation axis of a recorded scan
    FindAxis(FindAxisArgs),
    /// Tell what is in a file
    Inspect(InspectArgs),
    /// List the kinds of nodes, or tell all about one
    Nodes(NodesArgs),
    /// Print the JSON Schema of pipeline files
    Schema,
    /// Find the mistakes of a pipeline file
    Check(CheckArgs),
    /// Show the plan of a pipeline: types, placement, memory
    Explain(ExplainArgs),
    /// Tell what this machine has, what is missing, and what that costs
    Doctor(DoctorArgs),
    /// Print the completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// On what a pipeline runs.
#[derive(Debug, Clone, Args)]
pub(crate) struct ComputeArgs {
    /// Device that computes: auto (the first GPU that can be used, else the CPU), cpu, or cuda[:N[,M…]]
    #[arg(long, default_value = "auto", value_name = "DEVICE", help_heading = "Computing")]
    pub(crate) device: Device,
    /// Threads that compute [default: as many as the machine runs at once]
    #[arg(long, value_name = "N", value_parser = parse::threads, help_heading = "Computing")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Memory that may be taken, of the host and of each GPU, in bytes or with a unit, as in 8GiB [default: most of
    /// what is free]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "Computing")]
    pub(crate) memory: Option<u64>,
}

impl ComputeArgs {
    pub(crate) fn options(&self, overwrite: bool, trace: Option<&Path>) -> Options {
        Options {
            device: self.device.clone(),
            threads: self.threads,
            memory_bytes: self.memory,
            trace: trace.map(Path::to_owned),
            overwrite,
        }
    }
}

/// What a run leaves and shows.
#[derive(Debug, Clone, Args)]
pub(crate) struct ResultArgs {
    /// Write the report of the run to this file, as JSON
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(crate) report: Option<PathBuf>,
    /// Write to this file when each node and each device did what, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(crate) trace: Option<PathBuf>,
    /// Let outputs replace files that exist
    #[arg(long, help_heading = "Results")]
    pub(crate) overwrite: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The pipeline file, YAML or JSON
    #[arg(value_name = "PIPELINE")]
    pub(crate) pipeline: PathBuf,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LaunchArgs {
    /// The pipeline: nodes joined by '!', branches in brackets
    #[arg(value_name = "LINE")]
    pub(crate) line: String,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The recording
    #[arg(value_name = "RECORDING")]
    pub(crate) recording: PathBuf,
    /// How many times as fast as it was recorded; 0 is as fast as the pipeline takes it
    #[arg(long, default_value_t = 1.0, value_name = "X", value_parser = parse::speed)]
    pub(crate) speed: f64,
    /// Pipeline file in which the recording takes the place of the source [default: none, frames are only counted]
    #[arg(short, long, value_name = "PIPELINE")]
    pub(crate) pipeline: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// How a pipeline is run, wherever it is written.
#[derive(Debug, Args)]
pub(crate) struct HowArgs {
    /// Change a parameter; can be given many times
    #[arg(long, value_name = "NODE.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Show the run in a web page at this address, of this machine only [default: 127.0.0.1:8088 or the next free
    /// port, if the pipeline has a view node]
    #[arg(long, value_name = "ADDR", value_parser = parse::address, help_heading = "Results")]
    pub(crate) view: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) results: ResultArgs,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReconArgs {
    /// The scan: NXtomo, DXchange, another HDF5 file, a TIFF file or a folder of them
    #[arg(value_name = "SCAN")]
    pub(crate) scan: PathBuf,
    /// The volume: x.h5, x.zarr, x.tif (one BigTIFF), x.npy, x.raw, or a folder of TIFF slices
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,

    /// Rotation axis: a detector column (0 is the centre of the first, also with --columns or --bin), or auto to find
    /// it from two opposite projections; --center is the same
    #[arg(long, visible_alias = "center", default_value = "auto", value_name = "PX", allow_negative_numbers = true,
          value_parser = parse::rotation_axis, help_heading = "Reconstruction")]
    pub(crate) rotation_axis: RotationAxisChoice,
    /// How projections become slices
    #[arg(long, default_value = Method::default().name(), value_parser = parse::one_of(Method::ALL, Method::name),
          help_heading = "Reconstruction")]
    pub(crate) method: Method,
    /// Filter of the projections, from sharp to smooth; none is a plain backprojection
    #[arg(long, default_value = Filter::default().name(), value_parser = parse::one_of(Filter::ALL, Filter::name),
          help_heading = "Reconstruction")]
    pub(crate) filter: Filter,
    /// What stands beside a projection: zero for samples that the detector sees whole, edge for wider ones
    #[arg(long, default_value = Padding::default().name(), value_parser = parse::one_of(Padding::ALL, Padding::name),
          help_heading = "Reconstruction")]
    pub(crate) pad: Padding,
    /// Detector rows A to B, B excluded: one slice a row [default: all]
    #[arg(long, value_name = "A:B", help_heading = "Reconstruction")]
    pub(crate) rows: Option<IndexRange>,
    /// Detector columns A to B, B excluded [default: all]
    #[arg(long, value_name = "A:B", help_heading = "Reconstruction")]
    pub(crate) columns: Option<IndexRange>,
    /// Average N x N detector pixels to one
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256),
          help_heading = "Reconstruction")]
    pub(crate) bin: u16,

    /// Type of a voxel
    #[arg(long, default_value = ElementType::F32.name(), value_parser = parse::output_type(), help_heading = "Results")]
    pub(crate) dtype: ElementType,
    /// Attenuations per pixel that become 0 and the highest integer, or percentiles as in p1:p99; for u16 and u8
    #[arg(long, value_name = "LO:HI", value_parser = parse::output_range, allow_hyphen_values = true,
          help_heading = "Results")]
    pub(crate) range: Option<OutputRange>,
    #[command(flatten)]
    pub(crate) results: ResultArgs,
    #[command(flatten)]
    pub(crate) places: PlaceArgs,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

/// Where the parts of a scan are, if not where the file says.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Projections, or all frames: a dataset of the scan, or FILE:/DATASET
    #[arg(long, value_name = "PATH", help_heading = "Parts of the scan")]
    pub(crate) data: Option<String>,
    /// Flats (open beam): a dataset of the scan, a file, a folder, or FILE:/DATASET
    #[arg(long, value_name = "PATH", help_heading = "Parts of the scan")]
    pub(crate) flats: Option<String>,
    /// Darks (no beam): a dataset of the scan, a file, a folder, or FILE:/DATASET
    #[arg(long, value_name = "PATH", help_heading = "Parts of the scan")]
    pub(crate) darks: Option<String>,
    /// Angles of the projections: a dataset of the scan, or a text with one angle in degrees a line
    #[arg(long, value_name = "PATH", help_heading = "Parts of the scan")]
    pub(crate) angles: Option<String>,
}

impl PlaceArgs {
    pub(crate) fn options(&self) -> beamstream::ScanOptions {
        let Self { data, flats, darks, angles } = self;
        beamstream::ScanOptions {
            data: data.clone(),
            flats: flats.clone(),
            darks: darks.clone(),
            angles: angles.clone(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// No web page: files and figures only
    #[arg(long, conflicts_with = "view")]
    pub(crate) headless: bool,
    /// How long the scan takes, in seconds
    #[arg(long, default_value_t = 20.0, value_name = "S", value_parser = parse::positive)]
    pub(crate) seconds: f64,
    /// Detector columns of the phantom, in pixels; a slice is as wide
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u16).range(8..=8192))]
    pub(crate) size: u16,
    /// Projections of the phantom, over 180 degrees
    #[arg(long, default_value_t = 400, value_name = "A", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub(crate) angles: u32,
    /// Frames a second, instead of what --seconds gives
    #[arg(long, value_name = "HZ", value_parser = parse::positive)]
    pub(crate) rate: Option<f64>,
    /// Folder for the volume and the report; files of an earlier demo there are replaced
    #[arg(long, default_value = "beamstream-demo", value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Send a recorded scan instead of the phantom
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "angles"])]
    pub(crate) scan: Option<PathBuf>,
    /// Address of the web page, of this machine only [default: 127.0.0.1:8088 or the next free port]
    #[arg(long, value_name = "ADDR", value_parser = parse::address)]
    pub(crate) view: Option<SocketAddr>,
    /// Write to this file when each node and each device did what, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FindAxisArgs {
    /// The scan: NXtomo, DXchange, another HDF5 file, a TIFF file or a folder of them
    #[arg(value_name = "SCAN")]
    pub(crate) scan: PathBuf,
    /// Look at this detector row only [default: many in the middle]
    #[arg(long, value_name = "R")]
    pub(crate) row: Option<usize>,
    /// How it is found
    #[arg(long, default_value = AXIS_METHOD, value_parser = [AXIS_METHOD])]
    pub(crate) method: String,
    /// Print JSON: rotation_axis_px, confidence (0 to 1; do not rely on it below 0.5), method
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) places: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// The scan or volume: whatever inspect can read
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// A scan: x.nxs or x.h5 (NXtomo). A volume: x.h5, x.zarr, x.tif (one BigTIFF), x.npy, x.raw, or a folder of TIFF
    /// slices
    #[arg(value_name = "OUT")]
    pub(crate) out: PathBuf,
    /// Let the output replace what exists
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) places: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The file or folder
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) places: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct NodesArgs {
    /// The kind to tell all about
    #[arg(value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The pipeline file, YAML or JSON
    #[arg(value_name = "PIPELINE")]
    pub(crate) pipeline: PathBuf,
    /// Change a parameter; can be given many times
    #[arg(long, value_name = "NODE.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) check: CheckArgs,
    /// What a live source will announce: a recorded scan, or a .json with rows, columns, dtype, projections, flats,
    /// darks
    #[arg(long, value_name = "FILE")]
    pub(crate) header: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn bad_values_name_option_and_value() {
        for (option, value) in [
            ("--method", "furier"),
            ("--filter", "ham"),
            ("--dtype", "u17"),
            ("--rows", "9"),
            ("--rotation-axis", "left"),
        ] {
            let line = ["beamstream", "recon", "scan.nxs", "-o", "v.h5", &format!("{option}={value}")];
            let text = Cli::try_parse_from(line).unwrap_err().to_string();
            assert!(text.contains(option) && text.contains(value), "{text}");
        }
    }

    #[test]
    fn center_is_the_rotation_axis() {
        let line = ["beamstream", "recon", "scan.nxs", "-o", "v.h5", "--center", "33"];
        let Command::Recon(args) = Cli::try_parse_from(line).unwrap().command else {
            panic!("another command")
        };
        assert_eq!(args.rotation_axis, RotationAxisChoice::Px(33.0));
    }

    #[test]
    fn no_arguments_are_a_usage_error() {
        assert_eq!(Cli::try_parse_from(["beamstream"]).unwrap_err().exit_code(), 2);
    }
}
