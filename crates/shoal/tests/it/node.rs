//! A node in the process of the test, in front of a lake that counts.

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use shoal_base::clock;
use shoal_node::Gateway;
use shoal_node::config::{
    Config, FreshnessMode, Identity, RegistryConfig, TierConfig, TierStoreConfig, WriteMode,
};
use shoal_store::{Store, StoreError};
use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::client::{Client, Reply};
use crate::lake::{ACCESS_KEY, Lake, SECRET_KEY};
use crate::waiting::value;

/// Small blocks, so that small objects have many.
pub(crate) const BLOCK: u64 = 64 << 10;

/// A second client, known to node and lake.
pub(crate) const OTHER_KEY: &str = "other-access-key";
pub(crate) const OTHER_SECRET: &str = "other-secret-key";

/// The time within which a stopped node gives its store back.
const STORE_PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Node {
    gateway: Gateway,
    pub(crate) lake: Lake,
    config: Box<Config>,
    folder: Arc<TempDir>,
}

/// The disk of a node that may be started again.
pub(crate) struct Stopped {
    lake: Lake,
    config: Box<Config>,
    folder: Arc<TempDir>,
    /// Bound and not listening, so that no other socket gets the port that other nodes know.
    port: (TcpSocket, Option<UdpSocket>),
}

impl Stopped {
    /// Changes the configuration with which it starts again.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    pub(crate) async fn start(self) -> Node {
        drop(self.port);
        let began = clock::instant();
        let gateway = loop {
            match Gateway::start(Config::clone(&self.config)).await {
                // Blocks that were under way are brought to their end, and hold the store until then.
                Err(error)
                    if matches!(error.downcast_ref(), Some(StoreError::Locked { .. }))
                        && began.elapsed() < STORE_PATIENCE =>
                {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                started => break started.unwrap(),
            }
        };
        Node {
            gateway,
            lake: self.lake,
            config: self.config,
            folder: self.folder,
        }
    }
}

impl Node {
    /// A node in front of an empty lake that revalidates on every read.
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    /// A node whose objects never change under their name.
    pub(crate) async fn start_immutable() -> Self {
        Self::start_with(|config| config.freshness.default = FreshnessMode::Immutable).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        Self::in_front_of(&lake().await, change).await
    }

    /// A node in front of a lake that others may be in front of, too.
    pub(crate) async fn in_front_of(lake: &Lake, change: impl FnOnce(&mut Config)) -> Self {
        let folder = Arc::new(TempDir::new().unwrap());
        let mut config = Config::default();
        config.s3.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        config.admin.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        config.lake.endpoint = lake.url();
        config.store.path = folder.path().join("store");
        config.store.capacity_bytes = 64 << 20;
        config.store.block_bytes = BLOCK;
        config.limits.fill_bytes = 8 << 20;
        config.identities = vec![
            Identity::new(ACCESS_KEY, SECRET_KEY),
            Identity::new(OTHER_KEY, OTHER_SECRET),
        ];
        change(&mut config);
        let writes_back = config.write.rules.iter().any(|rule| rule.mode == WriteMode::Back);
        if writes_back && config.tiers.is_empty() {
            config.tiers = vec![tier(lake.tier_folder())];
        }
        let gateway = Box::pin(Gateway::start(config.clone())).await.unwrap();
        Self {
            gateway,
            lake: lake.clone(),
            config: Box::new(config),
            folder,
        }
    }

    /// Stops the node and starts it again on the same disk; `between` may do things to the disk.
    pub(crate) async fn restart_after(self, between: impl FnOnce(&std::path::Path)) -> Self {
        let stopped = self.halt().await;
        between(&stopped.config.store.path);
        stopped.start().await
    }

    /// Stops the node; its disk stays.
    pub(crate) async fn halt(self) -> Stopped {
        self.gateway.shutdown().await;
        let address = self.config.cooperation.listen;
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        // A node that caches alone never listened there, and others may.
        let _ = socket.bind(address);
        Stopped {
            port: (socket, UdpSocket::bind(address).ok()),
            lake: self.lake,
            config: self.config,
            folder: self.folder,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.s3_address()
    }

    /// Where its blocks lie.
    pub(crate) fn store_path(&self) -> &std::path::Path {
        &self.config.store.path
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        self.gateway.store()
    }

    /// The owner of the lake's account.
    pub(crate) fn client(&self) -> Client {
        Client::signing(self.address(), ACCESS_KEY, SECRET_KEY)
    }

    /// A second client with a key pair of its own.
    pub(crate) fn other(&self) -> Client {
        Client::signing(self.address(), OTHER_KEY, OTHER_SECRET)
    }

    pub(crate) fn stranger(&self) -> Client {
        Client::anonymous(self.address())
    }

    /// Checks that only the owner of the lake's account may read `target`.
    pub(crate) async fn is_not_readable_by_others(&self, target: &str) {
        for client in [self.other(), self.stranger()] {
            let reply = client.get(target).send().await;
            assert_eq!(reply.status, http::StatusCode::FORBIDDEN, "{}", reply.text());
        }
    }

    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.gateway.admin_address()
    }

    /// Where clients get temporary keys.
    pub(crate) fn sts_address(&self) -> SocketAddr {
        self.gateway.sts_address().unwrap()
    }

    /// A page of the admin listener.
    pub(crate) async fn admin(&self, path: &str) -> Reply {
        Client::anonymous(self.gateway.admin_address())
            .get(path)
            .send()
            .await
    }

    /// An order to the admin listener.
    pub(crate) async fn order(&self, path: &str) -> Reply {
        let client = Client::anonymous(self.gateway.admin_address());
        client.post(path, Vec::new()).send().await
    }

    /// The page `/status`.
    pub(crate) async fn status(&self) -> serde_json::Value {
        serde_json::from_slice(&self.admin("/status").await.body).unwrap()
    }

    /// Reads until the blocks that are on their way have landed, so that the next read finds them.
    pub(crate) async fn settle(&self) {
        let under_way = async || {
            let status = self.status().await;
            [
                status["reads"]["flights"].clone(),
                status["reads"]["fill_bytes"].clone(),
                status["writes"]["underway"].clone(),
            ]
        };
        value("no block is under way", under_way, |counts| {
            counts.iter().all(|count| *count == 0)
        })
        .await;
    }

    pub(crate) async fn stop(self) {
        self.gateway.shutdown().await;
        drop(self.folder);
    }
}

/// A tier in a folder.
pub(crate) fn tier(folder: PathBuf) -> TierConfig {
    TierConfig {
        name: "t".into(),
        registry: RegistryConfig::within(&folder),
        store: TierStoreConfig::Folder(folder),
        capacity_bytes: 1 << 30,
        inline_bytes: TierConfig::INLINE_BYTES,
        receipts: false,
    }
}

/// An empty lake that knows the clients of these stories.
pub(crate) async fn lake() -> Lake {
    let lake = Lake::start().await;
    lake.add_user(OTHER_KEY, OTHER_SECRET);
    lake.create_bucket("b");
    lake
}
