//! The name server that directs each client to the nearest living node.
//!
//! Nodes are asked every second which nodes are alive, `live_nodes` keeps recent answers, `answer`
//! determines the client of a question, its place and the nearest nodes, and builds the response, `listener`
//! receives and sends messages within the limits of `rate_limit`, `admin` serves `metrics`, with the state of
//! `poll_status`. Name servers share no state and keep none for longer than seconds, so any number of them
//! can run behind one anycast address (docs/how-to/lookup.md).

mod admin;
mod answer;
mod explain;
mod listener;
mod live_nodes;
mod metrics;
mod poll_status;
mod rate_limit;
#[cfg(test)]
mod tests;

pub use answer::client::Client;

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use shoal_net::http::listener::{ListenError, listen};
use shoal_net::shutdown::{self, Shutdown, Trigger};
use shoal_net::{clock, pauses};
use shoal_node::admin::client::{AdminAccess, AdminClient, AdminError, AdminUrl, FileError};
use shoal_node::config;
use tokio::task::JoinSet;

use answer::responder::{Responder, Transport};
use explain::{Explanation, SilentNode};
use listener::Sockets;
use live_nodes::{LiveNode, LiveNodes};
use metrics::LookupMetrics;
use poll_status::PolledNode;
use rate_limit::{Allowance, RateLimiter, UDP_RATE};

/// TTL of every answer. Short, because nodes come and go; long enough that a resolver asks rarely.
const TTL_SECONDS: u32 = 5;

/// The interval at which each node is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The time limit of a poll. Nodes are polled concurrently.
const POLL_DEADLINE: Duration = Duration::from_millis(500);

/// The page of a node that lists the living nodes.
const MEMBERS: &str = "/members";

/// Why the name server does not start.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// A setting cannot be used: the service name, the URL of a node to poll, or an address to listen on.
    #[error("{0}")]
    Setting(String, #[source] Box<dyn Error + Send + Sync>),
    /// A file with credentials for the nodes, or for verifying them, cannot be used.
    #[error(transparent)]
    Access(#[from] FileError),
    /// The server cannot listen on the admin address.
    #[error(transparent)]
    Admin(#[from] ListenError),
}

fn unusable(what: String, error: impl Error + Send + Sync + 'static) -> LookupError {
    LookupError::Setting(what, Box::new(error))
}

/// A running name server.
#[derive(Debug)]
pub struct Lookup {
    addresses: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
    stop: Trigger,
    tasks: JoinSet<()>,
}

impl Lookup {
    /// Listens on every address and begins to poll nodes. Until the first node has answered, the server
    /// answers SERVFAIL.
    ///
    /// # Errors
    ///
    /// Fails if an address cannot be bound, or the name or a node's URL is not valid.
    pub async fn start(config: &config::Lookup) -> Result<Self, LookupError> {
        let shared = Arc::new(Shared::new(config)?);
        let mut sockets = Vec::new();
        for &address in &config.listen {
            let bound = Sockets::bind(address).await;
            let unbound = |error| unusable(format!("cannot listen on {address}"), error);
            sockets.push(bound.map_err(unbound)?);
        }
        let admin = config.admin.map(listen).transpose()?;
        let bound = |address: io::Result<SocketAddr>| address.expect("a bound socket has an address");
        let addresses = sockets.iter().map(|sockets| bound(sockets.address())).collect();
        let admin_address = admin.as_ref().map(|admin| bound(admin.local_addr()));
        let (stop, stopping) = shutdown::channel();
        let mut tasks = JoinSet::new();
        for (place, poller) in pollers(config)?.into_iter().enumerate() {
            tasks.spawn(keep_asking(poller, place, Arc::clone(&shared), stopping.clone()));
        }
        if let Some(listener) = admin {
            tasks.spawn(admin::serve(listener, Arc::clone(&shared), stopping.clone()));
        }
        for sockets in sockets {
            tasks.spawn(sockets.serve(Arc::clone(&shared), stopping.clone()));
        }
        Ok(Self {
            addresses,
            admin: admin_address,
            stop,
            tasks,
        })
    }

    /// The addresses on which it listens, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The address of its admin pages, if it has any.
    pub const fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Waits until one of its tasks ends by itself, which only a bug causes. The process should then exit,
    /// because a name server that answers on only one address, or with outdated nodes, keeps attracting
    /// clients by its anycast route.
    pub async fn ended(&mut self) {
        self.tasks.join_next().await;
    }

    /// Stops the server. A client whose question is lost retries or uses another server.
    pub async fn shutdown(mut self) {
        self.stop.begin();
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a task of the name server ended in a panic");
            }
        }
    }
}

