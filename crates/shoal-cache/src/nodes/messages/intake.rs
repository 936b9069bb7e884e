//! Limits the rate of bytes accepted from each peer. Pure.

use std::collections::HashMap;
use std::time::Duration;

use shoal_policy::NodeId;
use shoal_policy::link::Bucket;

use super::batch::BATCH_BYTES;

/// Sustained rate accepted from one node: twice that of 5,000 C2P events a second.
const BYTES_PER_SECOND: u64 = 512 << 10;

/// Burst accepted from one node.
const BURST_BYTES: u64 = 16 * BATCH_BYTES as u64;

/// Bytes that each node may send now.
pub(super) type Intake = HashMap<NodeId, Bucket>;

/// Returns true if a batch of this length is accepted from `sender`, and charges it.
pub(super) fn admits(intake: &mut Intake, sender: NodeId, bytes: usize, now: Duration) -> bool {
    let full = || Bucket::new(BYTES_PER_SECOND, BURST_BYTES, now);
    let allowance = intake.entry(sender).or_insert_with(full);
    allowance.refill(now);
    allowance.take_if_enough(bytes as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shoal_policy::NodeId;

    use super::{BATCH_BYTES, Intake, admits};

    /// Counts the full batches accepted at `ms` before the first refusal.
    fn taken(intake: &mut Intake, sender: u64, ms: u64) -> usize {
        let now = Duration::from_millis(ms);
        (0..1_000)
            .take_while(|_| admits(intake, NodeId(sender), BATCH_BYTES, now))
            .count()
    }

    #[test]
    fn a_node_that_sends_too_much_is_held_to_a_rate_and_others_are_not() {
        let mut intake = Intake::default();
        assert_eq!(taken(&mut intake, 1, 0), 16);
        assert_eq!(taken(&mut intake, 1, 0), 0);
        assert_eq!(taken(&mut intake, 2, 0), 16);
        let in_quarter = (512 << 10) / 4 / BATCH_BYTES;
        assert_eq!(taken(&mut intake, 1, 250), in_quarter);
        assert_eq!(taken(&mut intake, 1, 60_000), 16, "no more than at once");
        assert_eq!(taken(&mut intake, 1, 0), 0, "time does not go back");
        assert_eq!(intake.len(), 2);
    }
}
