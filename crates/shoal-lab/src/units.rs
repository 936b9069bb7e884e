//! Sizes (`"100GiB"`), rates (`"40Gbit/s"`) and times (`"90s"`) in the settings of experiments.

use std::time::Duration;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer};
use shoal_sim::units::{self, SIZE_FORM, TIME_FORM};

/// The form of a rate, for messages.
const RATE_FORM: &str =
    "a number and Kbit/s, Mbit/s, Gbit/s or a size a second, such as \"40Gbit/s\" or \"5GB/s\"";

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// Bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(pub f64);

fn parsed<'de, D, T>(deserializer: D, parse: fn(&str) -> Option<T>, form: &'static str) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&text), &form))
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, units::size, SIZE_FORM).map(Self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, units::span, TIME_FORM).map(Self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, units::rate, RATE_FORM).map(Self)
    }
}
