//! Puts the parts of a node together; no other module does.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt;
use hyper::service::service_fn;
use shoal_s3::auth::Gate;
use shoal_s3::identity::Identities;
use shoal_s3::operation::Operation;
use shoal_store::{Recovery, Store, StoreError};
use tokio::task::JoinHandle;

use crate::admin::allowed_hosts::AllowedHosts;
use crate::admin::explain::Explainer;
use crate::admin::observer::Observer;
use crate::admin::server::{Admin, Readiness};
use crate::block_server::BlockServer;
use crate::channel::Channel;
use crate::clock;
use crate::cluster::{Addresses, Cluster, NodeServices};
use crate::config::{Anonymous, Config, ConfigError, CooperationMode};
use crate::cooperation::Cooperation;
use crate::dirty::{self, DirtyObjects, FlushOrders};
use crate::endpoint::{CredentialsError, Endpoint, EndpointError, NodeCredentials};
use crate::fair::in_flight::InFlight;
use crate::fetch::{Fetcher, FetcherParts};
use crate::freshness::FreshnessRules;
use crate::front::serve::{Front, FrontParts};
use crate::grants::Grants;
use crate::handoff::Handoff;
use crate::http::connection::ClientBody;
use crate::http::listener::{self, ConnectionLimits, ListenError, RemoteEnd};
use crate::http::tls::{TlsError, TlsReloader};
use crate::lake_health::LakeHealthCheck;
use crate::metrics::Metrics;
use crate::peer::PeerConnector;
use crate::read::{OpenLock, Reader};
use crate::reload::{self, ReloadError, Reloader, Reloads};
use crate::shutdown::{self, Shutdown, Trigger};
use crate::single_flight::SingleFlight;
use crate::split::Split;
use crate::write::{WriteRules, WriteThrough, WriteThroughSizes};

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
        let (s3, admin) = (
            listener::listen(config.s3.listen)?,
            listener::listen(config.admin.listen)?,
        );
        let address = |listener: &tokio::net::TcpListener| {
            listener.local_addr().expect("a bound listener has an address")
        };
        let (s3_address, admin_address) = (address(&s3), address(&admin));
        let peer = match config.cooperation.mode {
            CooperationMode::Solo => None,
            CooperationMode::Hierarchy => Some(listener::listen(config.cooperation.listen)?),
        };
        let tls = match (&config.s3.tls_cert, &config.s3.tls_key) {
            (Some(certificate), Some(key)) => Some(TlsReloader::load(certificate, key)?),
            _ => None,
        };
        let credentials = NodeCredentials::resolve(&config.lake).await?;
        let lake = Arc::new(
            Endpoint::new(&config.lake, &config.limits, credentials)?.in_turns(config.limits.lake_requests),
        );
        let (store, recovery) = open_store(&config).await?;

        let parts = Parts::new(&config, lake, Arc::clone(&store), (s3_address, admin_address)).await;
        let readiness = Arc::new(Readiness::awaiting(&[STORE, S3]));
        let (stop, stopping) = shutdown::channel();
        let mut handoff = None;
        let cluster = match peer {
            None => None,
            Some(listener) => {
                let addresses = Addresses {
                    s3: s3_address,
                    admin: admin_address,
                    peer: address(&listener),
                };
                let joined = Cluster::join(
                    &config,
                    listener,
                    addresses,
                    Arc::clone(&parts.cooperation),
                    NodeServices {
                        host: Arc::clone(&parts.host),
                        dirty: Arc::clone(&parts.dirty),
                    },
                    Arc::clone(&store),
                    stopping.clone(),
                );
                let cluster = joined.await.map_err(|source| GatewayError::Gossip {
                    address: addresses.peer,
                    source,
                })?;
                handoff = Some(parts.handoff(&cluster, &store, stopping.clone()));
                Some(cluster)
            }
        };
        let dirty = Arc::clone(&parts.dirty);
        let reloader = Box::new(parts.reloader(tls.as_ref()));
        let servers = vec![
            tokio::spawn(parts.admin(&readiness, handoff).serve(admin, stopping.clone())),
            tokio::spawn(Arc::clone(&parts.split).run(stopping.clone())),
            tokio::spawn(parts.lake_health().run(stopping.clone())),
            tokio::spawn(Arc::clone(&parts.dirty).run(cluster.is_some(), stopping.clone())),
            tokio::spawn(serve_s3(s3, tls, parts, stopping)),
        ];
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
        self.store.shutdown().await;
    }
}

async fn open_store(config: &Config) -> Result<(Arc<Store>, Recovery), StoreError> {
    let (store, mapped_bytes) = (config.store.clone(), config.limits.mapped_bytes);
    let layers = layers(config);
    let opening = tokio::task::spawn_blocking(move || Store::open(&store, mapped_bytes, layers));
    opening.await.expect("opening a store does not panic")
}

