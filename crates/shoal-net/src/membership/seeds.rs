//! Resolves the seeds for the membership. A slow name service delays nothing else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{mpsc, watch};

use super::Members;
use super::notices::Notices;
use crate::time::clock;

/// Interval at which a node contacts the seeds, while it knows no other node and once it knows one. The
/// latter joins two halves of a cluster that were started separately.
pub(super) const GREETING_ALONE: Duration = Duration::from_millis(500);
pub(super) const GREETING: Duration = Duration::from_secs(15);

/// Time limit of a lookup, which is then repeated.
const LOOKUP: Duration = Duration::from_secs(5);

/// Resolves the addresses to contact.
pub(super) struct SeedResolver {
    /// `host:port`
    pub(super) seeds: Vec<String>,
    /// The address of this node.
    pub(super) address: SocketAddr,
    pub(super) members: watch::Receiver<Members>,
    pub(super) greetings: mpsc::Sender<SocketAddr>,
    pub(super) notices: Arc<Notices>,
}

impl SeedResolver {
    /// Runs until the membership ends.
    pub(super) async fn run(mut self) {
        if self.seeds.is_empty() {
            return;
        }
        loop {
            let addresses = self.look_up().await;
            let is_alone = self.members.borrow().len() <= 1;
            // A node that is the only seed of its cluster waits for no other node.
            if addresses != [self.address] {
                self.notices
                    .seeds
                    .look_around(!is_alone, &self.seeds, clock::runtime_instant());
            }
            for address in addresses {
                if self.greetings.send(address).await.is_err() {
                    return;
                }
            }
            let pause = if is_alone { GREETING_ALONE } else { GREETING };
            let has_turned = |members: &Members| (members.len() <= 1) != is_alone;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                ended = async { self.members.wait_for(has_turned).await.is_err() } => if ended {
                    return;
                },
            }
        }
    }

    /// Resolves the names again each time, because their addresses may change.
    async fn look_up(&self) -> Vec<SocketAddr> {
        let found = join_all(self.seeds.iter().map(|seed| async move {
            let looking = tokio::time::timeout(LOOKUP, tokio::net::lookup_host(seed));
            let looked = looking
                .await
                .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
            match looked {
                Ok(addresses) => {
                    self.notices.seeds.has_an_address(seed);
                    addresses.collect()
                }
                Err(error) => {
                    let now = clock::runtime_instant();
                    self.notices.seeds.has_no_address(seed, &error, now);
                    Vec::new()
                }
            }
        }));
        found.await.concat()
    }
}
