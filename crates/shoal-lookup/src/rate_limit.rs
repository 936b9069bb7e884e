//! Limits the answers per client network, so that the name server cannot be used to attack another network or
//! be monopolised by one.
//!
//! A datagram's source can be forged: then the answer goes to a victim, and may be many times longer than the
//! question. So the answers to one network are limited; beyond the limit they are truncated to the size of
//! the question, which makes clients retry over TCP.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use shoal_net::words;

/// Answers a second over UDP to one network: more than the clients of a site need, whose resolver asks once
/// in a TTL, and too few to flood a victim.
pub const UDP_RATE: u32 = 200;

/// The maximum number of tracked networks. Idle ones are forgotten first.
const NETWORKS_MAX: usize = 16_384;

/// The burst of an idle network, in seconds' worth of answers.
const BURST_SECONDS: u32 = 2;

/// The number of truncated answers beyond the limit, as a multiple of it; further questions get no answer.
const TRUNCATED_TIMES: u32 = 5;

/// The addresses that share a limit: a /24 or a /56, the usual size of one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(u128);

impl Network {
    /// The network of an address.
    pub fn containing(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => u128::from(u32::from(address) >> 8),
            // No IPv6 address of the Internet has a number as small as those above.
            IpAddr::V6(address) => u128::from(address) >> 72 << 72 | 1 << 64,
        })
    }
}

words! {
    /// How an answer over UDP is sent.
    pub enum Allowance {
        /// The answer is sent.
        Whole = "whole",
        /// Only header and question are sent, marked as truncated, so that the client retries over TCP.
        Truncated = "truncated",
        /// Nothing is sent.
        Silence = "none",
    }
}

/// Counts answers by network.
#[derive(Debug)]
pub struct RateLimiter {
    answers_per_second: u32,
    buckets: HashMap<Network, Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Remaining answers, in thousandths; when negative, answers are truncated.
    left: i64,
    filled_at: Instant,
}

impl RateLimiter {
    /// Creates a limiter of `answers_per_second` for each network.
    pub fn new(answers_per_second: u32) -> Self {
        Self {
            answers_per_second,
            buckets: HashMap::new(),
        }
    }

    /// Decides how one more answer to `address` is sent.
    pub fn allow(&mut self, address: IpAddr, now: Instant) -> Allowance {
        if self.buckets.len() >= NETWORKS_MAX {
            self.forget_rested(now);
        }
        let rate = i64::from(self.answers_per_second);
        let full = 1000 * rate * i64::from(BURST_SECONDS);
        let empty = -1000 * rate * i64::from(TRUNCATED_TIMES);
        let bucket = self
            .buckets
            .entry(Network::containing(address))
            .or_insert(Bucket {
                left: full,
                filled_at: now,
            });
        let passed_ms = now.saturating_duration_since(bucket.filled_at).as_millis() as i64;
        if passed_ms > 0 {
            // Debt from truncated answers is forgiven sooner than that from whole ones.
            let times = if bucket.left < 0 {
                i64::from(TRUNCATED_TIMES)
            } else {
                1
            };
            bucket.left = bucket
                .left
                .saturating_add(passed_ms.saturating_mul(rate) * times)
                .min(full);
            bucket.filled_at = now;
        }
        debug_assert!(
            (empty..=full).contains(&bucket.left),
            "a bucket is between empty and full"
        );
        if bucket.left - 1000 < empty {
            return Allowance::Silence;
        }
        bucket.left -= 1000;
        if bucket.left >= 0 {
            Allowance::Whole
        } else {
            Allowance::Truncated
        }
    }

    /// Forgets networks whose buckets are full again. If there are still too many, forgets all of them,
    /// because such a flood is indistinguishable from that many clients.
    fn forget_rested(&mut self, now: Instant) {
        let rest = Duration::from_secs(u64::from(BURST_SECONDS + TRUNCATED_TIMES));
        self.buckets
            .retain(|_, bucket| now.saturating_duration_since(bucket.filled_at) < rest);
        if self.buckets.len() >= NETWORKS_MAX {
            self.buckets.clear();
        }
        debug_assert!(
            self.buckets.len() < NETWORKS_MAX,
            "the tracked networks are bounded"
        );
    }
}

/// Returns the header and the question of `answer`, with the truncation bit set.
pub fn truncated(answer: &[u8]) -> Option<Vec<u8>> {
    const HEAD_BYTES: usize = 12;
    const TRUNCATED: u8 = 0b10;
    let mut end = HEAD_BYTES;
    if answer.get(4..6)? == [0, 1] {
        // Labels, the type and the class; a compression pointer has no earlier name to point at.
        while *answer.get(end)? != 0 {
            end += 1 + usize::from(answer[end]);
        }
        end += 1 + 4;
    }
    let mut short = answer.get(..end)?.to_vec();
    short[2] |= TRUNCATED;
    short[6..HEAD_BYTES].fill(0);
    Some(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn allowed(sources: &mut RateLimiter, address: &str, now: Instant, times: usize) -> [usize; 3] {
        let mut counts = [0; 3];
        for _ in 0..times {
            counts[sources.allow(at(address), now) as usize] += 1;
        }
        counts
    }

    #[test]
    fn a_network_that_asks_too_much_is_sent_to_tcp_and_then_not_answered() {
        let (mut sources, now) = (RateLimiter::new(100), shoal_net::clock::instant());
        assert_eq!(allowed(&mut sources, "192.0.2.1", now, 1000), [200, 500, 300]);
        assert_eq!(
            allowed(&mut sources, "192.0.2.200", now, 10),
            [0, 0, 10],
            "a neighbour is the same network"
        );
        assert_eq!(allowed(&mut sources, "198.51.100.1", now, 10), [10, 0, 0]);
        let later = now + Duration::from_secs(3);
        assert_eq!(allowed(&mut sources, "192.0.2.1", later, 100)[0], 100);
    }

    #[test]
    fn addresses_of_one_site_are_counted_together_in_both_families() {
        let same = [
            ("192.0.2.1", "192.0.2.254", true),
            ("192.0.2.1", "192.0.3.1", false),
            ("2001:db8:0:100::1", "2001:db8:0:1ff::2", true),
            ("2001:db8:0:100::1", "2001:db8:0:200::1", false),
            ("::ffff:192.0.2.1", "192.0.2.9", true),
            ("::", "0.0.0.0", false),
        ];
        for (one, other, same) in same {
            assert_eq!(
                Network::containing(at(one)) == Network::containing(at(other)),
                same,
                "{one} {other}"
            );
        }
    }

    #[test]
    fn memory_is_bounded_whatever_the_forged_addresses() {
        let (mut sources, now) = (RateLimiter::new(100), shoal_net::clock::instant());
        for number in 0..100_000_u32 {
            sources.allow(IpAddr::V4((number << 8).into()), now);
        }
        assert!(sources.buckets.len() <= NETWORKS_MAX);
    }

    #[test]
    fn a_truncated_answer_keeps_its_question_and_nothing_else() {
        let question = b"\x03www\x07example\x00\x00\x01\x00\x01";
        let answer = [
            b"\x12\x34\x81\x80\x00\x01\x00\x01\x00\x00\x00\x01".as_slice(),
            question,
            b"and answers of any length",
        ]
        .concat();
        let expected = [
            b"\x12\x34\x83\x80\x00\x01\x00\x00\x00\x00\x00\x00".as_slice(),
            question,
        ]
        .concat();
        assert_eq!(truncated(&answer), Some(expected));
        for end in 0..answer.len() {
            truncated(&answer[..end]);
        }
    }
}
