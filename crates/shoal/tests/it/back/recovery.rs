//! A registry that is lost, and recovered from the receipts in its tier's store.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use http::StatusCode;
use shoal_node::config::{Config, RegistryConfig};
use shoal_node::recovery::{Recovery, recover_tier};
use tempfile::TempDir;

use super::multipart::{parts, upload};
use super::store::{BUCKET, Beside};
use super::{bytes, flush, reads, write_back};
use crate::commands::shoal;
use crate::lake::Lake;
use crate::node::{self, Node};
use crate::waiting::until;

/// The receipts among the pieces of the tier.
const RECEIPTS: &str = "pieces/receipt-";

/// A tier with receipts, and a registry in this folder.
fn with_receipts(beside: &Beside, registry: &Path, config: &mut Config) {
    beside.back(config);
    config.store.capacity_bytes = 512 << 20;
    let tier = &mut config.tiers[0];
    tier.receipts = true;
    tier.registry = RegistryConfig::Embedded(registry.into());
}

async fn start(lake: &Lake, beside: &Beside, registry: &Path) -> Node {
    Node::in_front_of(lake, |config| with_receipts(beside, registry, config)).await
}

async fn recover(beside: &Beside, registry: &Path, skips_unreadable: bool) -> Recovery {
    let mut config = Config::default();
    with_receipts(beside, registry, &mut config);
    let recovered = recover_tier(&config, &config.tiers[0], skips_unreadable).await;
    recovered.unwrap()
}

/// The keys of receipts in the store of the tier.
fn receipts(beside: &Beside) -> Vec<String> {
    let keys = beside.store.keys(BUCKET).into_iter();
    keys.filter(|key| key.starts_with(RECEIPTS)).collect()
}

#[tokio::test]
async fn every_acknowledged_object_and_removal_outlives_the_registry() {
    let (lake, beside, empty) = (node::lake().await, Beside::start().await, TempDir::new().unwrap());
    lake.put("b", "tmp/removed", bytes(20));
    let first = start(&lake, &beside, beside.registry.path()).await;
    let client = first.client();
    for (key, content) in [
        ("large", bytes(1)),
        ("again", bytes(2)),
        ("again", "tiny".into()),
        ("again", bytes(3)),
        ("small", "small".into()),
        ("empty", "".into()),
        ("flushed", bytes(4)),
        ("short", bytes(5)),
    ] {
        write_back(&client, &format!("tmp/{key}"), &content).await;
    }
    let copy = client
        .put("/b/tmp/copy", "")
        .header("x-amz-copy-source", "/b/tmp/large");
    assert_eq!(copy.send().await.status, StatusCode::OK);
    let parts = parts(6);
    let uploaded = upload(&[first.client()], "tmp/parts", &parts).await;
    assert_eq!(uploaded.status, StatusCode::OK);
    // The lake decides on the first removal.
    for key in ["first", "removed", "short"] {
        let removed = client.delete(&format!("/b/tmp/{key}")).send().await;
        assert_eq!(removed.status, StatusCode::NO_CONTENT);
    }
    flush(&first, "s3://b/tmp/flushed").await;
    assert!(lake.object("b", "tmp/flushed").is_some() && lake.object("b", "tmp/removed").is_some());
    first.stop().await;

    let second = start(&lake, &beside, empty.path()).await;
    let client = second.client();
    for key in ["large", "removed", "flushed", "nothing"] {
        let read = client.get(&format!("/b/tmp/{key}")).send().await;
        assert_eq!(read.status, StatusCode::SERVICE_UNAVAILABLE, "{key}");
    }
    let write = client.put("/b/tmp/new", "new").send().await;
    assert_eq!(write.status, StatusCode::SERVICE_UNAVAILABLE, "{}", write.text());
    let recovery = recover(&beside, empty.path(), false).await;
    // Six objects and a copy, and the removals of an object of the lake and of one that only the tier had.
    assert_eq!(
        (recovery.objects, recovery.removals, recovery.is_whole),
        (6, 2, true)
    );
    assert_eq!((recovery.damaged.count, recovery.unreadable.count), (0, 0));

    until("the node goes on by itself", async || {
        client.get("/b/tmp/large").send().await.status == StatusCode::OK
    })
    .await;
    let all = [
        ("large", bytes(1)),
        ("again", bytes(3)),
        ("small", "small".into()),
        ("empty", "".into()),
        ("flushed", bytes(4)),
        ("copy", bytes(1)),
        ("parts", parts.concat().into()),
    ];
    for (key, content) in &all {
        reads(&client, &format!("tmp/{key}"), content).await;
    }
    for key in ["removed", "short"] {
        let read = client.get(&format!("/b/tmp/{key}")).send().await;
        assert_eq!(read.status, StatusCode::NOT_FOUND, "{key}");
    }
    until("the node writes back again", async || {
        let written = client.put("/b/tmp/new", "new").send().await;
        written.header("x-shoal-write") == Some("back")
    })
    .await;
    assert_eq!(flush(&second, "").await["flush"]["failed"], 0);
    for (key, content) in &all {
        let at_lake = lake.object("b", format!("tmp/{key}")).unwrap();
        assert!(at_lake.content.all() == *content, "{key}");
    }
    assert!(lake.object("b", "tmp/removed").is_none());
    assert_eq!(receipts(&beside), [""; 0]);
    second.stop().await;
}

