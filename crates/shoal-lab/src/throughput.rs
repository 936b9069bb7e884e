//! The throughput of a cluster of caches as a function of its miss ratios (dissertation 2.4, equation 2.1;
//! D3N, eq. 1).
//!
//! Each node caches for its own clients (L1) with one part of its room and for all nodes together (L2) with
//! the rest. A byte takes time 1/r, where r is the rate of its source, so the overall rate is the harmonic
//! mean of the sources' rates, weighted by the fraction that each serves.
//!
//! **As printed, the equation is wrong in its second term.** It is 1/((1 - m1)/rL1 + (1 - m1 - m2)/rL2 +
//! m2/rDL), where m1 is the part of requests that a cache of L1's size misses and m2 the part that a cache of
//! the size of all L2s misses. L2 serves the requests that L1 misses and L2 does not, m1 - m2: then the
//! fractions add up to 1; as printed they add up to 2 - 2m1. The two agree only where m1 is a half. For
//! requests of which nine in ten are for something read before (the curve in the tests), eight nodes and the
//! published rates:
//!
//! | | all room for L1 | half each | all room for L2 | the best |
//! |---|---|---|---|---|
//! | as derived | 17.7 Gbit/s | 22.7 | 20.0 | 22.7: 28% above L1, 13% above L2 |
//! | as printed | 10.7 | 26.6 | 50.7, faster than any source | 50.7, all for L2, against the paper's figure |
//!
//! **And its last term is wrong where L1 is the larger.** With little or no L2, m2 exceeds m1, and is 1
//! without any L2, while the lake serves no more requests than L1 misses. A request reaches the lake when it
//! misses both, and of two LRU caches the larger holds everything that the smaller holds: that is min(m1,
//! m2). Without this correction, the left end of the figure, all room for L1, would be below the rate of the
//! lake.
//!
//! As the paper says, the model ignores two things: that rates depend on load, and that racks may prefer
//! different data.

use shoal_policy::mrc::MissCurve;

/// The rate of each source, all in the same unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// The reader's own node.
    pub l1: f64,
    /// Another node of the cluster.
    pub l2: f64,
    /// The lake.
    pub lake: f64,
}

impl Rates {
    /// The rates of the published figure, in Gbit/s: 40 Gbit switches in racks, half of that between racks,
    /// the lake at 10.
    pub const PUBLISHED: Self = Self {
        l1: 40.0,
        l2: 20.0,
        lake: 10.0,
    };
}

/// The fraction of all bytes that each source serves; the fractions add up to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// The reader's own node.
    pub l1: f64,
    /// Another node of the cluster.
    pub l2: f64,
    /// The lake.
    pub lake: f64,
}

impl Served {
    /// Computes the fractions from the miss ratios that L1 and L2 would each have alone.
    pub const fn from_miss_ratios(l1_missed: f64, l2_missed: f64) -> Self {
        let lake = l1_missed.min(l2_missed);
        Self {
            l1: 1.0 - l1_missed,
            l2: l1_missed - lake,
            lake,
        }
    }

    /// Computes the fractions for `nodes` nodes that each give `l1_bytes` of their `node_bytes` to L1, from
    /// the miss-ratio curve of the requests of all nodes together. The curve must cover the room of all
    /// nodes.
    ///
    /// L1 ranges from all of the room, where each node caches for itself, down to 1/`nodes` of it, where all
    /// room is shared: a node is home to that fraction of the blocks, and serves them to its own clients as
    /// L1 would.
    pub fn by(curve: &MissCurve, node_bytes: u64, l1_bytes: u64, nodes: u64) -> Self {
        Self::from_miss_ratios(
            curve.ratio(l1_bytes),
            curve.ratio((node_bytes - l1_bytes) * nodes),
        )
    }

    /// The average rate in the unit of `rates`.
    pub fn rate(self, rates: Rates) -> f64 {
        1.0 / (self.l1 / rates.l1 + self.l2 / rates.l2 + self.lake / rates.lake)
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::mrc::MissCurve;

    use super::{Rates, Served};

    const NODE_BYTES: u64 = 1_000_000_000_000;

    /// Nine of ten requests are for something read before, most of it lately; holding all of it takes four
    /// nodes.
    fn nine_of_ten() -> MissCurve {
        MissCurve::from_fn(16 * NODE_BYTES, 1e6, |size_bytes| {
            let recent = |size: f64| (1.0 + 10.0 * size).ln();
            1.0 - 0.9 * (recent(size_bytes as f64 / NODE_BYTES as f64) / recent(4.0)).min(1.0)
        })
    }

    fn rate(nodes: u64, l1_bytes: u64) -> f64 {
        Served::by(&nine_of_ten(), NODE_BYTES, l1_bytes, nodes).rate(Rates::PUBLISHED)
    }

    /// The best rate of a split, in relation to all room for L1 and to all for L2.
    fn gains(nodes: u64) -> (f64, f64) {
        let least = NODE_BYTES / nodes;
        let splits = (0..=1000).map(|step| least + (NODE_BYTES - least) / 1000 * step);
        let best = splits.map(|l1_bytes| rate(nodes, l1_bytes)).fold(0.0, f64::max);
        (best / rate(nodes, NODE_BYTES), best / rate(nodes, least))
    }

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-9
    }

    #[test]
    fn the_shares_of_the_sources_add_up() {
        for l1_missed in (0..=10).map(|tenths| f64::from(tenths) / 10.0) {
            for l2_missed in (0..=10).map(|tenths| f64::from(tenths) / 10.0) {
                let served = Served::from_miss_ratios(l1_missed, l2_missed);
                assert!(close(served.l1 + served.l2 + served.lake, 1.0));
                assert!(served.l1 >= 0.0 && served.l2 >= 0.0 && served.lake >= 0.0);
                let rate = served.rate(Rates::PUBLISHED);
                assert!((10.0..=40.0).contains(&rate), "{rate} is faster than a source");
            }
        }
    }

    #[test]
    fn a_hand_made_example() {
        let served = Served::from_miss_ratios(0.8, 0.1);
        assert!(close(served.l1, 0.2) && close(served.l2, 0.7) && close(served.lake, 0.1));
        assert!(close(
            served.rate(Rates::PUBLISHED),
            1.0 / (0.2 / 40.0 + 0.7 / 20.0 + 0.1 / 10.0)
        ));
    }

    #[test]
    fn without_l2_the_lake_serves_what_l1_misses() {
        let served = Served::by(&nine_of_ten(), NODE_BYTES, NODE_BYTES, 8);
        assert!(close(served.l2, 0.0) && close(served.lake, nine_of_ten().ratio(NODE_BYTES)));
    }

    #[test]
    fn the_table_above() {
        let rates = [NODE_BYTES, NODE_BYTES / 2, NODE_BYTES / 8].map(|l1_bytes| rate(8, l1_bytes));
        for (rate, expected) in rates.into_iter().zip([17.7, 22.7, 20.0]) {
            assert!((rate - expected).abs() < 0.05, "{rate}, not {expected}");
        }
    }

    #[test]
    fn two_layers_beat_either_one_from_four_nodes_on_and_the_more_the_more_nodes() {
        let gains: Vec<(f64, f64)> = [2, 4, 8, 16].map(gains).into();
        assert!(close(gains[0].0, 1.0), "two nodes are best off alone");
        for nodes in gains[1..].windows(2) {
            assert!(nodes[0].0 > 1.1 && nodes[0].1 > 1.0);
            assert!(nodes[1].0 > nodes[0].0 && nodes[1].1 > nodes[0].1);
        }
    }
}
