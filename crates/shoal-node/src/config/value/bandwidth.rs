//! Values of `[lake] bandwidth`.

use super::units::{format_rate, parse_rate};
use crate::config::{Bandwidth, BandwidthScope};

/// Stands behind a rate that the nodes of a cluster share.
const SHARED: &str = "shared";

pub(super) fn parse(text: &str) -> Option<Bandwidth> {
    let shared = text.strip_suffix(SHARED);
    Some(Bandwidth {
        bytes_per_second: parse_rate(shared.unwrap_or(text).trim_end())?,
        scope: match shared {
            Some(_) => BandwidthScope::Cluster,
            None => BandwidthScope::Node,
        },
    })
}

pub(super) fn format(bandwidth: &Bandwidth) -> String {
    let rate = format_rate(bandwidth.bytes_per_second);
    match bandwidth.scope {
        BandwidthScope::Node => rate,
        BandwidthScope::Cluster => format!("{rate} {SHARED}"),
    }
}
