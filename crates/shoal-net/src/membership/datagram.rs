//! Authenticated datagrams: each carries proof that its sender knows the cluster's secret.
//!
//! ```text
//! | magic 4 | seconds since 1970 u64 | proofs u8 | first half of HMAC-SHA-256 16, for each proof | gossip |
//! ```
//!
//! A node that knows two secrets sends a proof for each, so that the receiver may know either. A proof covers
//! everything but the proofs. Nothing is encrypted: names and addresses of nodes are not secret.
//!
//! A recorded datagram can be replayed until its timestamp is older than the permitted clock difference. Such
//! a replay changes no member, because updates about a node are ordered by generation and incarnation. A
//! replayed digest of settings counts until the node it describes sends its digests again.

use std::time::{Duration, SystemTime};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use shoal_base::moment::since_1970;
use subtle::ConstantTimeEq;

use crate::words;

const MAGIC: [u8; 4] = *b"shg2";
const PROOF_BYTES: usize = 16;
/// One proof with the current secret, and one with the previous secret during a rotation.
const PROOFS_MAX: usize = 2;
const HEAD_BYTES: usize = MAGIC.len() + size_of::<u64>() + 1;

/// Maximum number of bytes that proofs add to gossip.
pub(super) const ENVELOPE_BYTES: usize = HEAD_BYTES + PROOFS_MAX * PROOF_BYTES;

/// Maximum clock difference between two nodes; the same as between a client and a node.
const SKEW_MAX: Duration = Duration::from_mins(15);

/// Signs datagrams and verifies that they come from the cluster.
#[derive(Clone)]
pub struct ClusterKey(Vec<Hmac<Sha256>>);

words! {
    /// Why a datagram is rejected.
    #[derive(thiserror::Error)]
    pub enum RejectReason {
        /// It is not a Shoal datagram.
        #[error("it is not a message of a Shoal node")]
        NotOurs = "not-ours",
        /// Its proof does not match.
        #[error("it was sent with another cluster secret")]
        OtherSecret = "other-secret",
        /// It is too old, or the clocks differ.
        #[error("its time is more than 15 minutes from ours")]
        OutOfTime = "out-of-time",
        /// Its proof is valid, but its message cannot be parsed.
        #[error("it says nothing that this version understands")]
        Unintelligible = "unintelligible",
    }
}

impl RejectReason {
    /// Returns advice for an operator.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::NotOurs => {
                "let a firewall keep everything but other nodes from the port of [cooperation] listen"
            }
            Self::OtherSecret => {
                "write the same [cooperation] secret_key on every node of a cluster; a node of another cluster should \
                 have no seed here"
            }
            Self::OutOfTime => "set the clocks of both machines (NTP)",
            Self::Unintelligible => "run the same release on every node",
        }
    }
}

impl ClusterKey {
    /// Creates the key of a cluster whose nodes know one of `secrets`.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let key = |secret: &str| {
            // Connections between nodes derive keys from the same secret: the prefix keeps one from being
            // replayed as the other.
            let key = [b"shoal gossip ", secret.as_bytes()].concat();
            Hmac::new_from_slice(&key).expect("a key may have any length")
        };
        Self(secrets.into_iter().take(PROOFS_MAX).map(key).collect())
    }

    /// Returns `gossip` with its proofs in front.
    pub(super) fn seal(&self, gossip: &[u8], now: SystemTime) -> Vec<u8> {
        let head = [&MAGIC[..], &seconds(now).to_le_bytes(), &[self.0.len() as u8]].concat();
        let proofs: Vec<_> = self.proofs(&head, gossip).collect();
        debug_assert!(
            head.len() + proofs.as_flattened().len() <= ENVELOPE_BYTES,
            "gossip leaves room for proofs"
        );
        [&head, proofs.as_flattened(), gossip].concat()
    }

    /// Verifies a datagram and returns its message.
    pub(super) fn open<'a>(&self, datagram: &'a [u8], now: SystemTime) -> Result<&'a [u8], RejectReason> {
        let (head, rest) = datagram
            .split_at_checked(HEAD_BYTES)
            .ok_or(RejectReason::NotOurs)?;
        let (magic, rest_of_head) = head.split_at(MAGIC.len());
        let (sent, count) = rest_of_head.split_first_chunk().ok_or(RejectReason::NotOurs)?;
        let count = usize::from(count[0]);
        if magic != MAGIC || !(1..=PROOFS_MAX).contains(&count) {
            return Err(RejectReason::NotOurs);
        }
        let (theirs, gossip) = rest
            .split_at_checked(count * PROOF_BYTES)
            .ok_or(RejectReason::NotOurs)?;
        let (theirs, _) = theirs.as_chunks::<PROOF_BYTES>();
        let is_proven = |ours: [u8; PROOF_BYTES]| theirs.iter().any(|proof| proof.ct_eq(&ours).into());
        if !self.proofs(head, gossip).any(is_proven) {
            return Err(RejectReason::OtherSecret);
        }
        if u64::from_le_bytes(*sent).abs_diff(seconds(now)) > SKEW_MAX.as_secs() {
            return Err(RejectReason::OutOfTime);
        }
        Ok(gossip)
    }

    fn proofs(&self, head: &[u8], gossip: &[u8]) -> impl Iterator<Item = [u8; PROOF_BYTES]> {
        self.0.iter().map(move |key| {
            let mut mac = key.clone();
            mac.update(head);
            mac.update(gossip);
            let whole = mac.finalize().into_bytes();
            *whole.first_chunk().expect("SHA-256 has 32 bytes")
        })
    }
}

