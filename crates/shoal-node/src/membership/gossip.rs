//! Decides which messages a node sends to which others, and which nodes it believes to be alive: no I/O, no
//! clock.

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

/// Each node probes one other node this often.
pub(super) const PROBE_PERIOD: Duration = Duration::from_millis(500);

/// A probe that is not answered by then goes through other nodes.
const PROBE_ANSWER: Duration = Duration::from_millis(150);

/// A suspected node has this long to object. With the period before it, and the time that news takes, a dead
/// node leaves the rings in less than 5 seconds; a node that stands still for a second does not.
const SUSPICION: Duration = Duration::from_millis(1_500);

/// The size of a datagram that no network fragments.
const DATAGRAM_BYTES: usize = 1_400;

/// One node's knowledge of the others, and its messages to them.
pub(super) struct Gossip {
    foca: Foca<Member, PostcardCodec, SmallRng, NoCustomBroadcast>,
    runtime: AccumulatingRuntime<Member>,
    agenda: BinaryHeap<Reverse<(Instant, Timer<Member>)>>,
    outbox: Vec<(SocketAddr, Vec<u8>)>,
    changed: bool,
}

/// A message that could not be understood.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct MalformedMessage(foca::Error);

impl Gossip {
    /// Creates a node that knows no other. `chance` seeds the order in which it probes the others.
    pub(super) fn new(me: Member, chance: u64) -> Self {
        Self {
            foca: Foca::new(me, config(), SmallRng::seed_from_u64(chance), PostcardCodec),
            runtime: AccumulatingRuntime::new(),
            agenda: BinaryHeap::new(),
            outbox: Vec::new(),
            changed: false,
        }
    }

    /// Returns the living nodes, this node included, in the order of their names.
    pub(super) fn members(&self) -> Vec<Member> {
        let others = self.foca.iter_members().map(|member| member.id().clone());
        let mut members: Vec<Member> = others.chain([self.foca.identity().clone()]).collect();
        members.sort_unstable_by(|a, b| (&a.name, a.address).cmp(&(&b.name, b.address)));
        members
    }

    /// This node.
    pub(super) fn me(&self) -> &Member {
        self.foca.identity()
    }

    /// Greets the node at `address`, to be told of the others.
    pub(super) fn greet(&mut self, address: SocketAddr, now: Instant) {
        if address != self.foca.identity().address {
            let result = self.foca.announce(Member::unknown_at(address), &mut self.runtime);
            self.after(result, now);
        }
    }

    /// Takes in a message of another node.
    pub(super) fn receive(&mut self, message: &[u8], now: Instant) -> Result<(), MalformedMessage> {
        let result = self.foca.handle_data(message, &mut self.runtime);
        self.drain_runtime(now);
        match result {
            Err(
                error @ (foca::Error::Decode(_) | foca::Error::MalformedPacket | foca::Error::DataTooBig),
            ) => Err(MalformedMessage(error)),
            other => {
                Self::tell(other);
                Ok(())
            }
        }
    }

    /// Returns when [`Gossip::act`] has something to do.
    pub(super) fn next_act(&self) -> Option<Instant> {
        self.agenda.peek().map(|Reverse((due, _))| *due)
    }

    /// Does what is due by `now`.
    pub(super) fn act(&mut self, now: Instant) {
        while let Some(Reverse((due, _))) = self.agenda.peek()
            && *due <= now
        {
            let Reverse((_, timer)) = self.agenda.pop().expect("somebody has peeked at it");
            let result = self.foca.handle_timer(timer, &mut self.runtime);
            self.after(result, now);
        }
    }

    /// Declares that this node is in `state` from now on. A node that serves again begins anew, at `today`:
    /// it asks the others for the blocks that they have brought meanwhile, as a newcomer does.
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
        let result = self.foca.change_identity(changed, &mut self.runtime);
        self.changed = true;
        self.after(result, now);
    }

    /// Leaves the cluster.
    pub(super) fn leave(&mut self, now: Instant) {
        let result = self.foca.leave_cluster(&mut self.runtime);
        self.after(result, now);
    }

    /// Takes the messages to send, with their destinations.
    pub(super) fn take_outbox(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        std::mem::take(&mut self.outbox)
    }

    /// Returns whether the members have changed since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    fn after(&mut self, result: Result<(), foca::Error>, now: Instant) {
        Self::tell(result);
        self.drain_runtime(now);
    }

    /// Logs an error. It heals with the next probe.
    fn tell(result: Result<(), foca::Error>) {
        if let Err(error) = result {
            tracing::debug!(%error, "a gossip message was ignored");
        }
    }

    fn drain_runtime(&mut self, now: Instant) {
        while let Some((to, message)) = self.runtime.to_send() {
            self.outbox.push((to.address, message.to_vec()));
        }
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
        // The dead come back with a higher generation; a node that never does is forgotten after a day. A
        // node that hears nothing does not learn of its death, keeps its generation and keeps calling: if it
        // were forgotten sooner, it would be let in, miss its probes and be put out, again and again.
        remove_down_after: Some(Duration::from_hours(24)),
        max_packet_size: count(DATAGRAM_BYTES - ENVELOPE_BYTES),
        notify_down_members: true,
        periodic_announce: every(Duration::from_secs(10), 1),
        // Each half of a cluster that was cut in two takes the other one for dead.
        periodic_announce_to_down_members: every(Duration::from_secs(2), 2),
        periodic_gossip: every(Duration::from_millis(200), 3),
    }
}

#[cfg(test)]
mod tests;
