//! Values of `[lake] bandwidth` and `[lake] bandwidth_scope`.

use toml::Value as Toml;

use super::Value;
use crate::config::units::{format_rate, parse_rate};
use crate::config::{Bandwidth, BandwidthScope};

impl Value for Bandwidth {
    const WRITE: &'static str = "write a rate as a whole number and kbit, Mbit, Gbit, KB, MB or GB a second, such as \"10Gbit\" or \"1250MB\"";

    fn from_text(text: &str) -> Option<Self> {
        let bytes_per_second = parse_rate(text)?;
        Some(Self { bytes_per_second })
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(Toml::String(format_rate(self.bytes_per_second)))
    }
}

impl Value for BandwidthScope {
    const WRITE: &'static str = "write \"node\" or \"cluster\"";

    fn from_text(text: &str) -> Option<Self> {
        Self::of_word(text)
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(Toml::String(self.as_str().into()))
    }
}
