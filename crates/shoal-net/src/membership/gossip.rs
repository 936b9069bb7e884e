//! Decides which messages a node sends to which others, and which nodes are alive. Performs no I/O and reads
//! no clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroUsize};
use std::time::{Duration, SystemTime};

use foca::{
    AccumulatingRuntime, Config, Foca, NoCustomBroadcast, OwnedNotification, PeriodicParams, PostcardCodec,
    Timer,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::time::Instant;

use super::datagram::ENVELOPE_BYTES;
use super::member::{Member, State, generation};

/// Interval at which each node probes one other node.
pub(super) const PROBE_PERIOD: Duration = Duration::from_millis(500);

/// Time after which an unanswered probe is repeated through other nodes.
const PROBE_ANSWER: Duration = Duration::from_millis(150);

/// How long a suspected node has to refute the suspicion. Including the probe period and the time that news
/// takes to spread, a dead node leaves the rings in less than 5 seconds, while a node that stalls for a
/// second stays.
const SUSPICION: Duration = Duration::from_millis(1_500);

/// Maximum datagram size: no network fragments it.
const DATAGRAM_BYTES: usize = 1_400;

/// One node's view of the others, and its outgoing messages.
pub(super) struct Gossip {
    foca: Foca<Member, PostcardCodec, SmallRng, NoCustomBroadcast>,
    runtime: AccumulatingRuntime<Member>,
    agenda: BinaryHeap<Reverse<(Instant, Timer<Member>)>>,
    changed: bool,
}

impl Gossip {
    /// Creates a node that knows no other. `chance` seeds the order of probes.
    pub(super) fn new(me: Member, chance: u64) -> Self {
        Self {
            foca: Foca::new(me, config(), SmallRng::seed_from_u64(chance), PostcardCodec),
            runtime: AccumulatingRuntime::new(),
            agenda: BinaryHeap::new(),
            changed: false,
        }
    }

    /// Returns the living nodes, this one included, sorted by name.
    pub(super) fn members(&self) -> Vec<Member> {
        let others = self.foca.iter_members().map(|member| member.id().clone());
        let mut members: Vec<Member> = others.chain([self.foca.identity().clone()]).collect();
        members.sort_unstable_by(|a, b| (&a.name, a.address).cmp(&(&b.name, b.address)));
        members
    }

    /// Returns this node.
    pub(super) fn me(&self) -> &Member {
        self.foca.identity()
    }

    /// Announces this node to the node at `address`, which replies with the members it knows.
    pub(super) fn greet(&mut self, address: SocketAddr, now: Instant) {
        if address != self.foca.identity().address {
            let result = self.foca.announce(Member::unknown_at(address), &mut self.runtime);
            self.after(result, now);
        }
    }

    /// Processes a message of another node. Fails if it cannot be parsed.
    pub(super) fn receive(&mut self, message: &[u8], now: Instant) -> Result<(), foca::Error> {
        let result = self.foca.handle_data(message, &mut self.runtime);
        self.drain_runtime(now);
        match result {
            Err(
                error @ (foca::Error::Decode(_) | foca::Error::MalformedPacket | foca::Error::DataTooBig),
            ) => Err(error),
            other => {
                Self::log_error(other);
                Ok(())
            }
        }
    }

    /// Returns when [`Gossip::act`] is due next.
    pub(super) fn next_act(&self) -> Option<Instant> {
        self.agenda.peek().map(|Reverse((due, _))| *due)
    }

    /// Runs the timers that are due by `now`.
    pub(super) fn act(&mut self, now: Instant) {
        while let Some(Reverse((due, _))) = self.agenda.peek()
            && *due <= now
        {
            let Reverse((_, timer)) = self.agenda.pop().expect("somebody has peeked at it");
            let result = self.foca.handle_timer(timer, &mut self.runtime);
            self.after(result, now);
        }
    }

    /// Sets this node's state. A node that starts to serve again gets a new start time, `today`: like a new
    /// node, it asks the others for blocks that they fetched in its absence.
    pub(super) fn declare(&mut self, state: State, today: SystemTime, now: Instant) {
        let me = self.foca.identity().clone();
        if me.state == state {
            return;
        }
        let generation = match state {
            State::Draining => me.generation + 1,
            State::Serving => generation(today).max(me.generation + 1),
        };
        let changed = Member {
            generation,
            state,
            ..me
        };
        assert!(
            changed.generation > self.me().generation,
            "an announcement supersedes the earlier ones"
        );
        let result = self.foca.change_identity(changed, &mut self.runtime);
        self.changed = true;
        self.after(result, now);
    }

    /// Leaves the cluster.
    pub(super) fn leave(&mut self, now: Instant) {
        let result = self.foca.leave_cluster(&mut self.runtime);
        self.after(result, now);
    }

    /// Returns and clears the outgoing messages and their destinations.
    pub(super) fn take_outbox(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let messages = std::iter::from_fn(|| self.runtime.to_send());
        messages
            .map(|(to, message)| (to.address, message.to_vec()))
            .collect()
    }

    /// Returns true if the members have changed since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    fn after(&mut self, result: Result<(), foca::Error>, now: Instant) {
        Self::log_error(result);
        self.drain_runtime(now);
    }

    /// Logs an error. The next probe corrects its effect.
    fn log_error(result: Result<(), foca::Error>) {
        if let Err(error) = result {
            tracing::debug!(%error, "a gossip message was ignored");
        }
    }

    fn drain_runtime(&mut self, now: Instant) {
        while let Some((delay, timer)) = self.runtime.to_schedule() {
            self.agenda.push(Reverse((now + delay, timer)));
        }
        while let Some(news) = self.runtime.to_notify() {
            match news {
                OwnedNotification::MemberUp(member) => {
                    tracing::info!(node = member.name, address = %member.address, "member joined");
                }
                OwnedNotification::MemberDown(member) => {
                    tracing::warn!(node = member.name, address = %member.address, "member left");
                }
                OwnedNotification::Rejoin(_) => {
                    tracing::warn!("the other nodes declared this node dead; it has rejoined");
                }
                OwnedNotification::Rename(..) => {}
                OwnedNotification::Active | OwnedNotification::Idle | OwnedNotification::Defunct => continue,
            }
            self.changed = true;
        }
    }
}

fn config() -> Config {
    let count = |count| NonZeroUsize::new(count).expect("written here and not zero");
    let every = |frequency, members| {
        Some(PeriodicParams {
            frequency,
            num_members: count(members),
        })
    };
    Config {
        probe_period: PROBE_PERIOD,
        probe_rtt: PROBE_ANSWER,
        num_indirect_probes: count(3),
        max_transmissions: NonZeroU8::new(10).expect("written here and not zero"),
        suspect_to_down_after: SUSPICION,
        // A restarted node has a higher generation; a dead node that never restarts is forgotten after a day.
        // A node that receives nothing does not learn that it was declared dead, keeps its generation and
        // keeps announcing itself: if it were forgotten sooner, it would be readmitted, miss its probes and
        // be removed again and again.
        remove_down_after: Some(Duration::from_hours(24)),
        max_packet_size: count(DATAGRAM_BYTES - ENVELOPE_BYTES),
        notify_down_members: true,
        periodic_announce: every(Duration::from_secs(10), 1),
        // After a network partition, each half considers the other dead.
        periodic_announce_to_down_members: every(Duration::from_secs(2), 2),
        periodic_gossip: every(Duration::from_millis(200), 3),
    }
}

#[cfg(test)]
mod tests;