async fn serve_s3(
    listener: tokio::net::TcpListener,
    tls: Option<Arc<TlsReloader>>,
    parts: Parts,
    stopping: Shutdown,
) {
    if let Some(tls) = &tls {
        let (tls, stopping) = (Arc::clone(tls), stopping.clone());
        tokio::spawn(tls.watch(stopping));
    }
    let limits = ConnectionLimits::from(&parts.config.limits);
    let (front, connections) = (parts.front, parts.metrics.connections());
    listener::serve(
        listener,
        tls,
        limits,
        connections,
        stopping,
        move |remote: RemoteEnd| {
            let front = Arc::clone(&front);
            service_fn(move |request: http::Request<ClientBody>| {
                let front = Arc::clone(&front);
                let remote = remote.clone();
                async move { Ok::<_, Infallible>(front.serve(request, &remote).await) }
            })
        },
    )
    .await;
}

/// Everything that answers requests.
struct Parts {
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    front: Arc<Front>,
    observer: Arc<Observer>,
    explainer: Arc<Explainer>,
    cooperation: Arc<Cooperation>,
    host: Arc<BlockServer>,
    split: Arc<Split>,
    dirty: Arc<DirtyObjects>,
    flushes: Arc<FlushOrders>,
    lake: Arc<Endpoint>,
    identities: Arc<Identities>,
    reloads: Arc<Reloads>,
}

impl Parts {
    async fn new(
        config: &Arc<Config>,
        lake: Arc<Endpoint>,
        store: Arc<Store>,
        addresses: (SocketAddr, SocketAddr),
    ) -> Self {
        let (limits, ahead) = (&config.limits, config.limits.read_ahead_blocks);
        let metrics = Arc::new(Metrics::new(&Operation::ALL.map(Operation::as_str)));
        let (grants, single_flight) = (Arc::<Grants>::default(), Arc::<SingleFlight>::default());
        let split = Split::new(Arc::clone(&store), &config.cooperation, config.store.block_bytes);
        let split = Arc::new(split);
        let cooperation = Arc::new(cooperation(config));
        let fetching = FetcherParts {
            lake: Arc::clone(&lake),
            grants: Arc::clone(&grants),
            cooperation: Arc::clone(&cooperation),
            split: Arc::clone(&split),
            store: Arc::clone(&store),
            single_flight: Arc::clone(&single_flight),
        };
        let explainer = explainer(config, &fetching);
        let fetcher = Arc::new(Fetcher::new(fetching, limits.fill_bytes, ahead));
        let identities = Arc::new(Identities::new(reload::identities(config)));
        let reloads = Arc::new(Reloads::since(clock::utc_now()));
        let host = Arc::new(host(config, &identities, &lake, &store, &fetcher));
        let through = Arc::new(WriteThrough::new(
            Arc::clone(&store),
            Arc::clone(&fetcher),
            Arc::clone(&cooperation),
            Arc::clone(&grants),
            WriteThroughSizes::from(&config.store),
        ));
        let writing = WriteRules::new(&config.write);
        let dirty = dirty::Parts {
            rules: writing.clone(),
            lake: Arc::clone(&lake),
            store: Arc::clone(&store),
            fetcher: Arc::clone(&fetcher),
            cooperation: Arc::clone(&cooperation),
            grants: Arc::clone(&grants),
            identities: Arc::clone(&identities),
        };
        let dirty = Arc::new(DirtyObjects::open(dirty, config).await);
        let flushes = Arc::new(FlushOrders::of(&dirty));
        let in_flight = InFlight::new(limits.requests, limits.requests_per_identity, limits.connections);
        let observer = Observer {
            in_flight: Arc::clone(&in_flight),
            config: Arc::clone(config),
            lake: Arc::clone(&lake),
            store: Arc::clone(&store),
            split: Arc::clone(&split),
            single_flight,
            fetcher: Arc::clone(&fetcher),
            through: Arc::clone(&through),
            dirty: Arc::clone(&dirty),
            flushes: Arc::clone(&flushes),
            cooperation: Arc::clone(&cooperation),
            host: Arc::clone(&host),
            addresses,
            reloads: Arc::clone(&reloads),
            last_reported: parking_lot::Mutex::default(),
        };
        let reader = Reader {
            lake: Arc::clone(&lake),
            store,
            grants: Arc::clone(&grants),
            fetcher,
            cooperation: Arc::clone(&cooperation),
            ahead,
            block_bytes: config.store.block_bytes,
            open_lock: OpenLock::default(),
        };
        let gate = gate(config, Arc::clone(&identities));
        let front = Front::new(FrontParts {
            gate,
            lake: Arc::clone(&lake),
            grants,
            reader,
            freshness: FreshnessRules::new(&config.freshness),
            write_rules: writing,
            dirty: Arc::clone(&dirty),
            through,
            in_flight,
            metrics: Arc::clone(&metrics),
            domain: config.s3.domain.clone(),
            scheme: scheme(config),
            access_log: config.log.access,
        });
        Self {
            config: Arc::clone(config),
            metrics,
            front: Arc::new(front),
            observer: Arc::new(observer),
            explainer: Arc::new(explainer),
            cooperation,
            host,
            split,
            dirty,
            flushes,
            lake,
            identities,
            reloads,
        }
    }

