//! A scan of the analytic phantom, as a detector would count it.

use std::f64::consts::PI;

use beamstream_core::{ElementType, Format, Role};
use beamstream_phantom as phantom;

use crate::random::Random;
use crate::source::{FrameSource, ReadError, SourceFrame};

/// Counts without beam.
const DARK_COUNTS: f64 = 120.0;
/// Counts of the open beam, at its brightest, above the dark level.
const BEAM_COUNTS: f64 = 50_000.0;
/// Counts that a stray gamma ray adds.
const ZINGER_COUNTS: f64 = 30_000.0;

/// Purposes of random numbers.
const NOISE: u64 = 1;
const RINGS: u64 = 2;
const ZINGERS: u64 = 3;

/// What is scanned and what spoils it.
#[derive(Debug, Clone, PartialEq)]
pub struct PhantomConfig {
    /// Detector columns.
    pub size: usize,
    /// Detector rows.
    pub rows: usize,
    /// Projections.
    pub angles: usize,
    /// Open-beam frames.
    pub flats: usize,
    /// Frames without beam.
    pub darks: usize,
    /// Range of the angles in degrees, its end excluded.
    pub span_deg: f64,
    /// Whether angles follow the golden ratio instead of being even.
    pub golden: bool,
    /// Rotation axis in columns, 0 being the middle of the first; by default the middle of the detector.
    pub axis_px: Option<f64>,
    /// Photons of the open beam in a pixel, for Poisson noise; `None` for none.
    pub noise_photons: Option<f64>,
    /// Standard deviation of the pixels' response, in parts of it, that flats do not show.
    pub rings: f64,
    /// Part of the pixels that a stray gamma ray hits in each frame.
    pub zingers: f64,
    /// Part of the beam that is lost evenly from the first to the last projection.
    pub drift: f64,
    /// Other random numbers.
    pub seed: u64,
}

impl Default for PhantomConfig {
    fn default() -> Self {
        Self {
            size: 256,
            rows: 1,
            angles: 360,
            flats: 10,
            darks: 5,
            span_deg: 180.0,
            golden: false,
            axis_px: None,
            noise_photons: None,
            rings: 0.0,
            zingers: 0.0,
            drift: 0.0,
            seed: 0,
        }
    }
}

/// The phantom would be too small or too large.
#[derive(Debug, thiserror::Error)]
#[error("a phantom of {size} columns, {rows} rows and {frames} frames is not possible, expected {expected}")]
pub struct PhantomError {
    size: usize,
    rows: usize,
    frames: usize,
    expected: &'static str,
}

impl PhantomConfig {
    /// Rotation axis in columns, 0 being the middle of the first.
    pub fn rotation_axis_px(&self) -> f64 {
        self.axis_px.unwrap_or((self.size as f64 - 1.0) / 2.0)
    }

    /// Angles of the projections in degrees.
    ///
    /// # Source
    /// For the golden ratio: T. Köhler, "A projection access scheme for iterative reconstruction based on the golden
    /// section", 2004, doi:10.1109/NSSMIC.2004.1466745.
    pub fn angles_deg(&self) -> Vec<f64> {
        let golden = (5.0_f64.sqrt() - 1.0) / 2.0;
        let part = |number: usize| {
            if self.golden { (number as f64 * golden).fract() } else { number as f64 / self.angles as f64 }
        };
        (0..self.angles).map(|number| self.span_deg * part(number)).collect()
    }
}

/// A scan of the analytic phantom: darks, flats, projections as 16-bit counts.
///
/// With photons `N`, response `r` and line integral `p` of a pixel, a projection counts
/// `dark + beam r exp(-p)`, whose second term is Poisson noise of `N r exp(-p)` photons where noise is asked for.
#[derive(Debug, Clone)]
pub struct Phantom {
    config: PhantomConfig,
    frames: Vec<SourceFrame>,
    /// Brightness of each column's beam, at most 1.
    beam: Vec<f64>,
    /// What each pixel's response to the sample is off by, as a factor.
    response: Vec<f64>,
    heights: Vec<f64>,
}

