//! Sends and receives datagrams, keeps time, and publishes the list of living nodes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use shoal_base::chance;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::datagram::{ClusterKey, RejectReason, seconds_ahead};
use super::gossip::Gossip;
use super::notices::{ClockDifference, Notices, SettingsDigests};
use super::{Command, Member, Members, node_id};
use crate::link::{LOOK_EVERY, Sharing};
use crate::time::clock;

/// Interval at which a node broadcasts the digests of its settings, and the delay after a change of members.
const DIGESTS: Duration = Duration::from_secs(15);
const DIGESTS_AFTER_CHANGE: Duration = Duration::from_secs(1);

/// Maximum size of a gossip datagram.
const DATAGRAM_BYTES_MAX: usize = 2_048;

/// The task behind a [`super::Membership`].
pub(super) struct Driver {
    socket: UdpSocket,
    gossip: Gossip,
    key: ClusterKey,
    members: watch::Sender<Members>,
    notices: Arc<Notices>,
    /// Shares the bandwidth of the cluster; `None` if it has none.
    sharing: Option<Sharing>,
    /// When the node next updates its demand.
    look_at: Instant,
    /// When the node next broadcasts its digests.
    digests_at: Instant,
}

impl Driver {
    pub(super) async fn open(
        listen: SocketAddr,
        me: Member,
        key: ClusterKey,
        notices: Arc<Notices>,
        sharing: Option<Sharing>,
    ) -> io::Result<(Self, watch::Receiver<Members>)> {
        let socket = UdpSocket::bind(listen).await?;
        let gossip = Gossip::new(me, chance::bits());
        let (members, watched) = watch::channel(gossip.members().into());
        let driver = Self {
            socket,
            gossip,
            key,
            members,
            notices,
            sharing,
            look_at: clock::runtime_instant(),
            digests_at: clock::runtime_instant() + DIGESTS,
        };
        Ok((driver, watched))
    }

    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut greetings: mpsc::Receiver<SocketAddr>,
    ) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        loop {
            let look_at = self.sharing.as_ref().map(|_| self.look_at);
            let due = [self.gossip.next_act(), look_at].into_iter().flatten();
            let act_at = due.fold(self.digests_at, Instant::min);
            tokio::select! {
                received = self.socket.recv_from(&mut buffer) => match received {
                    Ok((length, from)) => self.receive(&buffer[..length], from),
                    // An ICMP error: no process received an earlier datagram of this node.
                    Err(error) => tracing::debug!(%error, "gossip was not received"),
                },
                () = tokio::time::sleep_until(act_at) => {}
                Some(address) = greetings.recv() => self.gossip.greet(address, clock::runtime_instant()),
                command = commands.recv() => match command {
                    Some(Command::Become(state)) => {
                        self.gossip.declare(state, clock::utc_now(), clock::runtime_instant());
                    }
                    Some(Command::Leave) | None => break,
                },
            }
            let now = clock::runtime_instant();
            self.gossip.act(now);
            self.send().await;
            self.publish(now);
            if now >= self.look_at {
                self.look_at = now + LOOK_EVERY;
                // Updates this node's share of the bandwidth.
                if let Some(demand) = self.sharing.as_ref().and_then(Sharing::look) {
                    self.send_to_all(&demand).await;
                }
            }
            if now >= self.digests_at {
                self.digests_at = now + DIGESTS;
                let digests = self.notices.agreement.own().encode(&self.gossip.me().name);
                self.send_to_all(&digests).await;
            }
        }
        self.gossip.leave(clock::runtime_instant());
        self.send().await;
    }

    fn receive(&mut self, datagram: &[u8], from: SocketAddr) {
        let now = clock::utc_now();
        let opened = self.key.open(datagram, now);
        let received = opened.and_then(|message| {
            if SettingsDigests::are_in(message) {
                return self.receive_digests(message);
            }
            let is_understood = if Sharing::is_in(message) {
                // A node with a bandwidth of its own ignores the demands of others.
                let sharing = self.sharing.as_ref();
                sharing.is_none_or(|sharing| sharing.receive(message, node_id))
            } else {
                self.gossip.receive(message, clock::runtime_instant()).is_ok()
            };
            is_understood.then_some(()).ok_or(RejectReason::Unintelligible)
        });
        if let Err(reason) = received {
            let clocks = (reason == RejectReason::OutOfTime).then(|| seconds_ahead(datagram, now));
            let clocks = clocks.flatten().map(ClockDifference);
            self.notices.rejected.note(from, reason, clocks, clock::instant());
            tracing::debug!(%from, %reason, "a datagram was rejected");
        }
    }

    /// Compares the received digests of another member's settings with this node's.
    fn receive_digests(&self, message: &[u8]) -> Result<(), RejectReason> {
        let (name, theirs) = SettingsDigests::decode(message).ok_or(RejectReason::Unintelligible)?;
        let is_other_member = {
            let members = self.members.borrow();
            let is_it = |member: &Member| member.name == name && member.address != self.gossip.me().address;
            members.iter().any(is_it)
        };
        if is_other_member {
            self.notices.agreement.receive(name, theirs);
        }
        Ok(())
    }

    /// Sends a message to every other node.
    async fn send_to_all(&self, message: &[u8]) {
        let me = self.gossip.me();
        let datagram = self.key.seal(message, clock::utc_now());
        let members = self.gossip.members();
        for member in members.iter().filter(|member| member.address != me.address) {
            // Such messages are repeated periodically, so a lost one does no harm.
            if let Err(error) = self.socket.send_to(&datagram, member.address).await {
                tracing::debug!(to = %member.address, %error, "a message to all nodes was not sent");
            }
        }
    }

    async fn send(&mut self) {
        for (to, message) in self.gossip.take_outbox() {
            let datagram = self.key.seal(&message, clock::utc_now());
            // Gossip is repeated, so a lost datagram does no harm.
            if let Err(error) = self.socket.send_to(&datagram, to).await {
                tracing::debug!(%to, %error, "gossip was not sent");
            }
        }
    }

    fn publish(&mut self, now: Instant) {
        if self.gossip.take_changed() {
            let members: Members = self.gossip.members().into();
            let is_member = |name: &str| members.iter().any(|member| member.name == name);
            self.notices.agreement.keep_only(is_member);
            if let Some(sharing) = &self.sharing {
                let nodes: Vec<_> = members.iter().map(Member::id).collect();
                sharing.set_nodes(&nodes);
            }
            self.members.send_replace(members);
            self.digests_at = self.digests_at.min(now + DIGESTS_AFTER_CHANGE);
        }
    }
}
