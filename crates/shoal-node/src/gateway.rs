//! Puts the parts of a node together; no other module does.

mod core;
mod parts;
mod tiers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use shoal_directory::redis::SettingsError;
use shoal_policy::eviction::PolicyName;
use shoal_store::{Recovery, Store, StoreError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use self::core::Core;
use self::parts::Parts;
use crate::admin::server::Readiness;
use crate::cluster::{Addresses, Cluster};
use crate::config::{Config, ConfigError};
use crate::cooperation::CooperationMode;
use crate::directory::{BlockDirectory, Reports};
use crate::dirty::{DirtyObjects, TierError};
use crate::endpoint::{CredentialsError, Endpoint, EndpointError, NodeCredentials};
use crate::http::listener::{self, ListenError};
use crate::http::tls::{TlsError, TlsReloader};
use crate::membership;
use crate::reload::{ReloadError, Reloader};
use crate::shutdown::{self, Trigger};

/// The parts that `/readyz` waits for.
const STORE: &str = "store";
const S3: &str = "s3";

/// Nodes that start together find each other within a second; waiting for that ends after this time.
const OTHERS_PATIENCE: Duration = Duration::from_secs(10);

/// One running node.
pub struct Gateway {
    s3_address: SocketAddr,
    admin_address: SocketAddr,
    recovery: Recovery,
    store: Arc<Store>,
    dirty: Arc<DirtyObjects>,
    reloader: Box<Reloader>,
    readiness: Arc<Readiness>,
    stop: Trigger,
    servers: Vec<JoinHandle<()>>,
    /// Ends the sessions with the registries. Requests in flight need them until they end.
    stop_tiers: Trigger,
    tiers: JoinHandle<()>,
    /// The node's place in its cluster, if it cooperates.
    cluster: Option<Cluster>,
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The store failed to open.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The lake's address is wrong.
    #[error(transparent)]
    Lake(#[from] EndpointError),
    /// The lake's credentials are missing or wrong.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// A tier cannot be used.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// The settings lead to no directory.
    #[error(transparent)]
    Directory(#[from] SettingsError),
    /// A port cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The port for gossip cannot be listened on.
    #[error(
        "cannot listen for gossip on {address}/udp: {source}\nhint: [cooperation] listen needs the same port for TCP and UDP"
    )]
    Gossip {
        /// The address of that port.
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
}

impl Gateway {
    /// Opens the store and both listeners; S3 is served when this returns.
    ///
    /// The admin listener comes first: while the store reads its footers, `/readyz` says which parts are
    /// missing.
    pub async fn start(config: Config) -> Result<Self, GatewayError> {
        let config = Arc::new(config);
        let s3 = listener::listen(config.s3.listen)?;
        let admin = listener::listen(config.admin.listen)?;
        let (s3_address, admin_address) = (address(&s3), address(&admin));
        let peer = match config.cooperation.mode {
            CooperationMode::Solo => None,
            CooperationMode::Hierarchy | CooperationMode::Directory => {
                Some(listener::listen(config.cooperation.listen)?)
            }
        };
        let tls = match (&config.s3.tls_cert, &config.s3.tls_key) {
            (Some(certificate), Some(key)) => Some(TlsReloader::load(certificate, key)?),
            _ => None,
        };
        let lake = open_lake(&config).await?;
        let (store, recovery) = open_store(&config).await?;

        let (directory, reports) = open_directory(&config, &store)?.unzip();
        let core = Core::new(
            config,
            s3_address,
            admin_address,
            lake,
            Arc::clone(&store),
            directory,
        );
        let parts = Parts::new(core).await?;
        let readiness = Arc::new(Readiness::awaiting(&[STORE, S3]));
        let (stop, stopping) = shutdown::channel();
        let (stop_tiers, tiers_stopping) = shutdown::channel();
        let cluster = match peer {
            None => None,
            Some(listener) => {
                let addresses = Addresses {
                    s3: s3_address,
                    admin: admin_address,
                    peer: address(&listener),
                };
                let joined = parts.join(listener, addresses, stopping.clone()).await;
                Some(joined.map_err(|source| GatewayError::Gossip {
                    address: addresses.peer,
                    source,
                })?)
            }
        };
        let reports_stopping = stopping.clone();
        let handoff = cluster
            .as_ref()
            .map(|cluster| parts.handoff(cluster, stopping.clone()));
        let keeper_stopping = stopping.clone();
        let keeper = parts.core.keeper.clone();
        let coherence_stopping = stopping.clone();
        let coherence = parts.core.coherence.clone();
        let dirty = Arc::clone(&parts.dirty);
        let reloader = Box::new(parts.reloader(tls.as_ref()));
        let mut servers = vec![
            tokio::spawn(parts.admin(&readiness, handoff).serve(admin, stopping.clone())),
            tokio::spawn(Arc::clone(&parts.core.split).run(stopping.clone())),
            tokio::spawn(parts.lake_health().run(stopping.clone())),
            tokio::spawn(parts.serve_s3(s3, tls, stopping)),
        ];
        servers.extend(reports.map(|reports| {
            let reports = reports.run(Arc::clone(&store), reports_stopping);
            tokio::spawn(reports)
        }));
        servers.extend(keeper.map(|keeper| tokio::spawn(keeper.run(keeper_stopping))));
        servers.extend(coherence.map(|coherence| tokio::spawn(coherence.run(coherence_stopping))));
        let tiers = tokio::spawn(Arc::clone(&dirty).run(tiers_stopping));
        readiness.reached(STORE);
        readiness.reached(S3);
        Ok(Self {
            s3_address,
            admin_address,
            recovery,
            store,
            dirty,
            reloader,
            readiness,
            stop,
            servers,
            stop_tiers,
            tiers,
            cluster,
        })
    }

    /// The address at which S3 is served.
    pub fn s3_address(&self) -> SocketAddr {
        self.s3_address
    }

    /// The address of the admin listener.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// The address at which other nodes reach this one, if it cooperates.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.cluster.as_ref().map(Cluster::address)
    }

    /// Waits until this node has heard of `nodes` nodes, itself included, or for some seconds. A node that
    /// does not cooperate does not wait.
    pub async fn sees_others(&self, nodes: usize) {
        let Some(cluster) = &self.cluster else { return };
        let mut members = cluster.membership().members();
        let complete = members.wait_for(|members| members.len() >= nodes);
        // `/members` shows which nodes are missing.
        let _ = tokio::time::timeout(OTHERS_PATIENCE, complete).await;
    }

    /// Takes a new configuration over, as far as it can change while the node runs; returns the configuration
    /// that is in force then. If there is something wrong with the new one, the node goes on as before.
    pub async fn reload(&self, new: Result<Config, ConfigError>) -> Result<Config, ReloadError> {
        self.reloader.reload(new).await
    }

    /// The state of the disk that the store found when it opened.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The store, for tests and commands that look at it.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The objects that the lake does not have yet, for tests that look at them.
    pub fn dirty(&self) -> &Arc<DirtyObjects> {
        &self.dirty
    }

    /// Finishes the requests in flight and stops.
    pub async fn shutdown(self) {
        self.readiness.lost(S3);
        self.stop.begin();
        if let Some(cluster) = self.cluster {
            cluster.leave().await;
        }
        for server in self.servers {
            if let Err(error) = server.await {
                tracing::error!(%error, "a listener ended in a panic");
            }
        }
        self.stop_tiers.begin();
        if let Err(error) = self.tiers.await {
            tracing::error!(%error, "the work for the tiers ended in a panic");
        }
        self.store.shutdown().await;
    }
}

/// The address of a listener that is bound.
fn address(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("a bound listener has an address")
}

async fn open_lake(config: &Config) -> Result<Arc<Endpoint>, GatewayError> {
    let credentials = NodeCredentials::resolve(&config.lake).await?;
    let lake = Endpoint::new(&config.lake, &config.limits, credentials)?;
    Ok(Arc::new(lake.in_turns(config.limits.lake_requests)))
}

/// The directory of blocks that the nodes share, if they do, and the task that reports to it.
fn open_directory(
    config: &Config,
    store: &Store,
) -> Result<Option<(Arc<BlockDirectory>, Reports)>, SettingsError> {
    if config.cooperation.mode != CooperationMode::Directory {
        return Ok(None);
    }
    let me = membership::node_id(&config.node.name);
    let (directory, reports) = BlockDirectory::open(&config.directory, me, &config.lake.endpoint)?;
    directory.follow(store);
    Ok(Some((directory, reports)))
}

async fn open_store(config: &Config) -> Result<(Arc<Store>, Recovery), StoreError> {
    let (mut store, mapped_bytes) = (config.store.clone(), config.limits.mapped_bytes);
    if config.cooperation.mode == CooperationMode::Directory {
        store.policy.get_or_insert(PolicyName::Gwf);
    }
    let layers = core::layers_of_room(config);
    let opening = tokio::task::spawn_blocking(move || Store::open(&store, mapped_bytes, layers));
    opening.await.expect("opening a store does not panic")
}