impl Phantom {
    /// Prepares the scan.
    ///
    /// # Errors
    /// If it has no pixel or projection, or too many.
    pub fn new(config: PhantomConfig) -> Result<Self, PhantomError> {
        let (size, rows) = (config.size, config.rows);
        let frames = config.angles.saturating_add(config.flats).saturating_add(config.darks);
        let refused = |expected| PhantomError { size, rows, frames, expected };
        if size == 0 || rows == 0 || config.angles == 0 {
            return Err(refused("at least one column, row and projection"));
        }
        if size.saturating_mul(rows) > MAX_PIXELS || frames > MAX_FRAMES {
            return Err(refused("at most 2^28 pixels and 2^24 frames"));
        }
        let frame = |role, angle_deg| SourceFrame { role, angle_deg };
        let mut list = vec![frame(Role::Dark, None); config.darks];
        list.extend(vec![frame(Role::Flat, None); config.flats]);
        list.extend(config.angles_deg().into_iter().map(|angle| frame(Role::Projection, Some(angle))));
        let mut random = Random::new(config.seed, RINGS, 0);
        let response = (0..size * rows).map(|_| (1.0 + config.rings * random.normal()).max(0.0)).collect();
        Ok(Self {
            beam: (0..size).map(|x| 1.0 - 0.15 * (5.0 * x as f64 / size as f64).cos().powi(2)).collect(),
            response,
            heights: phantom::heights(rows),
            frames: list,
            config,
        })
    }

    /// What is scanned.
    pub fn config(&self) -> &PhantomConfig {
        &self.config
    }

    /// The true slice `(y, x)` of a row. Unit: attenuation per pixel.
    pub fn truth(&self, row: usize) -> Vec<f32> {
        phantom::truth(self.config.size, self.heights[row])
    }

    /// Part of the beam that reaches each pixel of frame `index`, the response included.
    fn transmission(&self, index: usize) -> Vec<f64> {
        let size = self.config.size;
        let frame = self.frames[index];
        let (Role::Projection, Some(angle_deg)) = (frame.role, frame.angle_deg) else {
            let open = if frame.role == Role::Dark { 0.0 } else { 1.0 };
            return self.beam.iter().map(|beam| beam * open).cycle().take(size * self.config.rows).collect();
        };
        let number = (index - self.config.darks - self.config.flats) as f64;
        let left = 1.0 - self.config.drift * number / self.config.angles as f64;
        let angle = [angle_deg * PI / 180.0];
        let axis = self.config.rotation_axis_px();
        let mut transmission = Vec::with_capacity(size * self.config.rows);
        for (row, &z) in self.heights.iter().enumerate() {
            let integrals = phantom::sinogram(size, &angle, z, axis);
            let response = &self.response[row * size..];
            let pixels = integrals.iter().zip(response).zip(&self.beam);
            transmission.extend(pixels.map(|((p, r), beam)| left * beam * r * (-f64::from(*p)).exp()));
        }
        transmission
    }

    /// Fills `pixels` with the counts of frame `index`, which must be one of [`Self::frames`].
    pub(crate) fn fill(&self, index: usize, pixels: &mut Vec<u8>) {
        let mut noise = Random::new(self.config.seed, NOISE, index as u64);
        let mut zingers = Random::new(self.config.seed, ZINGERS, index as u64);
        pixels.clear();
        for part in self.transmission(index) {
            let part = match self.config.noise_photons {
                Some(photons) if photons > 0.0 => noise.poisson(part * photons) / photons,
                _ => part,
            };
            let hit = self.config.zingers > 0.0 && zingers.uniform() < self.config.zingers;
            let stray = if hit { ZINGER_COUNTS } else { 0.0 };
            let counts = (DARK_COUNTS + BEAM_COUNTS * part + stray).round();
            pixels.extend_from_slice(&(counts as u16).to_le_bytes());
        }
    }
}

/// More pixels than any detector has.
const MAX_PIXELS: usize = 1 << 28;
/// More frames than any scan has.
const MAX_FRAMES: usize = 1 << 24;

impl FrameSource for Phantom {
    fn format(&self) -> Format {
        Format::frame(ElementType::U16, self.config.rows, self.config.size)
    }

