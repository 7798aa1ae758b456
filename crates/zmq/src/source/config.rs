//! Settings of a `zmq_source`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use beamstream_core::{AngleRule, IndexRange, Role};
use beamstream_node::prelude::*;

use super::ZmqSource;
use crate::assembler::{AngleTable, Rules};
use crate::protocol::Protocol;
use crate::zmtp::{Endpoint, Mode, SocketKind};

/// Receives frames from detectors over ZeroMQ.
///
/// Out: detector frames in the detector's own element type, `(row, column)`. Lost, doubled, late and damaged
/// frames are counted in the report; a series ends when all its frames are accounted for, `end_grace_secs`
/// after its end message, or after `series_timeout_secs` of silence.
///
/// ```yaml
/// version: 1
/// nodes:
///   detector: { kind: zmq_source, endpoint: "tcp://127.0.0.1:9999", protocol: auto }
///   correct:  { kind: flat_field, input: detector }
///   volume:   { kind: recon, input: correct, rotation_axis: auto }
///   end:      { kind: null_sink, input: volume }
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ZmqSourceConfig {
    /// Where the detector is: `tcp://host:port` or `ipc://path`, or a list of them if it sends one series over several.
    pub endpoint: OneOrMany<String>,
    /// How the detector speaks; `auto` tells it from the first message that is understood.
    #[serde(default)]
    pub protocol: Protocol,
    /// `pull` for detectors that push, `sub` for those that publish; by default what fits the detector.
    #[serde(default)]
    pub socket: Option<SocketSetting>,
    /// `connect` to the detector, or `bind` and wait for it to connect.
    #[serde(default)]
    pub mode: ModeSetting,
    /// The role of all frames, whatever their messages say.
    #[serde(default)]
    pub role: Option<Role>,
    /// Frame numbers of darks and flats where messages tell no role, for example `{dark: "0:20", flat: "20:40"}`;
    /// all others are projections.
    #[serde(default)]
    pub roles: BTreeMap<Role, OneOrMany<IndexRange>>,
    /// Roles of the series in their order, repeated, where messages tell none: `[dark, flat, projection]`.
    #[serde(default)]
    pub series_roles: Vec<Role>,
    /// Rotation angles of the projections, where messages tell none.
    #[serde(default)]
    pub angles: Option<AnglesSetting>,
    /// The channel to take of messages that hold several; by default the first.
    #[serde(default)]
    pub channel: Option<String>,
    /// Memory for frames that were received and wait, in bytes.
    #[serde(default = "default_buffer_bytes")]
    pub buffer_bytes: u64,
    /// How long a series stays open after its end message while frames are missing. Unit: seconds.
    #[serde(default = "default_end_grace_secs")]
    pub end_grace_secs: f64,
    /// Silence after which a series is closed; longer than any pause of the scan. Unit: seconds.
    #[serde(default = "default_series_timeout_secs")]
    pub series_timeout_secs: f64,
    /// The source ends after so many series of projections; by default it goes on for ever.
    #[serde(default)]
    pub max_series: Option<u64>,
}

/// One value or a list of them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    /// One.
    One(T),
    /// A list.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// The values.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// The kind of a receiving socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SocketSetting {
    /// Takes what PUSH sockets send.
    Pull,
    /// Takes what PUB sockets send.
    Sub,
}

/// Whether a socket connects or listens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModeSetting {
    /// Connects, and again whenever the connection is lost.
    #[default]
    Connect,
    /// Listens.
    Bind,
}

/// Rotation angles from a file, or by start and step.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnglesSetting {
    /// Text file with one angle for each projection, in degrees, separated by white space or commas.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// Angle of the first projection. Unit: degrees.
    #[serde(default)]
    pub start_deg: Option<f64>,
    /// Difference between neighbouring projections. Unit: degrees.
    #[serde(default)]
    pub step_deg: Option<f64>,
    /// Whether these win over angles that messages tell.
    #[serde(default, rename = "override")]
    pub overrides: bool,
}

const fn default_buffer_bytes() -> u64 {
    64 << 20
}

const fn default_end_grace_secs() -> f64 {
    0.5
}

const fn default_series_timeout_secs() -> f64 {
    30.0
}

/// Longest table of angles that is read.
const MAX_TABLE_BYTES: u64 = 64 << 20;

impl SourceConfig for ZmqSourceConfig {
    const KIND: &'static str = "zmq_source";
    type Source = ZmqSource;

    fn build(self, _cx: &BuildContext) -> Result<ZmqSource, BuildError> {
        self.source()
    }
}