#[tokio::test]
async fn what_the_store_has_lost_is_named_and_nothing_is_left_out_unasked() {
    let (lake, beside, empty) = (node::lake().await, Beside::start().await, TempDir::new().unwrap());
    let first = start(&lake, &beside, beside.registry.path()).await;
    for (key, seed) in [("whole", 1), ("damaged", 2), ("unreadable", 3)] {
        write_back(&first.client(), &format!("tmp/{key}"), &bytes(seed)).await;
    }
    first.stop().await;
    let find = |what: &str| {
        let mut keys = beside.store.keys(BUCKET).into_iter();
        keys.find(|key| {
            let piece = beside.store.object(BUCKET, key).unwrap().content.all();
            key.starts_with(RECEIPTS) && piece.windows(what.len()).any(|window| window == what.as_bytes())
        })
    };
    let receipt = find("tmp/unreadable").unwrap();
    let mut changed = beside
        .store
        .object(BUCKET, &receipt)
        .unwrap()
        .content
        .all()
        .to_vec();
    changed[30] ^= 1;
    beside.store.put(BUCKET, &receipt, bytes::Bytes::from(changed));
    let damaged = beside.store.object(BUCKET, find("tmp/damaged").unwrap()).unwrap();
    let pieces = beside.store.keys(BUCKET).into_iter();
    let lost = pieces.filter(|key| {
        let key = key.strip_prefix("pieces/").unwrap().as_bytes();
        damaged
            .content
            .all()
            .windows(key.len())
            .any(|window| window == key)
    });
    let lost: Vec<_> = lost.collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
    beside.store.delete(BUCKET, &lost[0]);

    let recovery = recover(&beside, empty.path(), false).await;
    let unreadable = receipt.strip_prefix("pieces/").unwrap();
    assert_eq!(
        (recovery.unreadable.first, recovery.is_whole),
        (vec![unreadable.into()], false)
    );
    let second = start(&lake, &beside, empty.path()).await;
    let read = second.client().get("/b/tmp/whole").send().await;
    assert_eq!(read.status, StatusCode::SERVICE_UNAVAILABLE, "it is not whole");
    second.stop().await;
    let recovery = recover(&beside, empty.path(), true).await;
    assert_eq!(recovery.damaged.first, ["s3://b/tmp/damaged"]);
    assert_eq!((recovery.objects, recovery.is_whole), (2, true));
    let third = start(&lake, &beside, empty.path()).await;
    reads(&third.client(), "tmp/whole", &bytes(1)).await;
    third.stop().await;
}

#[tokio::test]
async fn the_command_recovers_an_empty_registry_once_and_says_why_not_otherwise() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("shoal.toml");
    let tier = folder.path().join("tier");
    let text = format!(
        "[lake]\nanswer_timeout = \"1s\"\n[[write.rule]]\nprefix = \"s3://b/tmp/\"\nmode = \"back\"\n[[tier]]\nname = \"t\"\n\
         folder = {tier:?}\ncapacity = \"1GiB\"\nreceipts = true\n"
    );
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let run = |name: &str| {
        let mut command = shoal(&["tier", "recover", name, "--config", file.to_str().unwrap()]);
        command.env("NO_COLOR", "1");
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    let unknown = run("other").await.unwrap();
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert_eq!(unknown.status.code(), Some(2), "{said}");
    assert!(
        said.contains("has no tier other") && said.contains("name one of t"),
        "{said}"
    );
    let done = run("t").await.unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(
        said.starts_with("0 receipts read: 0 objects and 0 removals"),
        "{said}"
    );
    let again = run("t").await.unwrap();
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert_eq!(again.status.code(), Some(1), "{said}");
    assert!(
        said.contains("its registry is not lost") && said.contains("hint: set up an empty one"),
        "{said}"
    );
}
