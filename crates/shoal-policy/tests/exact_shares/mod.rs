//! The exact shares of the nodes of a ring.

use std::collections::BTreeMap;

use shoal_policy::NodeId;
use shoal_policy::ring::{PROBES, Ring};

const CIRCLE: f64 = (1_u64 << u32::BITS) as f64;

/// The exact fraction of all possible blocks to which each node is home.
///
/// The winning probe has the least distance to its point. The probability that a probe is further than d from
/// its point is S(d), the sum of the gaps between points after each is shortened by d. So the point behind a
/// gap g wins with ∫ k S(d)ᵏ⁻¹ dd from 0 to g; between one gap and the next longer one, S is a straight line.
pub(crate) fn exact_shares(ring: &Ring) -> BTreeMap<NodeId, f64> {
    let mut shares: BTreeMap<NodeId, f64> = ring.weights().keys().map(|&node| (node, 0.0)).collect();
    let points: Vec<(u32, NodeId)> = ring.points().collect();
    let before = points.iter().cycle().skip(points.len().saturating_sub(1));
    let gaps = points.iter().zip(before);
    let mut gaps: Vec<(u32, NodeId)> = gaps
        .map(|((place, owner), (before, _))| (place.wrapping_sub(*before), *owner))
        .collect();
    gaps.sort_unstable();
    let (mut gap_before, mut further_before, mut share) = (0.0, 1.0_f64, 0.0);
    for (shorter, &(gap, owner)) in gaps.iter().enumerate() {
        // A single point has the whole circle behind it.
        let gap = if gaps.len() == 1 {
            1.0
        } else {
            f64::from(gap) / CIRCLE
        };
        let longer = (gaps.len() - shorter) as f64;
        let further = further_before - longer * (gap - gap_before);
        share += (further_before.powi(PROBES as i32) - further.powi(PROBES as i32)) / longer;
        (gap_before, further_before) = (gap, further);
        *shares.entry(owner).or_default() += share;
    }
    shares
}
