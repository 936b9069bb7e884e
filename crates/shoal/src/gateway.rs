//! The parts of a node, put together here and nowhere else.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::admin::metrics::Metrics;
use crate::catalog::Catalog;
use crate::config::Config;
use crate::endpoint::{CredentialsError, Endpoint, EndpointError, NodeCredentials};
use crate::fetch::Fetcher;
use crate::flights::Flights;
use crate::freshness::FreshnessRules;
use crate::front::auth::Gate;
use crate::front::in_flight::InFlight;
use crate::front::serve::Front;
use crate::identity::{Account, Identities, Identity};
use crate::read::{Openings, Reader};
use crate::store::{Store, StoreError};

/// One running node.
pub struct Gateway {
    s3_address: SocketAddr,
    admin_address: SocketAddr,
    store: Arc<Store>,
    server: tokio::task::JoinHandle<()>,
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The disk.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The lake's address.
    #[error(transparent)]
    Lake(#[from] EndpointError),
    /// The lake's credentials.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// A port.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        error: std::io::Error,
    },
}

impl Gateway {
    /// Opens the store, binds the listeners and serves; S3 is answered when this returns.
    pub async fn start(config: Config) -> Result<Self, GatewayError> {
        let credentials = NodeCredentials::resolve(&config.lake).await?;
        let lake = Arc::new(Endpoint::new(&config.lake, &config.limits, credentials)?);
        let (store, _recovery) = open_store(&config).await?;
        let front = Arc::new(assemble(&config, lake, Arc::clone(&store), Arc::default()));
        let listener = tokio::net::TcpListener::bind(config.s3.listen)
            .await
            .map_err(|error| GatewayError::Listen { address: config.s3.listen, error })?;
        let s3_address = listener.local_addr().expect("a bound listener has an address");
        let server = tokio::spawn(accept(listener, front));
        Ok(Self { s3_address, admin_address: config.admin.listen, store, server })
    }

    /// Where S3 is served.
    pub fn s3_address(&self) -> SocketAddr {
        self.s3_address
    }

    /// Where operators look.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// Finishes the requests in flight and stops.
    pub async fn shutdown(self) {
        self.server.abort();
        self.store.shutdown().await;
    }
}

async fn accept(listener: tokio::net::TcpListener, front: Arc<Front>) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else { continue };
        stream.set_nodelay(true).ok();
        let front = Arc::clone(&front);
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
                let front = Arc::clone(&front);
                request.extensions_mut().insert(peer);
                async move { Ok::<_, std::convert::Infallible>(front.serve(request).await) }
            });
            let io = hyper_util::rt::TokioIo::new(stream);
            hyper::server::conn::http1::Builder::new().serve_connection(io, service).await.ok();
        });
    }
}

async fn open_store(config: &Config) -> Result<(Arc<Store>, crate::store::Recovery), StoreError> {
    let (store, mapped_bytes) = (config.store.clone(), config.limits.mapped_bytes);
    let opening = tokio::task::spawn_blocking(move || Store::open(&store, mapped_bytes));
    opening.await.expect("opening a store does not panic")
}

fn assemble(config: &Config, lake: Arc<Endpoint>, store: Arc<Store>, metrics: Arc<Metrics>) -> Front {
    let (limits, ahead) = (&config.limits, config.limits.read_ahead_blocks);
    let catalog = Arc::new(Catalog::default());
    let flights = Arc::new(Flights::default());
    let fetcher = Fetcher::new(Arc::clone(&lake), Arc::clone(&store), flights, limits.fill_bytes, ahead);
    let reader = Reader {
        lake: Arc::clone(&lake),
        store,
        catalog: Arc::clone(&catalog),
        fetcher: Arc::new(fetcher),
        ahead,
        block_bytes: config.store.block_bytes,
        openings: Openings::default(),
    };
    let identities = identities(config);
    let in_flight = InFlight::new(limits.requests, limits.requests_per_identity, identities.len());
    Front {
        gate: Gate::new(identities, &config.lake.region),
        lake,
        catalog,
        reader,
        freshness: FreshnessRules::new(&config.freshness),
        in_flight,
        metrics,
        domain: config.s3.domain.clone(),
        access_log: config.log.access,
    }
}

fn identities(config: &Config) -> Identities {
    Identities::new(config.identities.iter().zip(0..).map(|(identity, index)| Identity {
        index,
        access_key: identity.access_key.clone(),
        secret_key: identity.secret_key.clone(),
        lake_account: lake_account(identity),
    }))
}

fn lake_account(identity: &crate::config::IdentityConfig) -> Option<Arc<Account>> {
    let (access_key, secret_key) = (identity.lake_access_key.clone()?, identity.lake_secret_key.clone()?);
    Some(Arc::new(Account { access_key, secret_key, session_token: None }))
}
