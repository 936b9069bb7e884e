//! The parts of a node that answer clients, operators and peers.

use std::convert::Infallible;
use std::sync::{Arc, Weak};

use futures_util::future::FutureExt;
use hyper::service::service_fn;
use serde_json::json;
use shoal_cache::exchange::location;
use shoal_cache::freshness::FreshnessRules;
use shoal_cache::lake::{Lake, PlainLake, PlainLakeParts};
use shoal_cache::lake_health::LakeHealthCheck;
use shoal_cache::read::ObjectReader;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::listener::{self, ConnectionLimits, RemoteEnd};
use shoal_net::http::tls::TlsReloader;
use shoal_net::shutdown::Shutdown;
use shoal_orders::tasks::{Nodes, TaskHelper, TaskParts, Tasks};
use shoal_s3::auth::Gate;
use shoal_writeback::dirty::{self, DirtyObjects, FlushOrders, TierError};
use shoal_writeback::tiered::{TieredLake, TieredLakeParts};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::core::Core;
use super::tiers;
use crate::admin::allowed_hosts::AllowedHosts;
use crate::admin::explain::{ExplainQuery, Explainer};
use crate::admin::observer::{Observer, ObserverConfig};
use crate::admin::server::{Admin, Readiness};
use crate::block_server::{BlockServer, BlockServerParts, PageSource};
use crate::cluster::{Addresses, Cluster};
use crate::config::Config;
use crate::front::Anonymous;
use crate::front::serve::{Front, FrontParts};
use crate::handoff::Handoff;
use crate::reload::Reloader;

/// Everything that answers requests, and the shared parts.
pub(super) struct Parts {
    pub(super) core: Core,
    pub(super) dirty: Arc<DirtyObjects>,
    lake: Arc<dyn Lake>,
    flushes: Arc<FlushOrders>,
    block_server: Arc<BlockServer>,
    front: Arc<Front>,
    observer: Arc<Observer>,
    explainer: Arc<Explainer>,
    pub(super) tasks: Arc<Tasks>,
}

impl Parts {
    /// Builds the parts around `core`, and opens the tiers.
    ///
    /// # Errors
    ///
    /// Fails if a tier cannot be used as configured.
    pub(super) async fn new(core: Core) -> Result<Self, TierError> {
        let tiers = tiers::open(&core.config).await?;
        let settings = tiers::settings(&core.config);
        let dirty = Arc::new(DirtyObjects::open(dirty_parts(&core), &tiers, settings).await?);
        let flushes = Arc::new(FlushOrders::of(&dirty));
        let addresses = Arc::new(addresses(&core));
        let lake = Arc::new(PlainLake::new(plain_lake(&core, &addresses)));
        let lake = TieredLake::new(TieredLakeParts {
            dirty: Arc::clone(&dirty),
            within: lake,
            grants: Arc::clone(&core.grants),
            endpoint: Arc::clone(&core.lake),
            addresses,
        });
        let lake: Arc<dyn Lake> = Arc::new(lake);
        let helper = Arc::new(task_helper(&core, &lake));
        let block_server = Arc::new(block_server(&core, &helper));
        let task_parts = Arc::new(task_parts(&core, &lake, &helper));
        let tasks = Tasks::new(&task_parts, &core.bulletin, &core.config.plan);
        let observer = Observer {
            in_flight: Arc::clone(&core.in_flight),
            config: observer_config(&core.config),
            lake: Arc::clone(&core.lake),
            identities: Arc::clone(&core.identities),
            store: Arc::clone(&core.store),
            split: Arc::clone(&core.split),
            single_flight: Arc::clone(&core.single_flight),
            fetcher: Arc::clone(&core.fetcher),
            through: Arc::clone(&core.write_through),
            dirty: Arc::clone(&dirty),
            flushes: Arc::clone(&flushes),
            cooperation: Arc::clone(&core.cooperation),
            messages: Arc::clone(&core.messages),
            directory: core.directory.clone(),
            coherence: core.coherence.clone(),
            keeper: core.keeper.clone(),
            events: core.events.clone(),
            block_server: Arc::clone(&block_server),
            tasks: Arc::clone(&tasks),
            s3_address: core.s3_address,
            admin_address: core.admin_address,
            reloads: Arc::clone(&core.reloads),
            metrics: Arc::clone(&core.metrics),
        };
        Ok(Self {
            front: Arc::new(front(&core, &lake)),
            explainer: Arc::new(explainer(&core)),
            observer: Arc::new(observer),
            tasks,
            block_server,
            flushes,
            dirty,
            lake,
            core,
        })
    }

