//! A tier whose store is a bucket of an S3 store.

use std::time::{Duration, UNIX_EPOCH};

use http::StatusCode;
use shoal_node::config::{Config, RegistryConfig, S3StoreConfig, TierConfig, TierStoreConfig};
use shoal_registry::engine::embedded::Embedded;
use shoal_registry::engine::{Change, Engine, Transaction};
use shoal_s3::identity::Account;
use tempfile::TempDir;
use ulid::Ulid;

use super::{assert_back, back, bytes, flush, reads, write_back};
use crate::client::{Client, Reply};
use crate::lake::{ACCESS_KEY, Fault, Lake, Object, Request, SECRET_KEY};
use crate::node::{Node, lake};
use crate::process::Process;
use crate::waiting::until;

pub(super) const BUCKET: &str = "pieces-of-t";
const HOUR: Duration = Duration::from_hours(1);

/// A separate store, and the folder of the registry.
pub(super) struct Beside {
    pub(super) store: Lake,
    pub(super) registry: TempDir,
}

impl Beside {
    pub(super) async fn start() -> Self {
        let store = Lake::start().await;
        store.create_bucket(BUCKET);
        Self {
            store,
            registry: TempDir::new().unwrap(),
        }
    }

    /// Writes everything below `tmp/` back to this store.
    pub(super) fn back(&self, config: &mut Config) {
        back(config);
        let store = S3StoreConfig {
            endpoint: self.store.url(),
            region: S3StoreConfig::REGION.into(),
            ca_file: None,
            keys: Some(Account::new(ACCESS_KEY, SECRET_KEY)),
            bucket: BUCKET.into(),
            class_large: None,
        };
        config.tiers = vec![TierConfig {
            name: "t".into(),
            store: TierStoreConfig::S3(store),
            capacity_bytes: 1 << 30,
            registry: RegistryConfig::Embedded(self.registry.path().into()),
            inline_bytes: TierConfig::INLINE_BYTES,
            receipts: false,
        }];
    }
}

fn is_copy(request: &Request) -> bool {
    request.headers.contains_key("x-amz-copy-source")
}

/// Makes a store that does not implement `CopyObject`.
fn copies_nothing() -> Fault {
    Fault::status(501).when(is_copy).always()
}

async fn copy(client: &Client, from: &str, to: &str) -> Reply {
    let copy = client.put(&format!("/b/{to}"), "");
    let copy = copy.header("x-amz-copy-source", format!("/b/{from}"));
    let reply = copy.send().await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    reply
}

#[tokio::test]
async fn a_store_that_copies_is_asked_for_each_copy() {
    let beside = Beside::start().await;
    let node = Node::start_with(|config| beside.back(config)).await;
    assert_eq!(beside.store.count(is_copy), 1, "of the probe");
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    assert_back(&copy(&node.client(), "tmp/k", "tmp/copy").await);
    assert_eq!(beside.store.count(is_copy), 2);
    reads(&node.client(), "tmp/copy", &bytes(1)).await;
    assert!(node.lake.object("b", "tmp/copy").is_none());
    node.stop().await;
}

#[tokio::test]
async fn a_store_that_does_not_copy_is_a_tier_and_leaves_the_copies_to_the_lake() {
    let beside = Beside::start().await;
    beside.store.misbehave(copies_nothing());
    let node = Node::start_with(|config| beside.back(config)).await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    copy(&node.client(), "tmp/k", "tmp/copy").await;
    assert_eq!(beside.store.count(is_copy), 1, "only the probe asks for one");
    assert!(node.lake.object("b", "tmp/copy").unwrap().content.all() == bytes(1));
    reads(&node.client(), "tmp/copy", &bytes(1)).await;
    // The tier still accepts writes.
    write_back(&node.client(), "tmp/k", &bytes(2)).await;
    reads(&node.client(), "tmp/k", &bytes(2)).await;
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    node.stop().await;
}

#[tokio::test]
async fn a_store_that_stops_to_copy_is_asked_again_once_it_is_probed() {
    let beside = Beside::start().await;
    let node = Node::start_with(|config| beside.back(config)).await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    beside.store.forget_requests();
    beside.store.misbehave(copies_nothing());
    copy(&node.client(), "tmp/k", "tmp/first").await;
    until("the store is probed", async || beside.store.count(is_copy) == 2).await;
    until("the copies are the lake's", async || {
        write_back(&node.client(), "tmp/k", &bytes(2)).await;
        let before = beside.store.count(is_copy);
        copy(&node.client(), "tmp/k", "tmp/next").await;
        beside.store.count(is_copy) == before
    })
    .await;
    reads(&node.client(), "tmp/next", &bytes(2)).await;
    node.stop().await;
}

