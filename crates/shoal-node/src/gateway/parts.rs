//! The parts of a node that answer clients, operators and peers.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::future::FutureExt;
use hyper::service::service_fn;
use parking_lot::Mutex;
use shoal_base::chance;
use shoal_cache::exchange::location;
use shoal_cache::lake::{AsSent, Lake, PlainLake};
use shoal_cache::lake_health::LakeHealthCheck;
use shoal_cache::single_flight::Underway;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::listener::{self, ConnectionLimits, RemoteEnd};
use shoal_net::http::tls::TlsReloader;
use shoal_net::shutdown::Shutdown;
use shoal_orders::hints::{Hints, RunLog};
use shoal_orders::tasks::{TaskHelper, TaskParts, Tasks};
use shoal_writeback::configured;
use shoal_writeback::dirty::{self, DirtyObjects, TierError};
use shoal_writeback::observed::WriteBack;
use shoal_writeback::packed::PackedLake;
use shoal_writeback::tiered::{TieredLake, TieredLakeParts};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::admin::history::History;
use crate::admin::observer::Observer;
use crate::admin::reloads::ReloadHistory;
use crate::block_server::BlockServer;
use crate::core::Core;
use crate::front::serve::Front;
use crate::handoff::Handoff;
use crate::planning::Planner;

/// Everything that answers requests, and the shared parts.
pub(super) struct Parts {
    core: Arc<Core>,
    pub(super) dirty: Arc<DirtyObjects>,
    pub(super) lake: Arc<dyn Lake>,
    pub(super) block_server: Arc<BlockServer>,
    pub(super) front: Arc<Front>,
    tasks: Arc<Tasks>,
    hints: Arc<Hints>,
    /// Makes plans by itself, if configured.
    planner: Option<Arc<Planner>>,
}

impl Parts {
    /// Builds the parts around `core` and the log of `runs`, and opens the tiers.
    ///
    /// # Errors
    ///
    /// Fails if a tier cannot be used as configured.
    pub(super) async fn new(core: Arc<Core>, runs: RunLog) -> Result<Self, TierError> {
        let config = &core.config;
        let tiers = configured::open(&config.tiers, &config.limits).await?;
        let settings = configured::settings(&config.write, &config.lake);
        let parts = dirty::Parts {
            rules: core.write_rules.clone(),
            fetcher: Arc::clone(&core.fetcher),
            identities: Arc::clone(&core.identities),
            through: Arc::clone(&core.write_through),
        };
        let dirty = Arc::new(DirtyObjects::open(parts, &tiers, settings).await?);
        let addresses = Arc::new(addresses(&core));
        let lake = Arc::new(PlainLake {
            fetcher: Arc::clone(&core.fetcher),
            coherence: core.coherence.clone(),
            through: Arc::clone(&core.write_through),
            addresses: Arc::clone(&addresses),
            opening: Underway::default(),
            as_sent: AsSent::new(chance::bits()),
        });
        let lake = Arc::new(PackedLake {
            dirty: Arc::clone(&dirty),
            within: lake,
            fetcher: Arc::clone(&core.fetcher),
            opening: Underway::default(),
        });
        let lake = TieredLake::new(TieredLakeParts {
            dirty: Arc::clone(&dirty),
            within: lake,
            grants: Arc::clone(&core.grants),
            endpoint: Arc::clone(&core.lake),
            addresses,
        });
        let lake: Arc<dyn Lake> = Arc::new(lake);
        let helper = Arc::new(TaskHelper::new(TaskParts {
            name: config.node.name.clone(),
            lake: Arc::clone(&lake),
            identities: Arc::clone(&core.identities),
            fetcher: Arc::clone(&core.fetcher),
            order_files: Arc::clone(&core.order_files),
        }));
        let tasks = Tasks::new(&helper, &core.bulletin, &config.plan, config.hints.limits);
        let hints = Arc::new(Hints::new(&tasks, config.hints.clone(), runs));
        Ok(Self {
            front: Arc::new(Front::new(&core, &lake)),
            planner: Planner::new(&core, &tasks, &hints),
            hints,
            tasks,
            block_server: Arc::new(BlockServer::new(Arc::clone(&core), helper)),
            dirty,
            lake,
            core,
        })
    }