impl ZmqSourceConfig {
    /// The source that these settings describe.
    pub(super) fn source(self) -> Result<ZmqSource, BuildError> {
        let rules = self.rules()?;
        let mode = match self.mode {
            ModeSetting::Connect => Mode::Connect,
            ModeSetting::Bind => Mode::Bind,
        };
        let parse = |text: &String| {
            let endpoint: Endpoint =
                text.parse().map_err(|error| BuildError::key("endpoint", format!("{error}")))?;
            match &endpoint {
                Endpoint::Tcp { host, .. } if host == "*" && mode == Mode::Connect => Err(BuildError::key(
                    "endpoint",
                    format!("{endpoint} names no host: give one, or listen with mode: bind"),
                )),
                _ => Ok((endpoint, mode)),
            }
        };
        let endpoints = self.endpoint.as_slice().iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if endpoints.is_empty() {
            return Err(BuildError::key(
                "endpoint",
                "expected an endpoint or a list of them, found an empty list",
            ));
        }
        let socket = self.socket.map(|socket| match socket {
            SocketSetting::Pull => SocketKind::Pull,
            SocketSetting::Sub => SocketKind::Sub,
        });
        Ok(ZmqSource::new(endpoints, socket, self.protocol, self.channel, self.buffer_bytes, rules))
    }

    fn rules(&self) -> Result<Rules, BuildError> {
        let ranges = |(role, ranges): (&Role, &OneOrMany<IndexRange>)| {
            ranges.as_slice().iter().map(|range| (*role, *range)).collect::<Vec<_>>()
        };
        let roles: Vec<(Role, IndexRange)> = self.roles.iter().flat_map(ranges).collect();
        let mut sorted: Vec<IndexRange> = roles.iter().map(|(_, range)| *range).collect();
        sorted.sort_by_key(|range| range.first);
        if let Some((first, second)) = sorted.iter().zip(sorted.iter().skip(1)).find(|(a, b)| b.first < a.end)
        {
            return Err(BuildError::key(
                "roles",
                format!("expected ranges apart, found {first} and {second}"),
            ));
        }
        if self.max_series == Some(0) {
            return Err(BuildError::key("max_series", "expected 1 or more, found 0"));
        }
        Ok(Rules {
            role: self.role,
            roles,
            series_roles: self.series_roles.clone(),
            angles: self.angles.as_ref().map_or_else(|| Ok(AngleTable::default()), AnglesSetting::table)?,
            end_grace: seconds("end_grace_secs", self.end_grace_secs)?,
            series_timeout: seconds("series_timeout_secs", self.series_timeout_secs)?,
            max_series: self.max_series,
        })
    }
}

fn seconds(key: &'static str, secs: f64) -> Result<Duration, BuildError> {
    let limit = 1e9;
    if !(0.0..=limit).contains(&secs) {
        return Err(BuildError::key(key, format!("expected 0 to {limit} seconds, found {secs}")));
    }
    Ok(Duration::from_secs_f64(secs))
}

impl AnglesSetting {
    fn table(&self) -> Result<AngleTable, BuildError> {
        let wins = self.overrides;
        match (&self.file, self.start_deg, self.step_deg) {
            (Some(file), None, None) => {
                let table = read_angles(file).map_err(|text| BuildError::key("angles", text))?;
                Ok(AngleTable { table_rad: Some(table), rule: None, wins })
            }
            (None, Some(start), Some(step)) if start.is_finite() && step.is_finite() => {
                Ok(AngleTable { table_rad: None, rule: Some(AngleRule::from_degrees(start, step)), wins })
            }
            _ => Err(BuildError::key("angles", "expected either file, or start_deg and step_deg")),
        }
    }
}

/// The angles of a text file in radians; `#` begins a comment.
fn read_angles(path: &Path) -> Result<Arc<[f64]>, String> {
    let named = |what: String| format!("{}: {what}", path.display());
    // Not the size that the file claims: devices and pipes have none.
    let mut text = String::new();
    let file = File::open(path).map_err(|error| named(error.to_string()))?;
    file.take(MAX_TABLE_BYTES + 1).read_to_string(&mut text).map_err(|error| named(error.to_string()))?;
    if text.len() as u64 > MAX_TABLE_BYTES {
        return Err(named(format!("expected a table of at most {MAX_TABLE_BYTES} bytes")));
    }
    let mut angles = Vec::new();
    for (line, content) in text.lines().enumerate() {
        let content = content.split('#').next().unwrap_or_default();
        for word in content.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty()) {
            let degrees = word.parse().ok().filter(|v: &f64| v.is_finite());
            let degrees = degrees.ok_or_else(|| {
                named(format!("line {}: expected an angle in degrees, found '{word}'", line + 1))
            })?;
            angles.push(degrees.to_radians());
        }
    }
    if angles.is_empty() {
        return Err(named("expected one angle for each projection, found none".to_owned()));
    }
    Ok(angles.into())
}
