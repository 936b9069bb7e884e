//! Moves datagrams, keeps time, and lets everybody know who lives.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::datagram::{ClusterKey, Stranger};
use super::gossip::Gossip;
use super::{Member, Members, Order, Refused};
use crate::{chance, clock};

/// How often seeds are greeted by a node that knows nobody, and by one that does: a cluster that was started in two halves finds together.
pub(super) const GREETING_ALONE: Duration = Duration::from_millis(500);
pub(super) const GREETING: Duration = Duration::from_secs(15);

/// Larger datagrams are nobody's gossip.
const DATAGRAM_BYTES_MAX: usize = 2_048;

/// The task behind a [`super::Membership`].
pub(super) struct Driver {
    socket: UdpSocket,
    gossip: Gossip,
    seeds: Vec<String>,
    key: ClusterKey,
    members: watch::Sender<Members>,
    refused: Arc<Refused>,
}

impl Driver {
    pub(super) async fn open(
        listen: SocketAddr,
        me: Member,
        seeds: Vec<String>,
        key: ClusterKey,
        refused: Arc<Refused>,
    ) -> io::Result<(Self, watch::Receiver<Members>)> {
        let socket = UdpSocket::bind(listen).await?;
        let gossip = Gossip::new(me, chance::bits());
        let (members, watched) = watch::channel(gossip.members().into());
        let driver = Self {
            socket,
            gossip,
            seeds,
            key,
            members,
            refused,
        };
        Ok((driver, watched))
    }

    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        let mut greet_at = clock::runtime_instant();
        loop {
            let act_at = self.gossip.next_act().unwrap_or(greet_at).min(greet_at);
            tokio::select! {
                received = self.socket.recv_from(&mut buffer) => match received {
                    Ok((length, from)) => self.hear(&buffer[..length], from),
                    // An answer to a datagram of ours that found nobody.
                    Err(error) => tracing::debug!(%error, "gossip was not received"),
                },
                () = tokio::time::sleep_until(act_at) => {}
                order = orders.recv() => match order {
                    Some(Order::Become(state)) => {
                        self.gossip.declare(state, clock::utc_now(), clock::runtime_instant());
                    }
                    Some(Order::Leave) | None => break,
                },
            }
            let now = clock::runtime_instant();
            self.gossip.act(now);
            if now >= greet_at {
                self.greet_seeds(now).await;
                greet_at = now
                    + if self.gossip.is_alone() {
                        GREETING_ALONE
                    } else {
                        GREETING
                    };
            }
            self.send().await;
            self.publish();
        }
        self.gossip.leave(clock::runtime_instant());
        self.send().await;
    }

    fn hear(&mut self, datagram: &[u8], from: SocketAddr) {
        let opened = self.key.open(datagram, clock::utc_now());
        let heard = opened.and_then(|message| {
            let heard = self.gossip.hear(message, clock::runtime_instant());
            heard.map_err(|_| Stranger::Unintelligible)
        });
        if let Err(stranger) = heard {
            self.refused.count(stranger);
            tracing::debug!(%from, %stranger, "a datagram was not heard");
        }
    }

    /// Names of seeds are looked up each time: behind one there may be other addresses tomorrow.
    async fn greet_seeds(&mut self, now: Instant) {
        for seed in &self.seeds {
            match tokio::net::lookup_host(seed).await {
                Ok(addresses) => addresses.for_each(|address| self.gossip.greet(address, now)),
                Err(error) => tracing::warn!(seed, %error, "a seed has no address"),
            }
        }
    }

    async fn send(&mut self) {
        for (to, message) in self.gossip.take_outbox() {
            let datagram = self.key.seal(&message, clock::utc_now());
            // Gossip is repeated; what is lost today is said again.
            if let Err(error) = self.socket.send_to(&datagram, to).await {
                tracing::debug!(%to, %error, "gossip was not sent");
            }
        }
    }

    fn publish(&mut self) {
        if self.gossip.take_changed() {
            self.members.send_replace(self.gossip.members().into());
        }
    }
}
