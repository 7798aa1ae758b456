//! Metrics as Prometheus text.
//!
//! # Source
//! Prometheus documentation, "Exposition formats", text format 0.0.4.

use std::collections::BTreeMap;
use std::fmt::{Arguments, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use metrics::{
    Counter, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// Collects what the process publishes through the `metrics` crate.
#[derive(Debug, Default)]
pub(crate) struct Exporter {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// By name, then by labels as they are written: a family's lines must stand together.
    families: BTreeMap<String, BTreeMap<String, Value>>,
    descriptions: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
enum Value {
    Counter(Arc<AtomicU64>),
    /// The bits of an `f64`.
    Gauge(Arc<AtomicU64>),
    Summary(Arc<Summary>),
}

/// Number and sum of what was measured.
#[derive(Debug, Default)]
struct Summary {
    count: AtomicU64,
    /// The bits of an `f64`.
    sum: AtomicU64,
}

impl HistogramFn for Summary {
    fn record(&self, value: f64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        GaugeFn::increment(&self.sum, value);
    }
}

impl Exporter {
    /// The one of this process; the first call makes it the recorder of the `metrics` crate.
    pub(crate) fn global() -> &'static Self {
        static EXPORTER: OnceLock<&'static Exporter> = OnceLock::new();
        EXPORTER.get_or_init(|| {
            let exporter: &'static Self = Box::leak(Box::default());
            if metrics::set_global_recorder(exporter).is_err() {
                tracing::warn!("metrics go to another recorder: /metrics stays empty");
            }
            exporter
        })
    }

    /// All values now.
    pub(crate) fn text(&self) -> String {
        let tables = self.tables();
        let mut text = String::new();
        for (name, series) in &tables.families {
            if let Some(description) = tables.descriptions.get(name) {
                let description = description.replace('\\', r"\\").replace('\n', r"\n");
                write_line(&mut text, format_args!("# HELP {name} {description}"));
            }
            let kind = match series.values().next() {
                Some(Value::Counter(_)) => "counter",
                Some(Value::Gauge(_)) | None => "gauge",
                Some(Value::Summary(_)) => "summary",
            };
            write_line(&mut text, format_args!("# TYPE {name} {kind}"));
            for (labels, value) in series {
                let f64_of = |bits: &AtomicU64| f64::from_bits(bits.load(Ordering::Relaxed));
                match value {
                    Value::Counter(count) => {
                        write_line(
                            &mut text,
                            format_args!("{name}{labels} {}", count.load(Ordering::Relaxed)),
                        );
                    }
                    Value::Gauge(bits) => {
                        write_line(&mut text, format_args!("{name}{labels} {}", f64_of(bits)));
                    }
                    Value::Summary(summary) => {
                        write_line(&mut text, format_args!("{name}_sum{labels} {}", f64_of(&summary.sum)));
                        let count = summary.count.load(Ordering::Relaxed);
                        write_line(&mut text, format_args!("{name}_count{labels} {count}"));
                    }
                }
            }
        }
        text
    }

    fn value(&self, key: &Key, make: impl FnOnce() -> Value) -> Value {
        let mut tables = self.tables();
        let series = tables.families.entry(key.name().to_owned()).or_default();
        series.entry(labels(key)).or_insert_with(make).clone()
    }

    fn describe(&self, key: &KeyName, description: &SharedString) {
        self.tables().descriptions.insert(key.as_str().to_owned(), description.to_string());
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A metric that is registered as another kind the second time is ignored then.
impl Recorder for Exporter {
    fn describe_counter(&self, key: KeyName, _unit: Option<Unit>, description: SharedString) {
        self.describe(&key, &description);
    }

    fn describe_gauge(&self, key: KeyName, _unit: Option<Unit>, description: SharedString) {
        self.describe(&key, &description);
    }

    fn describe_histogram(&self, key: KeyName, _unit: Option<Unit>, description: SharedString) {
        self.describe(&key, &description);
    }

    fn register_counter(&self, key: &Key, _metadata: &Metadata<'_>) -> Counter {
        match self.value(key, || Value::Counter(Arc::default())) {
            Value::Counter(count) => Counter::from_arc(count),
            Value::Gauge(_) | Value::Summary(_) => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _metadata: &Metadata<'_>) -> Gauge {
        match self.value(key, || Value::Gauge(Arc::default())) {
            Value::Gauge(bits) => Gauge::from_arc(bits),
            Value::Counter(_) | Value::Summary(_) => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _metadata: &Metadata<'_>) -> Histogram {
        match self.value(key, || Value::Summary(Arc::default())) {
            Value::Summary(summary) => Histogram::from_arc(summary),
            Value::Counter(_) | Value::Gauge(_) => Histogram::noop(),
        }
    }
}

/// The labels of a metric as they are written: `{node="source"}`, or nothing.
fn labels(key: &Key) -> String {
    let escape = |value: &str| value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    let pairs: Vec<String> =
        key.labels().map(|label| format!("{}=\"{}\"", label.key(), escape(label.value()))).collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

fn write_line(text: &mut String, line: Arguments<'_>) {
    if writeln!(text, "{line}").is_err() {
        // Only an allocation could fail here, and that ends the program by itself.
        tracing::error!("a metric cannot be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_written_as_prometheus_reads_them() {
        let exporter = Exporter::default();
        metrics::with_local_recorder(&exporter, || {
            metrics::describe_counter!("b_total", "blocks\nof a node");
            metrics::counter!("b_total", "node" => "source").absolute(7);
            metrics::counter!("b_total", "node" => "a \"b\" \\").increment(2);
            metrics::gauge!("a_bytes").set(1.5);
            metrics::histogram!("c_seconds").record(0.25);
            metrics::histogram!("c_seconds").record(0.5);
            metrics::gauge!("b_total", "node" => "source").set(99.0);
        });
        let expected = [
            "# TYPE a_bytes gauge",
            "a_bytes 1.5",
            r"# HELP b_total blocks\nof a node",
            "# TYPE b_total counter",
            r#"b_total{node="a \"b\" \\"} 2"#,
            r#"b_total{node="source"} 7"#,
            "# TYPE c_seconds summary",
            "c_seconds_sum 0.75",
            "c_seconds_count 2",
        ];
        assert_eq!(exporter.text().lines().collect::<Vec<_>>(), expected);
    }
}