#[tokio::test]
async fn a_node_says_at_start_that_the_store_of_its_tier_does_not_copy_and_what_to_do() {
    let (lake, beside) = (lake().await, Beside::start().await);
    beside.store.misbehave(copies_nothing());
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("shoal.toml");
    let text = format!(
        "[lake]\nendpoint = {:?}\naccess_key = {ACCESS_KEY:?}\nsecret_key = {SECRET_KEY:?}\n\
         [[write.rule]]\nprefix = \"s3://b/tmp/\"\nmode = \"back\"\n\
         [[tier]]\nname = \"t\"\nendpoint = {:?}\naccess_key = {ACCESS_KEY:?}\n\
         secret_key = {SECRET_KEY:?}\nbucket = \"{BUCKET}\"\ncapacity = \"1GiB\"\nregistry = {:?}\n",
        lake.url(),
        beside.store.url(),
        beside.registry.path(),
    );
    std::fs::write(&file, text).unwrap();
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, readable).unwrap();
    let store = folder.path().join("store");
    let arguments = [
        "--config",
        file.to_str().unwrap(),
        "--store-path",
        store.to_str().unwrap(),
    ];
    let node = Process::serve(&arguments).await;
    let line = node.says("a tier makes no copies").await;
    assert_eq!(line["level"], "WARN", "{line}");
    let told = line.to_string();
    for words in [
        &*format!(
            "the bucket {BUCKET} of {} does not copy a piece",
            beside.store.url()
        ),
        "it answered 501",
        "hint: copies and renames below the rules of this tier wait for the lake",
        "or use a store that has CopyObject",
    ] {
        assert!(told.contains(words), "{words} in\n{told}");
    }
    assert_eq!(node.lines("a tier takes no writes").len(), 0);
    assert_eq!(node.stop().await, Some(0));
}

/// A node that sweeps once an hour removes unreferenced pieces after a day. The registry and the pieces of
/// this test are created old enough, and its hour passes at once.
#[tokio::test]
async fn metrics_count_the_pieces_that_a_node_sweeps() {
    let beside = Beside::start().await;
    let now = shoal_net::clock::utc_now();
    let id = |ago: Duration| {
        let since_epoch = (now - ago).duration_since(UNIX_EPOCH).unwrap();
        Ulid::from_parts(since_epoch.as_millis() as u64, 1).to_string()
    };
    {
        let registry = Embedded::open(beside.registry.path()).unwrap();
        let began = Change::put("r".into(), id(72 * HOUR).into());
        registry.commit(Transaction::from(began)).await.unwrap();
    }
    let piece = |ago: Duration, size: usize| {
        let object = Object::new(vec![7; size]).modified_at(now - ago);
        let key = format!("pieces/{size:x}-{}", id(ago));
        beside.store.put(BUCKET, &key, object);
        key
    };
    let orphans = [piece(25 * HOUR, 1_000), piece(30 * HOUR, 234)];
    let young = piece(5 * HOUR, 100);
    let node = Node::start_with(|config| beside.back(config)).await;
    let shows = async |pieces: u64, bytes: u64| {
        let page = node.admin("/metrics").await;
        [
            format!("shoal_tier_swept_pieces_total{{tier=\"t\"}} {pieces}"),
            format!("shoal_tier_swept_bytes_total{{tier=\"t\"}} {bytes}"),
        ]
        .iter()
        .all(|expected| page.text().lines().any(|line| line == expected))
    };
    assert!(shows(0, 0).await, "nothing is swept at the start");
    // A node sweeps an hour after its previous sweep, which may not have ended yet.
    let hours_until = async |pieces, bytes| {
        for _ in 0..60 {
            tokio::time::pause();
            tokio::time::advance(HOUR).await;
            tokio::time::resume();
            for _ in 0..25 {
                if shows(pieces, bytes).await {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        panic!("{pieces} pieces are not swept");
    };
    hours_until(2, 1_234).await;
    for orphan in &orphans {
        assert!(beside.store.object(BUCKET, orphan).is_none(), "{orphan}");
    }
    assert!(beside.store.object(BUCKET, &young).is_some());
    piece(26 * HOUR, 66);
    hours_until(3, 1_300).await;
    node.stop().await;
}