/// Returns how many seconds the clock of a datagram's sender is ahead of `now`. Meaningful only if the proof
/// is valid.
pub(super) fn seconds_ahead(datagram: &[u8], now: SystemTime) -> Option<i64> {
    let sent = *datagram.get(MAGIC.len()..)?.first_chunk()?;
    let signed = |seconds: u64| i64::try_from(seconds).ok();
    Some(signed(u64::from_le_bytes(sent))?.saturating_sub(signed(seconds(now))?))
}

fn seconds(time: SystemTime) -> u64 {
    since_1970(time).as_secs()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{ClusterKey, HEAD_BYTES, PROOF_BYTES, RejectReason, seconds_ahead};

    fn key(secret: &str) -> ClusterKey {
        ClusterKey::new([secret])
    }

    fn noon() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)
    }

    #[test]
    fn a_sealed_datagram_opens_only_with_the_secret() {
        let datagram = key("one").seal(b"gossip", noon());
        assert_eq!(datagram.len(), HEAD_BYTES + PROOF_BYTES + 6);
        assert_eq!(key("one").open(&datagram, noon()), Ok(&b"gossip"[..]));
        assert_eq!(key("two").open(&datagram, noon()), Err(RejectReason::OtherSecret));
        assert_eq!(key("").open(&datagram, noon()), Err(RejectReason::OtherSecret));
    }

    #[test]
    fn a_node_that_knows_two_secrets_and_those_that_know_either_hear_each_other() {
        let both = ClusterKey::new(["new", "old"]);
        for one in ["new", "old"] {
            let datagram = key(one).seal(b"gossip", noon());
            assert_eq!(both.open(&datagram, noon()), Ok(&b"gossip"[..]));
            let datagram = both.seal(b"gossip", noon());
            assert_eq!(key(one).open(&datagram, noon()), Ok(&b"gossip"[..]));
        }
        let datagram = both.seal(b"gossip", noon());
        assert_eq!(
            key("other").open(&datagram, noon()),
            Err(RejectReason::OtherSecret)
        );
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let datagram = key("one").seal(b"gossip", noon());
        for bit in 0..datagram.len() * 8 {
            let mut flipped = datagram.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(key("one").open(&flipped, noon()).is_err(), "bit {bit}");
        }
        for end in 0..datagram.len() {
            assert!(key("one").open(&datagram[..end], noon()).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn old_datagrams_are_not_heard() {
        let datagram = key("one").seal(b"gossip", noon());
        let after = |minutes| key("one").open(&datagram, noon() + Duration::from_mins(minutes));
        assert!(after(15).is_ok());
        assert_eq!(after(16), Err(RejectReason::OutOfTime));
        let before = key("one").open(&datagram, noon() - Duration::from_mins(16));
        assert_eq!(before, Err(RejectReason::OutOfTime));
        assert_eq!(
            seconds_ahead(&datagram, noon() - Duration::from_mins(16)),
            Some(960)
        );
        assert_eq!(
            seconds_ahead(&datagram, noon() + Duration::from_mins(16)),
            Some(-960)
        );
    }
}
