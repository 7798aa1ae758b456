//! Values of options.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;

use beamstream::{ElementType, OUTPUT_TYPES, OutputRange, RotationAxisChoice};
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// One of the names of some options, which help lists.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let names: Vec<&'static str> = all.iter().map(|&option| name(option)).collect();
    let find =
        move |text: String| all.iter().copied().find(|&option| name(option) == text).ok_or("unknown name");
    PossibleValuesParser::new(names).try_map(find)
}

/// Types that a volume can have.
pub(crate) fn output_type() -> impl TypedValueParser<Value = ElementType> {
    one_of(&OUTPUT_TYPES, ElementType::name)
}

/// `auto`, or a column.
pub(crate) fn rotation_axis(text: &str) -> Result<RotationAxisChoice, String> {
    if text == "auto" {
        return Ok(RotationAxisChoice::Auto);
    }
    let column = text.parse().ok().filter(|column: &f64| column.is_finite());
    column
        .map(RotationAxisChoice::Px)
        .ok_or_else(|| "expected auto or a detector column, for example 1023.5".to_owned())
}

/// `LO:HI` in attenuation per pixel, or `pLO:pHI` in per cent of the voxels.
pub(crate) fn output_range(text: &str) -> Result<OutputRange, String> {
    let wrong = || "expected LO:HI with LO below HI, or percentiles such as p1:p99".to_owned();
    let (low, high) = text.split_once(':').ok_or_else(wrong)?;
    if let (Some(low), Some(high)) = (low.strip_prefix('p'), high.strip_prefix('p')) {
        let percents = [percent(low).ok_or_else(wrong)?, percent(high).ok_or_else(wrong)?];
        return if percents[0] < percents[1] { Ok(OutputRange::Percentiles(percents)) } else { Err(wrong()) };
    }
    let value = |text: &str| text.trim().parse().ok().filter(|value: &f32| value.is_finite());
    let levels = [value(low).ok_or_else(wrong)?, value(high).ok_or_else(wrong)?];
    if levels[0] < levels[1] { Ok(OutputRange::Values(levels)) } else { Err(wrong()) }
}

fn percent(text: &str) -> Option<f64> {
    text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent))
}

/// How many times as fast; 0 stands for no pace at all.
pub(crate) fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed: &f64| speed.is_finite() && *speed >= 0.0);
    speed.ok_or_else(|| "expected a number from 0 on, for example 10".to_owned())
}

/// `HOST:PORT`, or a port of this machine.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let named = text.strip_prefix("localhost:").map(|port| format!("{}:{port}", Ipv4Addr::LOCALHOST));
    named
        .as_deref()
        .unwrap_or(text)
        .parse()
        .map_err(|_no_address| "expected IP:PORT or a port, for example 127.0.0.1:8088".to_owned())
}

/// Seconds, frames a second: a number above 0.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| "expected a number above 0".to_owned())
}

/// Most threads that are started: more than this is a slip of the hand, and could not be started anyway.
const MAX_THREADS: usize = 1024;

/// Reads a number of threads.
pub(crate) fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads = text.parse().ok().filter(|threads: &NonZeroUsize| threads.get() <= MAX_THREADS);
    threads.ok_or_else(|| format!("expected 1 to {MAX_THREADS} threads, found '{text}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_auto_or_columns() {
        assert_eq!(rotation_axis("auto"), Ok(RotationAxisChoice::Auto));
        assert_eq!(rotation_axis("15.5"), Ok(RotationAxisChoice::Px(15.5)));
        for wrong in ["left", "", "nan", "inf"] {
            assert!(rotation_axis(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ranges_are_values_or_percentiles() {
        assert_eq!(output_range("-0.5:2e-2"), Ok(OutputRange::Values([-0.5, 0.02])));
        assert_eq!(output_range("p0.5:p100"), Ok(OutputRange::Percentiles([0.5, 100.0])));
        for wrong in ["5", "2:1", "p1:5", "p90:p10", "p-1:p5", "a:b", "nan:1", ""] {
            assert!(output_range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_may_be_ports() {
        assert_eq!(address("8088").unwrap().to_string(), "127.0.0.1:8088");
        assert_eq!(address("localhost:5").unwrap().to_string(), "127.0.0.1:5");
        assert_eq!(address("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert!(address("here").is_err() && address("99999").is_err());
    }
}