    fn reloader(&self, tls: Option<&Arc<TlsReloader>>) -> Reloader {
        Reloader {
            identities: Arc::clone(&self.identities),
            front: Arc::clone(&self.front),
            cooperation: Arc::clone(&self.cooperation),
            tls: tls.cloned(),
            reloads: Arc::clone(&self.reloads),
            in_force: tokio::sync::Mutex::new(Config::clone(&self.config)),
        }
    }

    fn lake_health(&self) -> LakeHealthCheck {
        LakeHealthCheck::new(Arc::clone(&self.lake), Arc::clone(&self.identities))
    }

    fn handoff(&self, cluster: &Cluster, store: &Arc<Store>, stopping: Shutdown) -> Arc<Handoff> {
        let cooperation = Arc::clone(&self.cooperation);
        let announcer = cluster.membership().announcer();
        let dirty = Arc::clone(&self.dirty);
        Arc::new(Handoff::new(
            Arc::clone(store),
            cooperation,
            dirty,
            announcer,
            stopping,
        ))
    }

    fn admin(&self, readiness: &Arc<Readiness>, handoff: Option<Arc<Handoff>>) -> Admin {
        let [measured, shown, present, judged] = [(); 4].map(|()| Arc::clone(&self.observer));
        let progress = {
            let handoff = handoff.clone();
            move || handoff.as_ref().map(|handoff| handoff.progress())
        };
        let [drain, draining] = [(); 2].map(|()| progress.clone());
        let (metrics, explainer) = (Arc::clone(&self.metrics), Arc::clone(&self.explainer));
        Admin {
            metrics: Arc::clone(&self.metrics),
            readiness: Arc::clone(readiness),
            conditions: Arc::new(move || judged.conditions(drain().as_ref())),
            status: Arc::new(move || shown.status(progress())),
            members: Arc::new(move || present.members(metrics.requests_in_flight())),
            explain: Arc::new(move |question| {
                let explainer = Arc::clone(&explainer);
                async move { explainer.explain(&question).await }.boxed()
            }),
            handoff,
            hosts: AllowedHosts::new(&self.config.admin.hosts),
            flushes: Arc::clone(&self.flushes),
            measure: Arc::new(move |metrics| measured.measure(metrics, draining().as_ref())),
        }
    }
}

/// The scheme of this node's URLs.
fn scheme(config: &Config) -> &'static str {
    if config.s3.tls_cert.is_some() {
        "https"
    } else {
        "http"
    }
}

/// A node that does not cooperate has one layer: its own.
fn layers(config: &Config) -> usize {
    match config.cooperation.mode {
        CooperationMode::Solo => 1,
        CooperationMode::Hierarchy => config.cooperation.layers.len(),
    }
}

fn explainer(config: &Config, parts: &FetcherParts) -> Explainer {
    Explainer {
        node: config.node.name.clone(),
        lake: Arc::clone(&parts.lake),
        grants: Arc::clone(&parts.grants),
        store: Arc::clone(&parts.store),
        single_flight: Arc::clone(&parts.single_flight),
        cooperation: Arc::clone(&parts.cooperation),
    }
}

fn host(
    config: &Config,
    identities: &Arc<Identities>,
    lake: &Arc<Endpoint>,
    store: &Arc<Store>,
    fetcher: &Arc<Fetcher>,
) -> BlockServer {
    BlockServer::new(
        Arc::clone(identities),
        Arc::clone(lake),
        Arc::clone(store),
        Arc::clone(fetcher),
        config.store.block_bytes,
        config.limits.requests,
    )
}

fn gate(config: &Config, identities: Arc<Identities>) -> Gate {
    let mut gate = Gate::new(identities, &config.lake.region);
    if config.s3.anonymous == Anonymous::Refuse {
        gate = gate.without_strangers();
    }
    if config.s3.signature_v2 {
        gate.with_signature_v2(config.s3.domain.clone())
    } else {
        gate
    }
}

fn cooperation(config: &Config) -> Cooperation {
    let node = &config.node;
    let channel = Channel::new(&node.name, &config.cooperation, config.limits.connections);
    let peers = PeerConnector::new(Arc::new(channel), &config.limits);
    Cooperation::new(&node.name, &node.topology, layers(config), peers)
}