    fn frames(&self) -> &[SourceFrame] {
        &self.frames
    }

    fn read(&mut self, index: usize, pixels: &mut Vec<u8>) -> Result<(), ReadError> {
        if index >= self.frames.len() {
            return Err("no such frame".into());
        }
        self.fill(index, pixels);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(phantom: &mut Phantom, index: usize) -> Vec<f64> {
        let mut pixels = Vec::new();
        phantom.read(index, &mut pixels).unwrap();
        pixels.chunks_exact(2).map(|b| f64::from(u16::from_le_bytes([b[0], b[1]]))).collect()
    }

    fn small(change: impl FnOnce(&mut PhantomConfig)) -> Phantom {
        let mut config =
            PhantomConfig { size: 32, rows: 2, angles: 8, flats: 2, darks: 1, ..Default::default() };
        change(&mut config);
        Phantom::new(config).unwrap()
    }

    #[test]
    fn the_logarithm_of_the_counts_is_the_line_integral() {
        let mut phantom = small(|c| c.axis_px = Some(14.25));
        let (dark, flat) = (counts(&mut phantom, 0), counts(&mut phantom, 1));
        let projection = counts(&mut phantom, 3 + 5);
        let z = phantom.heights[1];
        let exact = phantom::sinogram(32, &[5.0 * PI / 8.0], z, 14.25);
        for (column, exact) in exact.into_iter().enumerate() {
            let at = 32 + column;
            let integral = -((projection[at] - dark[at]) / (flat[at] - dark[at])).ln();
            assert!((integral - f64::from(exact)).abs() < 1e-4, "column {column}");
        }
    }

    #[test]
    fn noise_follows_the_photons() {
        let mut phantom = small(|c| (c.noise_photons, c.rows) = (Some(400.0), 200));
        let flat = counts(&mut phantom, 1);
        let relative: Vec<f64> = flat
            .iter()
            .enumerate()
            .map(|(at, counts)| (counts - DARK_COUNTS) / BEAM_COUNTS / phantom.beam[at % 32] - 1.0)
            .collect();
        let variance = relative.iter().map(|r| r * r).sum::<f64>() / relative.len() as f64;
        assert!((variance * 400.0 - 1.08).abs() < 0.1, "{}", variance * 400.0);
        assert_ne!(flat, counts(&mut phantom, 2), "two flats have their own noise");
        assert_eq!(flat, counts(&mut phantom, 1), "the same frame is always the same");
    }

    #[test]
    fn drift_rings_and_zingers_spoil_projections() {
        let clean = counts(&mut small(|_| ()), 10);
        let drifted = counts(&mut small(|c| c.drift = 0.8), 10);
        let expected = (clean[16] - DARK_COUNTS) * (1.0 - 0.8 * 7.0 / 8.0);
        assert!((drifted[16] - DARK_COUNTS - expected).abs() <= 1.0);
        let mut rings = small(|c| c.rings = 0.05);
        assert_eq!(counts(&mut rings, 1), counts(&mut small(|_| ()), 1), "flats do not show it");
        assert_ne!(counts(&mut rings, 10), clean);
        let hit = counts(&mut small(|c| c.zingers = 0.2), 10);
        let hits = hit.iter().zip(&clean).filter(|(a, b)| *a - *b == ZINGER_COUNTS || **a == 65535.0).count();
        assert!((4..=24).contains(&hits), "{hits} of 64");
    }

    #[test]
    fn angles_are_even_or_golden() {
        assert_eq!(small(|_| ()).frames()[4].angle_deg, Some(22.5));
        let golden = PhantomConfig { golden: true, angles: 3, ..Default::default() }.angles_deg();
        assert!((golden[1] - 111.246_117_975).abs() < 1e-6 && (golden[2] - 42.492_235_950).abs() < 1e-6);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(Phantom::new(PhantomConfig { size: 0, ..Default::default() }).is_err());
        assert!(Phantom::new(PhantomConfig { rows: usize::MAX, ..Default::default() }).is_err());
        assert!(Phantom::new(PhantomConfig { angles: usize::MAX, ..Default::default() }).is_err());
    }
}