    /// Starts to serve other nodes over `listener`, and joins their cluster.
    pub(super) async fn join(
        &self,
        listener: TcpListener,
        addresses: Addresses,
        stopping: Shutdown,
    ) -> std::io::Result<Cluster> {
        let core = &self.core;
        Cluster::join(
            &core.config,
            listener,
            addresses,
            Arc::clone(&core.cooperation),
            Arc::clone(&self.block_server),
            (Arc::clone(&core.store), core.lake.link()),
            stopping,
        )
        .await
    }

    /// Creates the handoff, which drains this node on an operator's order.
    pub(super) fn handoff(&self, cluster: &Cluster, stopping: Shutdown) -> Arc<Handoff> {
        Arc::new(Handoff::new(
            Arc::clone(&self.core.store),
            Arc::clone(&self.core.cooperation),
            Arc::clone(&self.lake),
            cluster.membership().announcer(),
            stopping,
        ))
    }

    /// Creates the reloader of this node's configuration.
    pub(super) fn reloader(
        &self,
        tls: Option<&Arc<TlsReloader>>,
        admin_tls: Option<&Arc<TlsReloader>>,
    ) -> Reloader {
        let core = &self.core;
        Reloader {
            identities: Arc::clone(&core.identities),
            front: Arc::clone(&self.front),
            cooperation: Arc::clone(&core.cooperation),
            link: core.lake.link().cloned(),
            tls: tls.into_iter().chain(admin_tls).cloned().collect(),
            admin_auth: Arc::clone(&core.admin_auth),
            reloads: Arc::clone(&core.reloads),
            in_force: tokio::sync::Mutex::new(Config::clone(&core.config)),
        }
    }

    /// Spawns the background tasks, which end when the node stops.
    pub(super) fn background(&self, is_in_cluster: bool, stopping: &Shutdown) -> Vec<JoinHandle<()>> {
        let core = &self.core;
        let stop = || stopping.clone();
        let lake_health = LakeHealthCheck::new(Arc::clone(&core.lake), Arc::clone(&core.identities));
        let bulletin = Arc::clone(&core.bulletin);
        let mut work = vec![
            tokio::spawn(Arc::clone(&core.split).run(stop())),
            tokio::spawn(lake_health.run(stop())),
            tokio::spawn(Arc::clone(&self.tasks).run(stop())),
            tokio::spawn(bulletin.run(Arc::clone(&core.cooperation), stop())),
        ];
        let (keeper, coherence) = (core.keeper.clone(), core.coherence.clone());
        work.extend(keeper.map(|keeper| tokio::spawn(keeper.run(stop()))));
        work.extend(coherence.map(|coherence| tokio::spawn(coherence.run(stop()))));
        if is_in_cluster {
            work.push(tokio::spawn(Arc::clone(&core.messages).run(stop())));
            work.extend(core.events.clone().map(|events| tokio::spawn(events.run(stop()))));
        }
        work
    }

