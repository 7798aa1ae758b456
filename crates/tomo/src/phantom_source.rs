//! A scan of the analytic phantom, made on the spot.

use std::sync::Arc;
use std::time::{Duration, Instant};

use beamstream_core::{FrameCounts, Ledger, Pass, RoleCounts};
use beamstream_node::prelude::*;

/// Counts of a pixel without beam.
const DARK_COUNTS: f64 = 100.0;
/// Counts of the open beam above the dark, in the middle of the detector.
const BEAM_COUNTS: f64 = 50_000.0;

/// Makes a scan of the analytic phantom: darks, flats and projections as counts, with an uneven beam.
///
/// The line integrals are exact, so that what comes of them can be held against the truth.
///
/// ```yaml
/// version: 1
/// nodes:
///   scan:    { kind: phantom_source, size: 64, rows: 4, angles: 90 }
///   correct: { kind: flat_field, input: scan }
///   volume:  { kind: recon, input: correct, rotation_axis: 31.5 }
///   end:     { kind: null_sink, input: volume }
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhantomSourceConfig {
    /// Columns of the detector.
    pub size: usize,
    /// Rows of the detector.
    #[serde(default = "one")]
    pub rows: usize,
    /// Number of projections.
    pub angles: u64,
    /// Arc that they spread over evenly, the end excluded. Unit: degrees.
    #[serde(default = "half_a_turn")]
    pub span_deg: f64,
    /// Rotation axis; the middle of the columns if left out. Unit: columns.
    #[serde(default, alias = "center")]
    #[schemars(extend("x-aliases" = ["center"]))]
    pub rotation_axis: Option<f64>,
    /// Flats before the projections.
    #[serde(default = "five")]
    pub flats: u64,
    /// Darks before the projections.
    #[serde(default = "five")]
    pub darks: u64,
    /// Photon noise; none if left out. Unit: photons that the open beam brings to a pixel.
    #[serde(default)]
    pub noise: Option<f64>,
    /// Frames per second; as fast as they are taken if left out. Unit: 1/s.
    #[serde(default)]
    pub rate_hz: Option<f64>,
    /// How many times the scan is made, each as a series of its own.
    #[serde(default = "once")]
    pub repeat: u64,
}

fn one() -> usize {
    1
}

fn once() -> u64 {
    1
}

fn five() -> u64 {
    5
}

fn half_a_turn() -> f64 {
    180.0
}

/// Largest extent of a made-up detector.
const MAX_EXTENT: usize = 16_384;

impl SourceConfig for PhantomSourceConfig {
    const KIND: &'static str = "phantom_source";
    type Source = PhantomSource;

    fn build(self, _cx: &BuildContext) -> Result<PhantomSource, BuildError> {
        for (key, extent) in [("size", self.size), ("rows", self.rows)] {
            if !(1..=MAX_EXTENT).contains(&extent) {
                return Err(BuildError::key(key, format!("expected 1 to {MAX_EXTENT}, found {extent}")));
            }
        }
        if !(1..=1_000_000).contains(&self.angles) {
            return Err(BuildError::key("angles", format!("expected 1 to 1000000, found {}", self.angles)));
        }
        let last = self.size as f64 - 0.5;
        if let Some(axis) = self.rotation_axis.filter(|axis| !(-0.5..=last).contains(axis)) {
            return Err(BuildError::key("rotation_axis", format!("expected -0.5 to {last}, found {axis}")));
        }
        if let Some(rate) = self.rate_hz.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return Err(BuildError::key("rate_hz", format!("expected a rate above 0, found {rate}")));
        }
        if let Some(photons) = self.noise.filter(|photons| !(photons.is_finite() && *photons >= 1.0)) {
            return Err(BuildError::key("noise", format!("expected 1 photon or more, found {photons}")));
        }
        Ok(PhantomSource { config: self })
    }
}

/// Begins a series for each repetition and sends its frames. Out: u16 counts `(row, column)`.
pub struct PhantomSource {
    config: PhantomSourceConfig,
}

impl PhantomSource {
    fn axis_px(&self) -> f64 {
        self.config.rotation_axis.unwrap_or((self.config.size as f64 - 1.0) / 2.0)
    }

    fn angles_rad(&self) -> Arc<[f64]> {
        let step = self.config.span_deg.to_radians() / self.config.angles as f64;
        (0..self.config.angles).map(|number| step * number as f64).collect()
    }

    fn series_header(&self, ordinal: u64) -> SeriesHeader {
        let config = &self.config;
        let format = Format::frame(ElementType::U16, config.rows, config.size);
        let roles = RoleCounts {
            darks: config.darks,
            flats: config.flats,
            projections: config.angles,
            references_first: true,
        };
        SeriesHeader {
            pass: Pass::whole(config.rows),
            expected_frames: Some(config.darks + config.flats + config.angles),
            roles: Some(roles),
            angles_rad: Some(self.angles_rad()),
            rotation_axis_px: Some(self.axis_px()),
            metadata: Arc::new(serde_json::json!({ "source": "phantom" })),
            ..SeriesHeader::frames(SeriesId { number: ordinal + 1, ordinal }, format)
        }
    }

