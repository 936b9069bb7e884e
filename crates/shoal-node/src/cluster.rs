//! This node's membership in its cluster: announces the node, tracks the others, and serves them blocks.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use http::Request;
use hyper::service::service_fn;
use shoal_cache::cooperation::CooperationMode;
use shoal_net::clock;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::listener::{self, ConnectionLimits, Handshake};
use shoal_net::link::Sharing;
use shoal_net::membership::{ClusterKey, Member, Membership, State, generation};
use shoal_net::metrics::ConnectionMetrics;
use shoal_net::shutdown::Shutdown;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::block_server::BlockServer;
use crate::config::Config;
use crate::core::{Addresses, Core};

/// The tasks and the membership of a node in its cluster.
#[derive(Debug)]
pub struct Cluster {
    /// The address at which other nodes reach this one.
    pub(crate) address: SocketAddr,
    /// Tracks the other nodes.
    pub(crate) membership: Membership,
    tasks: Vec<JoinHandle<()>>,
}

impl Cluster {
    /// Starts to serve blocks to other nodes over `listener`, and joins the cluster.
    ///
    /// # Errors
    ///
    /// Fails if the UDP port with the number of `listener` cannot be bound.
    pub(crate) async fn join(
        core: &Core,
        listener: TcpListener,
        block_server: Arc<BlockServer>,
        stopping: Shutdown,
    ) -> io::Result<Self> {
        let (config, cooperation) = (&core.config, &core.cooperation);
        let bound = listener.local_addr()?;
        let me = introduction(config, core.addresses, clock::utc_now());
        let address = me.address;
        let key = ClusterKey::new(config.cooperation.secrets());
        let seeds = config.cooperation.seeds.clone();
        let notices = Arc::clone(&cooperation.notices);
        notices.agreement.renew(config.digests());
        let sharing = Sharing::of(core.lake.link(), (&me.name, me.id()), me.generation);
        let membership = Membership::join(bound, me, seeds, key, notices, sharing).await?;
        let limits = ConnectionLimits::from(&config.limits);
        let has_layers = config.cooperation.mode == CooperationMode::Hierarchy;
        let store = Arc::clone(&core.store);
        let place = move |hierarchy| {
            if has_layers {
                store.layers.set_hierarchy(hierarchy);
            }
        };
        let handshake = Handshake::Nodes(Arc::clone(&cooperation.channel));
        let connections = ConnectionMetrics::default();
        let follow = Arc::clone(cooperation).follow(membership.members(), place, stopping.clone());
        let serve = listener::serve(listener, handshake, limits, connections, stopping, move |_| {
            let block_server = Arc::clone(&block_server);
            service_fn(move |request: Request<ClientBody>| {
                let block_server = Arc::clone(&block_server);
                async move { Ok::<_, Infallible>(block_server.serve(request).await) }
            })
        });
        let tasks = vec![tokio::spawn(serve), tokio::spawn(follow)];
        Ok(Self {
            address,
            membership,
            tasks,
        })
    }

    /// Leaves the cluster, once shutdown has begun.
    pub async fn leave(self) {
        self.membership.leave().await;
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the cluster ended in a panic");
            }
        }
    }
}

/// Returns this node's description for the others. A listener on all interfaces is announced under the
/// advertised address.
fn introduction(config: &Config, addresses: Addresses, now: SystemTime) -> Member {
    let cooperation = &config.cooperation;
    let address = cooperation.advertise.or(addresses.peer);
    let address = address.expect("a node that cooperates listens for other nodes");
    let reachable = |listener: SocketAddr| {
        if listener.ip().is_unspecified() {
            SocketAddr::new(address.ip(), listener.port())
        } else {
            listener
        }
    };
    Member {
        address,
        generation: generation(now),
        name: config.node.name.clone(),
        topology: config.node.topology.clone(),
        s3: reachable(addresses.s3),
        admin: reachable(addresses.admin),
        weight_percent: cooperation.weight_percent,
        state: State::Serving,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::{Addresses, Config, introduction};
    use shoal_net::clock;

    #[test]
    fn a_listener_on_every_address_is_told_by_the_advertised_one() {
        let everywhere = |port| SocketAddr::from(([0, 0, 0, 0], port));
        let addresses = Addresses {
            s3: everywhere(9000),
            sts: None,
            admin: SocketAddr::from(([127, 0, 0, 1], 9100)),
            peer: Some(everywhere(9200)),
        };
        let mut config = Config::default();
        config.cooperation.advertise = Some(SocketAddr::from(([10, 0, 0, 7], 19200)));
        let me = introduction(&config, addresses, clock::utc_now());
        assert_eq!(me.address.to_string(), "10.0.0.7:19200");
        assert_eq!(me.s3.to_string(), "10.0.0.7:9000");
        assert_eq!(me.admin.to_string(), "127.0.0.1:9100");
    }
}
