//! Assembles the parts of a node; no other module does.

mod parts;
mod reload;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_cache::cooperation::CooperationMode;
use shoal_cache::directory::{BlockDirectory, Reports};
use shoal_cache::quotas::QuotaConfig;
use shoal_directory::redis::SettingsError;
use shoal_net::clock;
use shoal_net::collector::Collector;
use shoal_net::endpoint::{Endpoint, NodeCredentials};
use shoal_net::http::listener;
use shoal_net::http::tls::{TlsError, TlsReloader};
use shoal_net::membership;
use shoal_net::shutdown::{self, Shutdown, Trigger};
use shoal_orders::bulletin::Bulletin;
use shoal_orders::hints::RunLog;
use shoal_orders::tasks::OrderFiles;
use shoal_policy::eviction::PolicyName;
use shoal_store::{Store, StoreError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use self::parts::Parts;
use crate::admin::auth::AdminAuth;
use crate::admin::reloads::ReloadHistory;
use crate::admin::server::Admin;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::core::{self, Addresses, Core};
use crate::credentials::{CredentialsServer, Relay};
use crate::front::serve::Front;
use crate::handoff::Handoff;
use shoal_net::http::allowed_hosts::AllowedHosts;

/// How long a node waits at start for the nodes that start with it, which usually takes less than a second.
const OTHERS_PATIENCE: Duration = Duration::from_secs(10);

/// The certificate of a port, if it uses TLS.
type PortCertificate = Option<Arc<TlsReloader>>;

/// The certificates of the ports for others than nodes.
struct PortCertificates {
    s3: PortCertificate,
    sts: PortCertificate,
    admin: PortCertificate,
}

/// One running node.
pub struct Gateway {
    core: Arc<Core>,
    front: Arc<Front>,
    /// Certificates of the ports that use TLS.
    tls: Vec<Arc<TlsReloader>>,
    auth: Arc<AdminAuth>,
    reloads: Arc<Mutex<ReloadHistory>>,
    /// The configuration in force. Locked during a reload.
    in_force: tokio::sync::Mutex<Config>,
    stop: Trigger,
    servers: Vec<JoinHandle<()>>,
    /// Ends the registry sessions, which requests in flight need until they finish.
    stop_tiers: Trigger,
    tiers: JoinHandle<()>,
    traces: Option<TraceSender>,
    /// The node's cluster, if it cooperates.
    cluster: Option<Cluster>,
}

/// Why a node fails to start, or rejects a new configuration. A hint may stand on a second line.
pub type GatewayError = Box<dyn Error + Send + Sync>;

impl Gateway {
    /// Opens the store and both listeners; S3 is being served when this returns.
    ///
    /// The ports are bound first; requests to them wait until the store is open.
    pub async fn start(config: Config) -> Result<Self, GatewayError> {
        let s3 = listener::listen(config.s3.listen)?;
        let admin = listener::listen(config.admin.listen)?;
        let sts = config
            .sts
            .is_on()
            .then(|| listener::listen(config.sts.listen))
            .transpose()?;
        let peer = match config.cooperation.mode {
            CooperationMode::Solo => None,
            CooperationMode::Hierarchy | CooperationMode::Directory => {
                Some(listener::listen(config.cooperation.listen)?)
            }
        };
        let addresses = Addresses {
            s3: address(&s3),
            sts: sts.as_ref().map(address),
            admin: address(&admin),
            peer: peer.as_ref().map(address),
        };
        let PortCertificates {
            s3: tls,
            sts: sts_tls,
            admin: admin_tls,
        } = open_certificates(&config)?;
        let auth = AdminAuth::open(
            config.admin.token_file.clone(),
            config.hints.token_file.clone(),
            config.admin.client_ca.is_some(),
        )?;
        let lake = open_lake(&config).await?;
        let store = open_store(&config).await?;

        let (directory, reports) = open_directory(&config, &store)?.unzip();
        let bulletin = Bulletin::open(membership::node_id(&config.node.name).0, &store);
        let bulletin = bulletin.map_err(|error| format!(
            "the records of tasks cannot be opened: {error}\nhint: the node needs to read and write node/bulletin in [store] path; without that file the node forgets the tasks that it knows"
        ))?;
        let order_files = OrderFiles::open(&store, "manifests").map_err(|error| format!(
            "the lists of tasks cannot be opened: {error}\nhint: the node needs to read and write node/manifests in [store] path"
        ))?;
        let runs = RunLog::open(&store).map_err(|error| format!(
            "the log of runs cannot be opened: {error}\nhint: the node needs to read and write node/runs in [store] path; without that file it forgets what jobs read"
        ))?;
        let shared = Arc::clone(&store);
        let core = Core::new(config, addresses, lake, shared, directory, bulletin, order_files);
        let core = Arc::new(core?);
        let parts = Box::pin(Parts::new(Arc::clone(&core), runs)).await?;
        let (stop, stopping) = shutdown::channel();
        let (stop_tiers, tiers_stopping) = shutdown::channel();
        let cluster = match peer {
            None => None,
            Some(listener) => Some(join(&core, listener, &parts, &stopping).await?),
        };
        let handoff = cluster.as_ref().map(|cluster| {
            let announcer = cluster.membership.announcer();
            let (core, lake) = (Arc::clone(&core), Arc::clone(&parts.lake));
            Arc::new(Handoff::new(core, lake, announcer, stopping.clone()))
        });
        let reloads = Arc::new(Mutex::new(ReloadHistory::since(clock::utc_now())));
        let tls_of_ports = [&tls, &sts_tls, &admin_tls]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let mut servers = parts.background(&stopping);
        servers.extend(reports.map(|reports| {
            let reports = reports.run(Arc::clone(&store), stopping.clone());
            tokio::spawn(reports)
        }));
        let (entries, front) = (Arc::clone(&parts.dirty.entries), Arc::clone(&parts.front));
        let admin_pages = Admin {
            node: parts.pages(handoff, Arc::clone(&reloads)),
            hosts: AllowedHosts::new(&core.config.admin.hosts),
            auth: Arc::clone(&auth),
            stopping: stopping.clone(),
        };
        if let (Some(listener), Some(keys)) = (sts, &core.keys) {
            let server = CredentialsServer::new(&core, Relay::new(&core, keys)?);
            servers.push(tokio::spawn(server.serve(listener, sts_tls, stopping.clone())));
        }
        servers.extend([
            tokio::spawn(admin_pages.serve(admin, admin_tls)),
            tokio::spawn(parts.serve_s3(s3, tls, stopping)),
        ]);
        let tiers = tokio::spawn(entries.run(tiers_stopping));
        Ok(Self {
            in_force: tokio::sync::Mutex::new(core.config.clone()),
            front,
            tls: tls_of_ports,
            auth,
            reloads,
            stop,
            servers,
            stop_tiers,
            tiers,
            traces: core.collector.as_ref().map(TraceSender::start),
            core,
            cluster,
        })
    }

    /// Returns the address at which S3 is served.
    pub fn s3_address(&self) -> SocketAddr {
        self.core.addresses.s3
    }

    /// Returns the address at which clients get temporary keys, if they can.
    pub fn sts_address(&self) -> Option<SocketAddr> {
        self.core.addresses.sts
    }

    /// Returns the address of the admin listener.
    pub fn admin_address(&self) -> SocketAddr {
        self.core.addresses.admin
    }

    /// Returns the address at which other nodes reach this one, if it cooperates.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.cluster.as_ref().map(|cluster| cluster.address)
    }

    /// Waits until this node knows `nodes` members, itself included, or for a few seconds. Returns at once on
    /// a node that does not cooperate.
    pub async fn sees_others(&self, nodes: usize) {
        let Some(cluster) = &self.cluster else { return };
        let mut members = cluster.membership.members();
        let complete = members.wait_for(|members| members.len() >= nodes);
        // `/members` shows which nodes are missing.
        let _ = tokio::time::timeout(OTHERS_PATIENCE, complete).await;
    }

    /// Returns the store, for tests and commands that inspect it.
    pub fn store(&self) -> &Arc<Store> {
        &self.core.store
    }

    /// Finishes the requests in flight and stops.
    pub async fn shutdown(self) {
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
        self.core.access_log.close().await;
        if let Some(traces) = self.traces {
            traces.stop().await;
        }
        self.core.store.shutdown().await;
    }
}

