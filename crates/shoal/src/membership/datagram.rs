//! Who is heard: a datagram carries proof that its sender knows the cluster's secret.
//!
//! ```text
//! | magic 4 | seconds since 1970 u64 | first half of HMAC-SHA-256 16 | gossip |
//! ```
//!
//! The proof covers everything else. It hides nothing: names and addresses of nodes are no secrets. A datagram heard twice says nothing
//! new, as news about a node are ordered by its generation; one that is older than clocks may differ is not heard at all.

use std::time::{Duration, SystemTime};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::secret::Secret;

const MAGIC: [u8; 4] = *b"shg1";
const PROOF_BYTES: usize = 16;
const HEAD_BYTES: usize = MAGIC.len() + size_of::<u64>();

/// How many bytes the proof adds to gossip.
pub(super) const ENVELOPE_BYTES: usize = HEAD_BYTES + PROOF_BYTES;

/// Clocks of two nodes may differ by this much, as those of a client and a node may.
const SKEW_MAX: Duration = Duration::from_mins(15);

/// Proves and checks that datagrams come from the cluster.
#[derive(Clone)]
pub struct ClusterKey(Hmac<Sha256>);

/// Why a datagram is not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stranger {
    /// It is no datagram of ours.
    #[error("it is not a message of a Shoal node")]
    NotOurs,
    /// Its proof is wrong.
    #[error("it was sent with another cluster secret")]
    OtherSecret,
    /// It was sent long ago, or the clocks differ.
    #[error("its time is more than 15 minutes from ours")]
    OutOfTime,
    /// It proves itself and says nothing that can be understood.
    #[error("it says nothing that this version understands")]
    Unintelligible,
}

impl Stranger {
    /// Every reason.
    pub const ALL: [Self; 4] = [
        Self::NotOurs,
        Self::OtherSecret,
        Self::OutOfTime,
        Self::Unintelligible,
    ];

    /// The word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotOurs => "not-ours",
            Self::OtherSecret => "other-secret",
            Self::OutOfTime => "out-of-time",
            Self::Unintelligible => "unintelligible",
        }
    }

    /// What to do about it.
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

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKey")
    }
}

impl ClusterKey {
    /// The key of the cluster whose nodes know `secret`; without one, of a cluster on this machine that anybody here can join.
    pub fn new(secret: Option<&Secret>) -> Self {
        let secret = secret.map_or("", Secret::expose);
        // Signatures between nodes begin with the same secret: neither may be taken for the other.
        let key = [b"shoal gossip ", secret.as_bytes()].concat();
        Self(Hmac::new_from_slice(&key).expect("a key may have any length"))
    }

    /// `gossip` with its proof.
    pub(super) fn seal(&self, gossip: &[u8], now: SystemTime) -> Vec<u8> {
        let mut datagram = Vec::with_capacity(ENVELOPE_BYTES + gossip.len());
        datagram.extend_from_slice(&MAGIC);
        datagram.extend_from_slice(&seconds(now).to_le_bytes());
        let proof = self.proof(&datagram, gossip);
        datagram.extend_from_slice(&proof);
        datagram.extend_from_slice(gossip);
        datagram
    }

    /// What a datagram says, if it comes from the cluster.
    pub(super) fn open<'a>(&self, datagram: &'a [u8], now: SystemTime) -> Result<&'a [u8], Stranger> {
        let (head, rest) = datagram.split_at_checked(HEAD_BYTES).ok_or(Stranger::NotOurs)?;
        let (proof, gossip) = rest.split_at_checked(PROOF_BYTES).ok_or(Stranger::NotOurs)?;
        let (magic, sent) = head.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(Stranger::NotOurs);
        }
        if !bool::from(self.proof(head, gossip).ct_eq(proof)) {
            return Err(Stranger::OtherSecret);
        }
        let sent = u64::from_le_bytes(sent.try_into().expect("the head ends with eight bytes"));
        if sent.abs_diff(seconds(now)) > SKEW_MAX.as_secs() {
            return Err(Stranger::OutOfTime);
        }
        Ok(gossip)
    }

    fn proof(&self, head: &[u8], gossip: &[u8]) -> [u8; PROOF_BYTES] {
        let mut mac = self.0.clone();
        mac.update(head);
        mac.update(gossip);
        let whole = mac.finalize().into_bytes();
        *whole.first_chunk().expect("SHA-256 has 32 bytes")
    }
}

/// By how many seconds the clock of a datagram's sender is ahead of `now`. Only of use where the proof is right.
pub(super) fn seconds_ahead(datagram: &[u8], now: SystemTime) -> Option<i64> {
    let sent = datagram.get(MAGIC.len()..HEAD_BYTES)?.try_into().ok()?;
    let signed = |seconds: u64| i64::try_from(seconds).ok();
    Some(signed(u64::from_le_bytes(sent))?.saturating_sub(signed(seconds(now))?))
}

fn seconds(time: SystemTime) -> u64 {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH);
    since_1970.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{ClusterKey, ENVELOPE_BYTES, Stranger, seconds_ahead};
    use crate::secret::Secret;

    fn key(secret: &str) -> ClusterKey {
        ClusterKey::new(Some(&Secret::new(secret)))
    }

    fn noon() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)
    }

    #[test]
    fn what_is_sealed_is_heard_by_those_who_know_the_secret_and_nobody_else() {
        let datagram = key("one").seal(b"gossip", noon());
        assert_eq!(datagram.len(), ENVELOPE_BYTES + 6);
        assert_eq!(key("one").open(&datagram, noon()), Ok(&b"gossip"[..]));
        assert_eq!(key("two").open(&datagram, noon()), Err(Stranger::OtherSecret));
        let open = ClusterKey::new(None);
        assert_eq!(open.open(&datagram, noon()), Err(Stranger::OtherSecret));
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
        assert_eq!(after(16), Err(Stranger::OutOfTime));
        let before = key("one").open(&datagram, noon() - Duration::from_mins(16));
        assert_eq!(before, Err(Stranger::OutOfTime));
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
