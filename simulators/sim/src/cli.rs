//! The command line of `beamstream-sim`.

use std::path::PathBuf;

use beamstream_sim::{Encoding, Endpoint, Faults, PhantomConfig, Protocol, Settings, SocketKind};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  beamstream-sim replay scan.nxs --protocol dectris-v2 --bind tcp://127.0.0.1:31001 --rate 100
  beamstream-sim replay scan.nxs --protocol dectris-v1 --bind 'tcp://*:9999' --faults 'lose=1%;disconnect=50'
  beamstream-sim phantom --size 256 --angles 400 --protocol array-1.0 --socket pub --bind tcp://127.0.0.1:5555
  beamstream-sim phantom --size 512 --angles 800 --rows 64 --noise 1e4 --write phantom.nxs

The environment variable RUST_LOG chooses messages in detail.
Exit codes: 0 everything sent or written, 1 internal error, 2 wrong usage or unreadable input,
4 the socket or the file failed, 130 stopped by Ctrl-C.";

/// Heading of the options about messages.
const MESSAGES: &str = "Messages on standard error";

/// Simulated detectors: send a recorded scan or an analytic phantom as a detector would
#[derive(Debug, Parser)]
#[command(name = "beamstream-sim", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Tell more; twice for even more
    #[arg(short, long, action = ArgAction::Count, global = true, help_heading = MESSAGES)]
    pub(crate) verbose: u8,
    /// Tell errors only
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = MESSAGES)]
    pub(crate) quiet: bool,
    /// Lines for people or JSON objects
    #[arg(long, value_enum, default_value_t, global = true, value_name = "FORM", help_heading = MESSAGES)]
    pub(crate) log_format: LogFormat,
}

/// Form of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send a recorded scan: darks, flats, projections
    #[command(after_help = Faults::help())]
    Replay(ReplayArgs),
    /// Send an analytic phantom, or write it as a scan file with known truth
    #[command(after_help = Faults::help())]
    Phantom(PhantomArgs),
    /// Print the completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The scan: NXtomo, DXchange, a TIFF file or folder
    pub(crate) scan: PathBuf,
    /// Send these detector rows only, the end excluded
    #[arg(long, value_name = "A:B", value_parser = parse_rows)]
    pub(crate) rows: Option<(usize, usize)>,
    #[command(flatten)]
    pub(crate) send: SendArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PhantomArgs {
    #[command(flatten)]
    pub(crate) shape: PhantomShape,
    /// Write an NXtomo file instead of sending; /entry/truth holds the rotation axis
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bind", "connect"])]
    pub(crate) write: Option<PathBuf>,
    /// Store the true slices too, as /entry/truth/volume
    #[arg(long, requires = "write")]
    pub(crate) truth: bool,
    /// Replace the file if it exists
    #[arg(long, requires = "write")]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) send: SendArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PhantomShape {
    /// Detector columns
    #[arg(long, value_name = "N")]
    size: usize,
    /// Projections
    #[arg(long, value_name = "A")]
    angles: usize,
    /// Detector rows
    #[arg(long, value_name = "R", default_value_t = PhantomConfig::default().rows)]
    rows: usize,
    /// Open-beam frames
    #[arg(long, value_name = "N", default_value_t = PhantomConfig::default().flats)]
    flats: usize,
    /// Frames without beam
    #[arg(long, value_name = "N", default_value_t = PhantomConfig::default().darks)]
    darks: usize,
    /// Photons of the open beam in a pixel: adds Poisson noise
    #[arg(long, value_name = "PHOTONS", value_parser = parse_positive)]
    noise: Option<f64>,
    /// Pixels respond differently from what the flats show, by so many percent: rings
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, default_missing_value = "1", value_parser = parse_percent)]
    rings: Option<f64>,
    /// So many percent of the pixels of each frame are hit by stray gamma rays
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, default_missing_value = "0.1", value_parser = parse_percent)]
    zingers: Option<f64>,
    /// The beam loses so many percent until the last projection
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, default_missing_value = "5", value_parser = parse_percent)]
    drift: Option<f64>,
    /// Rotation axis in columns, 0 being the middle of the first [default: the middle of the detector]
    #[arg(long, value_name = "PX", allow_negative_numbers = true)]
    axis: Option<f64>,
    /// Range of the angles in degrees, the end excluded
    #[arg(long, value_name = "DEG", default_value_t = PhantomConfig::default().span_deg, allow_negative_numbers = true)]
    span: f64,
    /// Take the angles by the golden ratio instead of evenly
    #[arg(long)]
    golden: bool,
    /// Other random numbers
    #[arg(long, value_name = "N", default_value_t = PhantomConfig::default().seed)]
    seed: u64,
}

impl PhantomShape {
    pub(crate) fn config(&self) -> PhantomConfig {
        PhantomConfig {
            size: self.size,
            rows: self.rows,
            angles: self.angles,
            flats: self.flats,
            darks: self.darks,
            span_deg: self.span,
            golden: self.golden,
            axis_px: self.axis,
            noise_photons: self.noise,
            rings: self.rings.unwrap_or(0.0),
            zingers: self.zingers.unwrap_or(0.0),
            drift: self.drift.unwrap_or(0.0),
            seed: self.seed,
        }
    }
}