/// The task that sends spans. It outlives the requests that the spans are of.
struct TraceSender {
    stop: Trigger,
    task: JoinHandle<()>,
}

impl TraceSender {
    fn start(collector: &Arc<Collector>) -> Self {
        let (stop, stopping) = shutdown::channel();
        let task = tokio::spawn(Arc::clone(collector).run(stopping));
        Self { stop, task }
    }

    /// Sends the last spans, for a few seconds at most.
    async fn stop(self) {
        self.stop.begin();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the sending of traces ended in a panic");
        }
    }
}

/// Joins the cluster with the port for other nodes.
async fn join(
    core: &Core,
    listener: TcpListener,
    parts: &Parts,
    stopping: &Shutdown,
) -> Result<Cluster, GatewayError> {
    let address = address(&listener);
    let block_server = Arc::clone(&parts.block_server);
    let joined = Cluster::join(core, listener, block_server, stopping.clone()).await;
    Ok(joined.map_err(|error| format!(
        "cannot listen for gossip on {address}/udp: {error}\nhint: [cooperation] listen needs the same port for TCP and UDP"
    ))?)
}

/// Returns the address of a bound listener.
fn address(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("a bound listener has an address")
}

/// Loads the certificates of the ports for clients and for operators.
fn open_certificates(config: &Config) -> Result<PortCertificates, TlsError> {
    let open = |certificate: &Option<PathBuf>, key: &Option<PathBuf>, client_ca: Option<PathBuf>| {
        let files = certificate.as_ref().zip(key.as_ref());
        files
            .map(|(certificate, key)| TlsReloader::load(certificate, key, client_ca))
            .transpose()
    };
    let (s3, sts, admin) = (&config.s3, &config.sts, &config.admin);
    Ok(PortCertificates {
        s3: open(&s3.tls_cert, &s3.tls_key, None)?,
        sts: open(&sts.tls_cert, &sts.tls_key, None)?,
        admin: open(&admin.tls_cert, &admin.tls_key, admin.client_ca.clone())?,
    })
}

