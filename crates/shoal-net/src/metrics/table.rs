//! The table of metrics: the name, the help and the labels of each metric, and how it is read.
//!
//! `/metrics` reads each metric of a table when it is asked for, so a counter needs one line where it counts
//! and one in the table. A test compares `docs/reference/metrics.md` with the tables.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
pub use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::histogram::HistogramSnapshot;

/// A metric that is read from an `S`.
#[derive(Debug)]
pub struct Observed<S: 'static> {
    /// The name without the prefix `shoal_` and the suffix `_total`. It ends with its unit, if it has one.
    pub name: &'static str,
    /// The sentence after `# HELP`.
    pub help: &'static str,
    /// The names of the labels.
    pub labels: &'static [&'static str],
    /// A counter grows from the start of the process; `_total` is added to its name.
    pub kind: MetricType,
    /// Returns a sample for each combination of labels. A metric without samples is not shown.
    pub read: fn(&S) -> Vec<Sample>,
}

/// A value of a metric.
#[derive(Clone, Debug)]
pub struct Sample {
    /// A value for each label of the metric, in its order.
    labels: Vec<String>,
    value: Value,
}

/// A number, or a distribution of durations.
#[derive(Clone, Debug)]
pub enum Value {
    /// A count, or an amount in the metric's unit.
    Whole(u64),
    /// An amount in the metric's unit.
    Fraction(f64),
    /// Durations, shown in seconds.
    Durations(Box<HistogramSnapshot>),
}

impl<S> Observed<S> {
    /// Returns the name in `/metrics` with the names of the labels, such as `shoal_evictions_total{reason}`.
    pub fn series(&self) -> String {
        let name = self.name;
        let total = if let MetricType::Counter = self.kind {
            "_total"
        } else {
            ""
        };
        match self.labels {
            [] => format!("shoal_{name}{total}"),
            labels => format!("shoal_{name}{total}{{{}}}", labels.join(",")),
        }
    }
}

/// Declares a table: `Counter NAME{LABELS} HELP => |source| samples;` for each metric.
#[macro_export]
macro_rules! observed {
    ($(#[$doc:meta])* $table:ident of $source:ty:
        $($kind:ident $name:ident{$($label:ident),*} $help:literal => |$from:ident| $read:expr;)*) => {
        $(#[$doc])*
        pub static $table: &[$crate::metrics::Observed<$source>] = &[$($crate::metrics::Observed {
            name: stringify!($name),
            help: $help,
            labels: &[$(stringify!($label)),*],
            kind: $crate::metrics::MetricType::$kind,
            read: |$from: &$source| $read,
        },)*];
    };
}

/// Returns the sample of a metric without labels.
pub fn one(value: impl Into<Value>) -> Vec<Sample> {
    let value = value.into();
    vec![Sample {
        labels: Vec::new(),
        value,
    }]
}

/// Returns a sample for each pair of label and value. Several labels are an array.
pub fn each<L: LabelValues, V: Into<Value>>(values: impl IntoIterator<Item = (L, V)>) -> Vec<Sample> {
    let sample = |(labels, value): (L, V)| Sample {
        labels: labels.texts(),
        value: value.into(),
    };
    values.into_iter().map(sample).collect()
}

/// The values of a sample's labels.
pub trait LabelValues {
    /// Returns one text for each label.
    fn texts(self) -> Vec<String>;
}

impl LabelValues for &str {
    fn texts(self) -> Vec<String> {
        vec![self.to_owned()]
    }
}

impl LabelValues for String {
    fn texts(self) -> Vec<String> {
        vec![self]
    }
}

impl<T: Into<String>, const N: usize> LabelValues for [T; N] {
    fn texts(self) -> Vec<String> {
        self.map(Into::into).into()
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Whole(number as u64)
    }
}

impl From<bool> for Value {
    fn from(holds: bool) -> Self {
        Self::Whole(u64::from(holds))
    }
}

impl From<f64> for Value {
    fn from(amount: f64) -> Self {
        Self::Fraction(amount)
    }
}

impl From<HistogramSnapshot> for Value {
    fn from(durations: HistogramSnapshot) -> Self {
        Self::Durations(Box::new(durations))
    }
}

impl Value {
    fn encode(&self, kind: MetricType, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        match (self, kind) {
            (Self::Whole(number), MetricType::Counter) => {
                encoder.encode_counter::<NoLabelSet, _, u64>(number, None)
            }
            (Self::Whole(number), _) => encoder.encode_gauge(number),
            (Self::Fraction(amount), MetricType::Counter) => {
                encoder.encode_counter::<NoLabelSet, _, u64>(amount, None)
            }
            (Self::Fraction(amount), _) => encoder.encode_gauge(amount),
            (Self::Durations(durations), _) => durations.encode(encoder),
        }
    }
}

/// Renders the metrics of a table, and the version of the software, in the text format of `OpenMetrics`.
pub fn render<S: Send + Sync + 'static>(table: &'static [Observed<S>], source: S) -> String {
    render_all([scrape(table, source)])
}

/// Renders several tables as [`render`] does one.
pub fn render_all(scrapes: impl IntoIterator<Item = Box<dyn Collector>>) -> String {
    let mut registry = Registry::with_prefix("shoal");
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "Version of the running node", version);
    for scrape in scrapes {
        registry.register_collector(scrape);
    }
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a string does not fail");
    text
}

/// Returns a reading of a table, for [`render_all`].
pub fn scrape<S: Send + Sync + 'static>(table: &'static [Observed<S>], source: S) -> Box<dyn Collector> {
    Box::new(Scrape { table, source })
}

/// Reads a table once.
struct Scrape<S: 'static> {
    table: &'static [Observed<S>],
    source: S,
}

impl<S> fmt::Debug for Scrape<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").finish_non_exhaustive()
    }
}

impl<S: Send + Sync + 'static> Collector for Scrape<S> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in self.table {
            let samples = (metric.read)(&self.source);
            if samples.is_empty() {
                continue;
            }
            let mut encoder = encoder.encode_descriptor(metric.name, metric.help, None, metric.kind)?;
            for Sample { labels, value } in &samples {
                debug_assert_eq!(labels.len(), metric.labels.len(), "{}", metric.name);
                if labels.is_empty() {
                    value.encode(metric.kind, &mut encoder)?;
                    continue;
                }
                let labels: Vec<(&str, &String)> = metric.labels.iter().copied().zip(labels).collect();
                value.encode(metric.kind, &mut encoder.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// Counts of events by label.
#[derive(Debug)]
pub struct Tally<L>(Mutex<BTreeMap<L, u64>>);

impl<L> Default for Tally<L> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<L: Copy + Ord> Tally<L> {
    /// Counts an event.
    pub fn count(&self, label: L) {
        *self.0.lock().entry(label).or_default() += 1;
    }

    /// Returns the counts since the start, without labels that never occurred.
    pub fn counts(&self) -> BTreeMap<L, u64> {
        self.0.lock().clone()
    }
}