    /// Spawns the background tasks, which end when the node stops.
    pub(super) fn background(&self, stopping: &Shutdown) -> Vec<JoinHandle<()>> {
        let core = &self.core;
        let stop = || stopping.clone();
        let lake_health = LakeHealthCheck::new(Arc::clone(&core.lake), Arc::clone(&core.identities));
        let bulletin = Arc::clone(&core.bulletin);
        let mut work = vec![
            tokio::spawn(Arc::clone(&core.split).run(stop())),
            tokio::spawn(lake_health.run(stop())),
            tokio::spawn(Arc::clone(&self.tasks).run(stop())),
            tokio::spawn(Arc::clone(&self.hints).run(stop())),
            tokio::spawn(bulletin.run(Arc::clone(&core.cooperation), stop())),
        ];
        work.extend(
            self.planner
                .clone()
                .map(|planner| tokio::spawn(planner.run(stop()))),
        );
        work.extend(core.keys.clone().map(|keys| tokio::spawn(keys.run(stop()))));
        let sources = core.key_sources.clone();
        work.extend(sources.map(|sources| tokio::spawn(sources.run(stop()))));
        let (keeper, coherence) = (core.keeper.clone(), core.coherence.clone());
        work.extend(keeper.map(|keeper| tokio::spawn(keeper.run(stop()))));
        work.extend(coherence.map(|coherence| tokio::spawn(coherence.run(stop()))));
        if core.addresses.peer.is_some() {
            work.push(tokio::spawn(Arc::clone(&core.messages).run(stop())));
            work.extend(core.events.clone().map(|events| tokio::spawn(events.run(stop()))));
        }
        work
    }

    /// Returns the source of this node's pages for operators, which peers can fetch, too.
    pub(super) fn pages(
        &self,
        handoff: Option<Arc<Handoff>>,
        reloads: Arc<Mutex<ReloadHistory>>,
    ) -> Arc<Observer> {
        let observer = Arc::new(Observer {
            core: Arc::clone(&self.core),
            write_back: WriteBack::new(&self.dirty),
            block_server: Arc::clone(&self.block_server),
            tasks: Arc::clone(&self.tasks),
            hints: Arc::clone(&self.hints),
            planner: self.planner.clone(),
            handoff,
            reloads,
            history: History::default(),
        });
        // The observer refers to the block server.
        let shown = Arc::downgrade(&observer);
        self.block_server.show(Arc::new(move |asked| {
            let observer = shown.upgrade();
            async move { observer?.page(&asked).await }.boxed()
        }));
        observer
    }

    /// Serves clients over `listener` until the node stops.
    pub(super) async fn serve_s3(
        self,
        listener: TcpListener,
        tls: Option<Arc<TlsReloader>>,
        stopping: Shutdown,
    ) {
        if let Some(tls) = &tls {
            tokio::spawn(Arc::clone(tls).watch(stopping.clone()));
        }
        let limits = ConnectionLimits::from(&self.core.config.limits);
        let connections = self.core.metrics.connections.clone();
        let serve_connection = move |remote: RemoteEnd| {
            let served = Arc::new((Arc::clone(&self.front), remote));
            service_fn(move |request: http::Request<ClientBody>| {
                let served = Arc::clone(&served);
                async move {
                    let (front, remote) = &*served;
                    Ok::<_, Infallible>(front.serve(request, remote).await)
                }
            })
        };
        listener::serve(listener, tls, limits, connections, stopping, serve_connection).await;
    }
}

/// The addresses at which clients reach this node, which replace the lake's own in responses.
fn addresses(core: &Core) -> location::Addresses {
    let s3 = &core.config.s3;
    let scheme = if s3.tls_cert.is_some() { "https" } else { "http" };
    location::Addresses::new(core.lake.url(), s3.domain.clone(), scheme)
}