async fn open_lake(config: &Config) -> Result<Arc<Endpoint>, GatewayError> {
    let credentials = NodeCredentials::resolve(&config.lake).await?;
    let lake = Endpoint::new(&config.lake, &config.limits, credentials)?;
    Ok(Arc::new(lake.in_turns(config.limits.lake_requests)))
}

/// Opens the block directory, if the nodes share one, and its reporting task.
fn open_directory(
    config: &Config,
    store: &Arc<Store>,
) -> Result<Option<(Arc<BlockDirectory>, Reports)>, SettingsError> {
    if config.cooperation.mode != CooperationMode::Directory {
        return Ok(None);
    }
    let me = membership::node_id(&config.node.name);
    let (directory, reports) = BlockDirectory::open(&config.directory, me, &config.lake.endpoint)?;
    directory.follow(store);
    Ok(Some((directory, reports)))
}

/// The most bytes that stay mapped for hits. They are page cache, which the kernel takes back when it needs
/// memory, so the bound is one of address space only.
const MAPPED_BYTES: u64 = 1 << 30;

async fn open_store(config: &Config) -> Result<Arc<Store>, StoreError> {
    let mut store = config.store.clone();
    store.quotas = QuotaConfig::rooms(&config.quotas, store.capacity_bytes);
    if config.cooperation.mode == CooperationMode::Directory {
        store.policy.get_or_insert(PolicyName::Gwf);
    }
    let layers = core::layers_of_room(config);
    let opening = tokio::task::spawn_blocking(move || Store::open(&store, MAPPED_BYTES, layers));
    let (store, _) = opening.await.expect("opening a store does not panic")?;
    Ok(store)
}
