//! A brake.

use std::time::{Duration, Instant};

use beamstream_node::prelude::*;
use serde_json::Value;

/// Lets at most so many blocks a second pass. It delays and never drops, so the pressure reaches the source.
///
/// ```yaml
/// version: 1
/// nodes:
///   beam:  { kind: phantom_source, size: 64, angles: 90 }
///   brake: { kind: throttle, input: beam, max_blocks_per_sec: 100 }
///   end:   { kind: null_sink, input: brake }
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThrottleConfig {
    /// Blocks that may pass in a second, greater than 0. Can be changed while the node runs. Unit: 1/s.
    pub max_blocks_per_sec: f64,
}

impl NodeConfig for ThrottleConfig {
    const KIND: &'static str = "throttle";
    const CLASS: KindClass = KindClass::Step;
    type Node = Throttle;

    fn build(self, _cx: &BuildContext) -> Result<Throttle, BuildError> {
        let interval =
            interval(self.max_blocks_per_sec).map_err(|text| BuildError::key("max_blocks_per_sec", text))?;
        Ok(Throttle { interval, next: None })
    }
}

/// Time between two blocks.
fn interval(max_blocks_per_sec: f64) -> Result<Duration, String> {
    let usable = max_blocks_per_sec.is_finite() && max_blocks_per_sec > 0.0;
    let interval = usable.then(|| Duration::try_from_secs_f64(1.0 / max_blocks_per_sec).ok()).flatten();
    interval.ok_or_else(|| {
        format!("expected a rate greater than 0 blocks per second, found {max_blocks_per_sec}")
    })
}

/// Hands blocks on as they are, in order, no faster than the rate allows. In: anything. Out: the same blocks.
pub struct Throttle {
    interval: Duration,
    /// When the next block may pass.
    next: Option<Instant>,
}

impl Node for Throttle {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        Ok(Negotiated::unchanged(header))
    }

    fn begin(&mut self, _header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }

    fn process(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError> {
        let now = Instant::now();
        let due = self.next.unwrap_or(now);
        out.sleep_until(due)?;
        // A late block does not earn a burst later on.
        self.next = Some(due.max(now) + self.interval);
        out.push(block)
    }

    fn end(&mut self, _summary: &SeriesSummary, _out: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }

    fn set(&mut self, key: &str, value: &Value) -> Result<TakesEffect, SetError> {
        if key != "max_blocks_per_sec" {
            return Err(SetError::Fixed(key.to_owned()));
        }
        let rate = value.as_f64().ok_or_else(|| format!("expected a number, found {value}"));
        self.interval =
            rate.and_then(interval).map_err(|message| SetError::Value { key: key.to_owned(), message })?;
        Ok(TakesEffect::WithNextBlock)
    }

    fn forwards(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_testkit::Harness;
    use serde_json::json;

    #[test]
    fn blocks_pass_unchanged_and_in_order() {
        let mut node = Harness::<ThrottleConfig>::new(json!({ "max_blocks_per_sec": 1.0e6 }));
        node.series(&[3.0, 1.0, 2.0]);
        assert_eq!(node.first_pixels(), [3.0, 1.0, 2.0]);
    }

    #[test]
    fn rates_that_stop_everything_are_refused() {
        for rate in [0.0, -1.0, 1e-300] {
            let error = Harness::<ThrottleConfig>::refusal(json!({ "max_blocks_per_sec": rate }));
            assert!(error.contains("greater than 0"), "{error}");
        }
    }
}
