//! Values of `[lake] bandwidth`.

use toml::Value as Toml;

use super::Value;
use super::units::{format_rate, parse_rate};
use crate::config::{Bandwidth, BandwidthScope};

/// Stands behind a rate that the nodes of a cluster share.
const SHARED: &str = "shared";

impl Value for Bandwidth {
    const WRITE: &'static str = "write a rate as a whole number and kbit, Mbit, Gbit, KB, MB or GB a second, such as \"10Gbit\" or \"1250MB\"; with shared behind it for what all nodes have together";

    fn from_text(text: &str) -> Option<Self> {
        let shared = text.strip_suffix(SHARED);
        Some(Self {
            bytes_per_second: parse_rate(shared.unwrap_or(text).trim_end())?,
            scope: match shared {
                Some(_) => BandwidthScope::Cluster,
                None => BandwidthScope::Node,
            },
        })
    }

    fn to_toml(&self) -> Option<Toml> {
        let rate = format_rate(self.bytes_per_second);
        Some(Toml::String(match self.scope {
            BandwidthScope::Node => rate,
            BandwidthScope::Cluster => format!("{rate} {SHARED}"),
        }))
    }
}