    /// The frames of a series: number, role, number among the projections.
    fn frames(&self) -> impl Iterator<Item = (u64, Role, u64)> {
        let (darks, flats) = (self.config.darks, self.config.flats);
        (0..darks + flats + self.config.angles).map(move |number| {
            if number < darks {
                (number, Role::Dark, 0)
            } else if number < darks + flats {
                (number, Role::Flat, 0)
            } else {
                (number, Role::Projection, number - darks - flats)
            }
        })
    }

    /// Sends one series; says whether it is whole.
    fn send(&self, header: &SeriesHeader, out: &mut Outlet) -> Result<FrameCounts, NodeError> {
        let angles = self.angles_rad();
        let heights = beamstream_phantom::heights(self.config.rows);
        let beam = beam_profile(self.config.size);
        let mut ledger = Ledger::new(header.expected_frames);
        let mut noise = Noise::new(header.id.ordinal);
        let started = Instant::now();
        for (number, role, projection) in self.frames() {
            if out.is_draining() {
                break;
            }
            if let Some(rate) = self.config.rate_hz {
                out.sleep_until(started + Duration::from_secs_f64(number as f64 / rate))?;
            }
            let angle_rad = (role == Role::Projection).then(|| angles[projection as usize]);
            let mut lease = out.lease(header.format)?;
            let rows = lease.elements_mut::<u16>()?.chunks_exact_mut(self.config.size);
            for (row, z) in rows.zip(&heights) {
                let integrals = angle_rad.map(|angle| {
                    beamstream_phantom::sinogram(self.config.size, &[angle], *z, self.axis_px())
                });
                for (column, pixel) in row.iter_mut().enumerate() {
                    let light = match (role, &integrals) {
                        (Role::Dark, _) => 0.0,
                        (_, Some(integrals)) => beam[column] * f64::from(-integrals[column]).exp(),
                        _ => beam[column],
                    };
                    let light =
                        self.config.noise.map_or(light, |photons| noise.shot(light, photons / BEAM_COUNTS));
                    *pixel = (light + DARK_COUNTS).round().clamp(0.0, 65_534.0) as u16;
                }
            }
            let mut meta = BlockMeta::new(FrameId::new(number), role);
            meta.projection = projection;
            meta.angle_rad = angle_rad;
            meta.time.received_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            ledger.receive(meta.frame);
            let now = Instant::now();
            out.journal().series(header.id, |record| {
                record.counts = ledger.counts();
                record.first_frame.get_or_insert(now);
                record.last_frame = Some(now);
            });
            out.push(lease.freeze(meta))?;
        }
        ledger.close();
        Ok(ledger.counts())
    }
}

impl Source for PhantomSource {
    fn header(&mut self) -> Result<Option<SeriesHeader>, NodeError> {
        Ok(Some(self.series_header(0)))
    }

    fn buffers(&self, _header: &SeriesHeader) -> usize {
        1
    }

    fn run(&mut self, out: &mut Outlet) -> Result<(), NodeError> {
        for ordinal in 0..self.config.repeat {
            if out.is_draining() {
                break;
            }
            let header = self.series_header(ordinal);
            out.begin(header.clone(), 1)?;
            let counts = self.send(&header, out)?;
            let aborted = !counts.is_complete();
            out.journal().series(header.id, |record| {
                record.counts = counts.clone();
                record.aborted = aborted;
            });
            out.end(SeriesSummary { counts, aborted })?;
        }
        Ok(())
    }
}

/// An uneven beam, in counts above the dark.
fn beam_profile(size: usize) -> Vec<f64> {
    let at = |column: usize| 1.0 - 0.15 * (column as f64 / size as f64 * 5.0).cos().powi(2);
    (0..size).map(|column| BEAM_COUNTS * at(column)).collect()
}

/// Reproducible photon noise.
struct Noise {
    state: u64,
}

impl Noise {
    fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    /// A uniform number above 0 and up to 1 (`SplitMix64`, Steele et al. 2014, doi:10.1145/2660193.2660195).
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64 + f64::EPSILON
    }

    /// `light` counts with the noise of `photons_per_count` (normal approximation of the Poisson law).
    fn shot(&mut self, light: f64, photons_per_count: f64) -> f64 {
        let normal = (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos();
        light + normal * (light / photons_per_count).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_that_cannot_be_are_named() {
        let journal = beamstream_node::Journal::new("node");
        let cx = beamstream_testkit::build_context(&journal, &beamstream_node::Board::default());
        for (key, value) in
            [("size", json!(0)), ("angles", json!(0)), ("rows", json!(100_000)), ("noise", json!(-1.0))]
        {
            let mut settings = json!({ "size": 8, "angles": 4 });
            settings[key] = value;
            let config: PhantomSourceConfig = serde_json::from_value(settings).unwrap();
            assert_eq!(config.build(&cx).err().unwrap().key, Some(key));
        }
    }

    #[test]
    fn noise_has_the_width_of_the_photons() {
        let mut noise = Noise::new(3);
        let values: Vec<f64> = (0..20_000).map(|_| noise.shot(1000.0, 0.1)).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!((mean - 1000.0).abs() < 3.0 && (variance / 10_000.0 - 1.0).abs() < 0.05, "{mean} {variance}");
    }
}
