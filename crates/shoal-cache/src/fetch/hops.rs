//! The outcomes of requests for blocks to other nodes.

use shoal_net::words;

words! {
    /// Outcome of one request to a peer, a *hop*. Except for the first, an outcome costs a read only time:
    /// the next stop of the route is asked.
    pub enum HopOutcome {
        /// The peer sent all requested bytes.
        Brought = "brought",
        /// The node had left the cluster before it was asked.
        Gone = "gone",
        /// The node refused: it does not hold the block, is busy, or would wait in a cycle.
        Refused = "refused",
        /// The node could not be reached.
        Unreachable = "unreachable",
        /// The node accepted a connection and did not answer in time.
        Silent = "silent",
        /// The node broke off in the middle of a block.
        BrokeOff = "broke-off",
        /// The node sent nothing for a while and did not answer a probe.
        Dead = "dead",
        /// The node is alive but sent nothing for a long time, so another source was asked, within the
        /// hedging budget.
        Stuck = "stuck",
    }
}