/// How frames are sent.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sending")]
pub(crate) struct SendArgs {
    /// The detector's protocol
    #[arg(long, value_parser = names(Protocol::ALL, Protocol::name))]
    protocol: Option<Protocol>,
    /// Listen for receivers
    #[arg(long, value_name = "tcp://HOST:PORT|ipc://PATH", conflicts_with = "connect")]
    bind: Option<Endpoint>,
    /// Connect to a receiver that listens there
    #[arg(long, value_name = "ENDPOINT")]
    connect: Option<Endpoint>,
    /// push waits for receivers and loses nothing, pub drops what they do not take in time
    #[arg(long, value_parser = names(SocketKind::ALL, SocketKind::name), default_value = SocketKind::Push.name())]
    socket: SocketKind,
    /// Frames a second [default: as many as receivers take]
    #[arg(long, value_name = "HZ", value_parser = parse_positive)]
    rate: Option<f64>,
    /// How the pixels are packed [default: bslz4 for DECTRIS, else none]
    #[arg(long, value_parser = names(Encoding::ALL, Encoding::name))]
    encoding: Option<Encoding>,
    /// What goes wrong, for example 'lose=3,17;late=20:2.5;no-end': see below
    #[arg(long, value_name = "SPEC", default_value = "", hide_default_value = true)]
    faults: Faults,
    /// Send the scan so many times; 0 for until stopped
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u64,
    /// Send nothing before a receiver is there
    #[arg(long)]
    wait_for_peer: bool,
    /// Read and pack all frames before the first is sent: sends faster, and holds the packed scan in memory
    #[arg(long)]
    preload: bool,
    /// Messages that wait for each receiver [default: 16 for push, 100 for pub]
    #[arg(long, value_name = "N")]
    queue: Option<usize>,
    /// Number of the first series
    #[arg(long, value_name = "N", default_value_t = 1)]
    first_series: u64,
}

impl SendArgs {
    /// The settings, or the name of the option that is missing.
    pub(crate) fn settings(&self) -> Result<Settings, &'static str> {
        let protocol = self.protocol.ok_or("--protocol <PROTOCOL>")?;
        let endpoint = self
            .bind
            .as_ref()
            .or(self.connect.as_ref())
            .ok_or("--bind <ENDPOINT> or --connect <ENDPOINT>")?;
        Ok(Settings {
            encoding: self.encoding,
            socket: self.socket,
            connect: self.bind.is_none(),
            queue_messages: self.queue,
            rate_hz: self.rate,
            repeat: self.repeat,
            faults: self.faults.clone(),
            wait_for_peer: self.wait_for_peer,
            preload: self.preload,
            first_series: self.first_series,
            ..Settings::new(protocol, endpoint.clone())
        })
    }
}

/// A parser of names that also lists them in the help.
fn names<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    // A name that is none of those listed does not come this far.
    let find = move |found: String| all.into_iter().find(|&one| name(one) == found).ok_or("unknown name");
    PossibleValuesParser::new(all.map(name)).try_map(find)
}

fn parse_rows(text: &str) -> Result<(usize, usize), String> {
    let rows = text.split_once(':').and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
    rows.filter(|(first, end)| first < end).ok_or_else(|| format!("expected FIRST:END, found '{text}'"))
}

fn parse_positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("expected a number above 0, found '{text}'"))
}

/// A percentage as a part of one.
fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(|percent: f64| percent / 100.0).ok_or_else(|| format!("expected percent, found '{text}'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_reaches_the_settings() {
        let line = "beamstream-sim replay scan.nxs --rows 2:5 --protocol dectris-v2 --connect tcp://h:1 --socket pub \
                    --rate 12.5 --encoding lz4 --faults lose=1 --repeat 3 --wait-for-peer --preload --queue 7 \
                    --first-series 9";
        let Command::Replay(replay) = parse(line).unwrap().command else { panic!("not replay") };
        assert_eq!(replay.rows, Some((2, 5)));
        let settings = replay.send.settings().unwrap();
        assert_eq!((settings.protocol, settings.encoding), (Protocol::DectrisV2, Some(Encoding::Lz4)));
        assert_eq!((settings.socket, settings.connect), (SocketKind::Pub, true));
        assert_eq!((settings.rate_hz, settings.repeat), (Some(12.5), 3));
        assert_eq!((settings.queue_messages, settings.first_series), (Some(7), 9));
        assert!(settings.wait_for_peer && settings.preload && settings.faults == "lose=1".parse().unwrap());
    }

    #[test]
    fn flaws_have_usual_strengths() {
        let line =
            "beamstream-sim phantom --size 64 --angles 90 --rings --zingers 2% --noise 1e4 --write p.nxs";
        let Command::Phantom(phantom) = parse(line).unwrap().command else { panic!("not phantom") };
        let config = phantom.shape.config();
        assert_eq!((config.rings, config.zingers, config.noise_photons), (0.01, 0.02, Some(1e4)));
        assert_eq!(phantom.send.settings().unwrap_err(), "--protocol <PROTOCOL>");
    }

    #[test]
    fn mistakes_are_refused_with_the_known_words() {
        let refused = |rest: &str| parse(&format!("beamstream-sim {rest}")).unwrap_err().to_string();
        assert!(refused("replay s --protocol dectris-v3").contains("dectris-v2"));
        assert!(refused("replay s --faults loose=1").contains("lose"));
        assert!(refused("replay s --bind nowhere").contains("tcp://HOST:PORT"));
        assert!(refused("replay s --rate 0").contains("above 0"));
        assert!(
            refused("phantom --size 8 --angles 4 --bind tcp://h:1 --write f").contains("cannot be used with")
        );
    }
}