    /// Creates the admin pages.
    pub(super) fn admin(&self, readiness: &Arc<Readiness>, handoff: Option<Arc<Handoff>>) -> Admin {
        let core = &self.core;
        let [measured, shown, present, judged] = [(); 4].map(|()| Arc::clone(&self.observer));
        let progress = {
            let handoff = handoff.clone();
            move || handoff.as_ref().map(|handoff| handoff.progress())
        };
        let [drain, draining] = [(); 2].map(|()| progress.clone());
        let explainer = Arc::clone(&self.explainer);
        let cooperation = Arc::clone(&core.cooperation);
        self.block_server.show(self.pages(handoff.as_ref()));
        Admin {
            metrics: Arc::new(move || measured.metrics(draining())),
            readiness: Arc::clone(readiness),
            conditions: Arc::new(move || judged.conditions(drain().as_ref())),
            status: Arc::new(move || {
                let (observer, drain) = (Arc::clone(&shown), progress());
                async move {
                    observer.refresh().await;
                    json!(observer.status(drain))
                }
                .boxed()
            }),
            members: Arc::new(move || present.members()),
            explain: Arc::new(move |question| {
                let explainer = Arc::clone(&explainer);
                async move { explainer.explain(&question).await }.boxed()
            }),
            others: Arc::new(move |asked, query| {
                let cooperation = Arc::clone(&cooperation);
                async move { asked.get(&cooperation, query.as_deref()).await }.boxed()
            }),
            handoff,
            hosts: AllowedHosts::new(&core.config.admin.hosts),
            flushes: Arc::clone(&self.flushes),
            auth: Arc::clone(&core.admin_auth),
            tasks: {
                let tasks = Arc::clone(&self.tasks);
                Arc::new(move |asked, request| {
                    let tasks = Arc::clone(&tasks);
                    async move { asked.answer(&tasks, request).await }.boxed()
                })
            },
        }
    }

    /// Returns the pages of this node that peers fetch for operators. Holds only weak references to the
    /// parts.
    fn pages(&self, handoff: Option<&Arc<Handoff>>) -> PageSource {
        let (observer, explainer) = (Arc::downgrade(&self.observer), Arc::downgrade(&self.explainer));
        let handoff = handoff.map(Arc::downgrade);
        Arc::new(move |asked| {
            let (observer, explainer) = (observer.upgrade(), explainer.upgrade());
            let handoff = handoff.as_ref().and_then(Weak::upgrade);
            async move {
                let (path, query) = asked.split_once('?').unwrap_or((&asked, ""));
                let observer = observer?;
                let drain = handoff.map(|handoff| handoff.progress());
                match path {
                    "/status" => {
                        observer.refresh().await;
                        Some(json!(observer.status(drain)).to_string())
                    }
                    "/metrics" => Some(observer.metrics(drain)),
                    "/explain" => {
                        let query = ExplainQuery::parse(query).ok()?;
                        Some(json!(explainer?.explain(&query).await).to_string())
                    }
                    _ => None,
                }
            }
            .boxed()
        })
    }