/// Polls each configured node once, and explains the answer that a client would get.
///
/// # Errors
///
/// Fails if the name or a node's URL is not valid. Nodes that do not answer are part of the explanation.
pub async fn explain(config: &config::Lookup, client: Client) -> Result<Explanation, LookupError> {
    let shared = Shared::new(config)?;
    let pollers = pollers(config)?;
    let asked = join_all(pollers.iter().map(|poller| poller.ask(MEMBERS))).await;
    let mut silent = Vec::new();
    for answer in asked {
        match answer {
            Ok((members, reached)) => {
                let mut live = shared.live_nodes.lock();
                live.receive(members, reached, clock::instant());
            }
            Err(error) => silent.push(SilentNode::from(&error)),
        }
    }
    let live = shared.live();
    let place = shared.responder.places.locate(client.network);
    let choices = shared.responder.explain(&client, &live);
    Ok(Explanation::new(config, client, place, &choices, silent))
}

/// Returns a client for each node that is polled.
fn pollers(config: &config::Lookup) -> Result<Vec<AdminClient>, LookupError> {
    let token_file = config.nodes_token_file.as_deref();
    let access = AdminAccess::open(token_file, config.nodes_ca_file.clone(), None)?;
    let poller = |url: &String| {
        let parsed = url.parse::<AdminUrl>();
        let parsed = parsed.map_err(|error| unusable(format!("{url:?} names no node"), error))?;
        Ok(AdminClient::new(parsed, &access)?.within(POLL_DEADLINE))
    };
    config.nodes.iter().map(poller).collect()
}

/// The state that listeners and pollers share.
#[derive(Debug)]
struct Shared {
    responder: Responder,
    live_nodes: Mutex<LiveNodes>,
    /// The polled nodes, in the order of the configuration.
    polled: Mutex<Vec<PolledNode>>,
    sources: Mutex<RateLimiter>,
    metrics: LookupMetrics,
}

impl Shared {
    fn new(config: &config::Lookup) -> Result<Self, LookupError> {
        let name = config.name.as_deref().unwrap_or_default();
        let responder = Responder::new(config, name);
        let responder =
            responder.map_err(|error| unusable(format!("{name:?} is not a domain name"), error))?;
        let now = clock::instant();
        let polled = config.nodes.iter().map(|url| PolledNode::new(url.clone(), now));
        Ok(Self {
            responder,
            live_nodes: Mutex::default(),
            polled: Mutex::new(polled.collect()),
            sources: Mutex::new(RateLimiter::new(UDP_RATE)),
            metrics: LookupMetrics::default(),
        })
    }

    fn live(&self) -> Vec<Arc<LiveNode>> {
        self.live_nodes.lock().live(clock::instant())
    }

    /// Returns the answer to a message; `None` sends no answer.
    fn answer(&self, bytes: &[u8], source: SocketAddr, transport: Transport) -> Option<Vec<u8>> {
        let reply = self.responder.answer(bytes, source.ip(), transport, &self.live());
        let code = reply.as_ref().map(|reply| reply.code);
        self.metrics.answered(transport, code);
        reply.map(|reply| reply.bytes)
    }

    /// Decides how an answer over UDP is sent.
    fn allow(&self, source: SocketAddr) -> Allowance {
        // Trusted resolvers ask for many clients, so they are exempt.
        if self.responder.trusts(source.ip()) {
            return Allowance::Whole;
        }
        let allowance = self.sources.lock().allow(source.ip(), clock::instant());
        self.metrics.allowed(allowance);
        allowance
    }
}

/// Polls a node repeatedly. Logs only changes, because a node that is down fails many polls.
async fn keep_asking(poller: AdminClient, place: usize, shared: Arc<Shared>, stopping: Shutdown) {
    let mut ticks = pauses::ticks(POLL_INTERVAL);
    let mut silent = false;
    loop {
        tokio::select! {
            () = stopping.begun() => return,
            _ = ticks.tick() => {}
        }
        let answer = poller.ask(MEMBERS).await;
        let node = poller.url();
        match &answer {
            Err(AdminError { why: error, .. }) if !silent => {
                tracing::warn!(%node, %error, "a node does not answer with its members");
            }
            Ok(_) if silent => tracing::info!(%node, "a node answers with its members again"),
            _ => {}
        }
        silent = answer.is_err();
        let now = clock::instant();
        shared.polled.lock()[place].asked(!silent, now);
        if let Ok((members, reached)) = answer {
            shared.live_nodes.lock().receive(members, reached, now);
        }
    }
}
