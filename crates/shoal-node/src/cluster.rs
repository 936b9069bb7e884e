//! A node among others: it introduces itself to them, hears of them, and gives them blocks.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use hyper::service::service_fn;
use shoal_store::Store;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::block_server::{BlockServer, ServeOutcome};
use crate::channel::Channel;
use crate::clock;
use crate::config::Config;
use crate::cooperation::Cooperation;
use crate::dirty::DirtyObjects;
use crate::front::body::ResponseBody;
use crate::http::connection::ClientBody;
use crate::http::listener::{self, ConnectionLimits, Handshake};
use crate::membership::{ClusterKey, Member, Membership, State, generation};
use crate::metrics::ConnectionMetrics;
use crate::shutdown::Shutdown;

/// The tasks and the membership that keep a node in its cluster while it runs.
#[derive(Debug)]
pub struct Cluster {
    address: SocketAddr,
    membership: Membership,
    tasks: Vec<JoinHandle<()>>,
}

/// The addresses at which a node is reached, once its listeners are bound.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The address for clients.
    pub s3: SocketAddr,
    /// The address for operators.
    pub admin: SocketAddr,
    /// The address for other nodes.
    pub peer: SocketAddr,
}

/// The handlers of other nodes' requests.
pub struct NodeServices {
    /// Serves blocks.
    pub block_server: Arc<BlockServer>,
    /// Answers about dirty objects.
    pub dirty: Arc<DirtyObjects>,
}

impl Cluster {
    /// Begins to serve blocks and requests about dirty objects to other nodes over `listener`, and joins the
    /// cluster.
    ///
    /// # Errors
    ///
    /// Fails if the UDP port with the number of `listener` cannot be bound.
    pub async fn join(
        config: &Config,
        listener: TcpListener,
        addresses: Addresses,
        cooperation: Arc<Cooperation>,
        services: NodeServices,
        store: Arc<Store>,
        stopping: Shutdown,
    ) -> io::Result<Self> {
        let me = introduction(config, addresses, clock::utc_now());
        let address = me.address;
        let key = ClusterKey::new(config.cooperation.secrets());
        let seeds = config.cooperation.seeds.clone();
        let notices = cooperation.notices();
        notices.agreement.renew(config.digests());
        let membership = Membership::join(addresses.peer, me, seeds, key, Arc::clone(notices)).await?;
        let limits = ConnectionLimits::from(&config.limits);
        let place = move |hierarchy| store.set_hierarchy(hierarchy);
        let channel = Arc::clone(cooperation.channel());
        let follow = cooperation.follow(membership.members(), place, stopping.clone());
        let tasks = vec![
            tokio::spawn(serve(listener, channel, limits, services, stopping)),
            tokio::spawn(follow),
        ];
        Ok(Self {
            address,
            membership,
            tasks,
        })
    }

    /// The address at which other nodes reach this one.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The membership by which this node hears of others.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Takes leave of the others, once stopping has begun.
    pub async fn leave(self) {
        self.membership.leave().await;
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the cluster ended in a panic");
            }
        }
    }
}

async fn serve(
    listener: TcpListener,
    channel: Arc<Channel>,
    limits: ConnectionLimits,
    services: NodeServices,
    stopping: Shutdown,
) {
    let NodeServices { block_server, dirty } = services;
    let connections = ConnectionMetrics::default();
    let handshake = Handshake::Nodes(channel);
    listener::serve(listener, handshake, limits, connections, stopping, move |_| {
        let (block_server, dirty) = (Arc::clone(&block_server), Arc::clone(&dirty));
        service_fn(move |request: Request<ClientBody>| {
            let (block_server, dirty) = (Arc::clone(&block_server), Arc::clone(&dirty));
            async move { Ok::<_, Infallible>(answer(&block_server, &dirty, request).await) }
        })
    })
    .await;
}

/// Answers with a block, or answers a request about dirty objects.
async fn answer(
    block_server: &BlockServer,
    dirty: &DirtyObjects,
    request: Request<ClientBody>,
) -> Response<ResponseBody> {
    let target = request.uri().path_and_query();
    let target = target.filter(|target| DirtyObjects::is_peer_request(target));
    let Some(target) = target else {
        return block_server.serve(request).await;
    };
    let mut response = Response::new(ResponseBody::empty());
    // A request that may have an effect is not a GET, which the asking node would repeat when the connection
    // breaks.
    if request.method() != Method::POST {
        *response.status_mut() = ServeOutcome::Misunderstood.status();
        return response;
    }
    let (status, body) = dirty.answer_peer(target).await;
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_LENGTH, body.len().into());
    response.map(|_| ResponseBody::full(body))
}

/// The description of this node that it gives to the others. A listener on every address of the machine is
/// reached at the advertised address.
fn introduction(config: &Config, addresses: Addresses, now: SystemTime) -> Member {
    let cooperation = &config.cooperation;
    let address = cooperation.advertise.unwrap_or(addresses.peer);
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
    use crate::clock;

    #[test]
    fn a_listener_on_every_address_is_told_by_the_advertised_one() {
        let everywhere = |port| SocketAddr::from(([0, 0, 0, 0], port));
        let addresses = Addresses {
            s3: everywhere(9000),
            admin: SocketAddr::from(([127, 0, 0, 1], 9100)),
            peer: everywhere(9200),
        };
        let mut config = Config::default();
        config.cooperation.advertise = Some(SocketAddr::from(([10, 0, 0, 7], 19200)));
        let me = introduction(&config, addresses, clock::utc_now());
        assert_eq!(me.address.to_string(), "10.0.0.7:19200");
        assert_eq!(me.s3.to_string(), "10.0.0.7:9000");
        assert_eq!(me.admin.to_string(), "127.0.0.1:9100");
    }
}