    /// Serves clients over `listener` until the node stops.
    pub(super) async fn serve_s3(
        self,
        listener: TcpListener,
        tls: Option<Arc<TlsReloader>>,
        stopping: Shutdown,
    ) {
        if let Some(tls) = &tls {
            let (tls, stopping) = (Arc::clone(tls), stopping.clone());
            tokio::spawn(tls.watch(stopping));
        }
        let limits = ConnectionLimits::from(&self.core.config.limits);
        let (front, connections) = (self.front, self.core.metrics.connections().clone());
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
}

fn observer_config(config: &Config) -> ObserverConfig {
    ObserverConfig {
        node: config.node.clone(),
        store: config.store.clone(),
        cooperation: config.cooperation.clone(),
        directory_url: config.directory.url.clone(),
        limits: config.limits.clone(),
    }
}

fn dirty_parts(core: &Core) -> dirty::Parts {
    dirty::Parts {
        rules: core.write_rules.clone(),
        lake: Arc::clone(&core.lake),
        store: Arc::clone(&core.store),
        fetcher: Arc::clone(&core.fetcher),
        grants: Arc::clone(&core.grants),
        identities: Arc::clone(&core.identities),
        through: Arc::clone(&core.write_through),
        directory: core.directory.clone(),
        block_bytes: core.config.store.block_bytes,
        node: core.cooperation.me().0,
    }
}

fn block_server(core: &Core, helper: &Arc<TaskHelper>) -> BlockServer {
    let parts = BlockServerParts {
        identities: Arc::clone(&core.identities),
        lake: Arc::clone(&core.lake),
        store: Arc::clone(&core.store),
        fetcher: Arc::clone(&core.fetcher),
        messages: Arc::clone(&core.messages),
        bulletin: Arc::clone(&core.bulletin),
        tasks: Arc::clone(helper),
    };
    BlockServer::new(parts, core.config.store.block_bytes, core.config.limits.requests)
}

fn task_helper(core: &Core, lake: &Arc<dyn Lake>) -> TaskHelper {
    TaskHelper::new(
        &core.store,
        &core.fetcher,
        &core.identities,
        (lake, &core.lake),
        &core.manifests,
        core.config.store.block_bytes,
    )
}

fn task_parts(core: &Core, lake: &Arc<dyn Lake>, helper: &Arc<TaskHelper>) -> TaskParts {
    TaskParts {
        name: core.config.node.name.clone(),
        lake: Arc::clone(lake),
        endpoint: Arc::clone(&core.lake),
        identities: Arc::clone(&core.identities),
        store: Arc::clone(&core.store),
        cooperation: Arc::clone(&core.cooperation),
        manifests: Arc::clone(&core.manifests),
        nodes: Nodes::new(&core.cooperation, helper, &core.config.node.name),
        block_bytes: core.config.store.block_bytes,
    }
}

fn explainer(core: &Core) -> Explainer {
    Explainer {
        node: core.config.node.name.clone(),
        lake: Arc::clone(&core.lake),
        grants: Arc::clone(&core.grants),
        store: Arc::clone(&core.store),
        single_flight: Arc::clone(&core.single_flight),
        cooperation: Arc::clone(&core.cooperation),
        directory: core.directory.clone(),
        keeper: core.keeper.clone(),
    }
}

/// The addresses at which clients reach this node, which replace the lake's own in responses.
fn addresses(core: &Core) -> location::Addresses {
    let s3 = &core.config.s3;
    let scheme = if s3.tls_cert.is_some() { "https" } else { "http" };
    location::Addresses::new(core.lake.url(), s3.domain.clone(), scheme)
}

fn plain_lake(core: &Core, addresses: &Arc<location::Addresses>) -> PlainLakeParts {
    PlainLakeParts {
        endpoint: Arc::clone(&core.lake),
        store: Arc::clone(&core.store),
        grants: Arc::clone(&core.grants),
        fetcher: Arc::clone(&core.fetcher),
        cooperation: Arc::clone(&core.cooperation),
        coherence: core.coherence.clone(),
        through: Arc::clone(&core.write_through),
        addresses: Arc::clone(addresses),
        ahead: core.config.limits.read_ahead_blocks,
        block_bytes: core.config.store.block_bytes,
    }
}

fn reader(core: &Core, lake: &Arc<dyn Lake>) -> ObjectReader {
    ObjectReader {
        lake: Arc::clone(lake),
        store: Arc::clone(&core.store),
        grants: Arc::clone(&core.grants),
        fetcher: Arc::clone(&core.fetcher),
        ahead: core.config.limits.read_ahead_blocks,
    }
}

fn front(core: &Core, lake: &Arc<dyn Lake>) -> Front {
    let config = &core.config;
    Front::new(FrontParts {
        gate: gate(core),
        lake: Arc::clone(lake),
        endpoint: Arc::clone(&core.lake),
        reader: reader(core, lake),
        freshness: FreshnessRules::new(&config.freshness),
        write_rules: core.write_rules.clone(),
        coherence: core.coherence.clone(),
        through: Arc::clone(&core.write_through),
        in_flight: Arc::clone(&core.in_flight),
        metrics: Arc::clone(&core.metrics),
        domain: config.s3.domain.clone(),
        access_log: config.log.access,
    })
}

fn gate(core: &Core) -> Gate {
    let config = &core.config;
    let gate = Gate::new(Arc::clone(&core.identities), &config.lake.region);
    match config.s3.anonymous {
        Anonymous::Forward => gate,
        Anonymous::Refuse => gate.without_anonymous(),
    }
}
