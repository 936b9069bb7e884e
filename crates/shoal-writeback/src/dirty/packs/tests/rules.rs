//! Which names have a map.

use std::fs;
use std::sync::Arc;

use shoal_cache::write::{PackConfig, WriteConfig, WriteMode, WriteRule, WriteRules};
use shoal_s3::identity::{Identities, Identity};
use shoal_s3::object::ObjectName;
use shoal_store::Store;

use super::lab::{Lab, row};
use crate::dirty::packs::{Packs, PacksError, PacksParts};

fn rule(prefix: &str, keeper: Option<&str>) -> WriteRule {
    let pack = keeper.map(|keeper| PackConfig {
        below_bytes: PackConfig::BELOW_BYTES,
        pack_bytes: PackConfig::PACK_BYTES,
        idle: PackConfig::IDLE,
        keeper: keeper.into(),
    });
    WriteRule {
        pack,
        ..WriteRule::new(prefix, WriteMode::Back)
    }
}

async fn open(lab: &Lab, disk: &Arc<Store>, rules: Vec<WriteRule>) -> Result<Packs, PacksError> {
    let config = WriteConfig {
        rules,
        ..WriteConfig::default()
    };
    let parts = PacksParts {
        rules: WriteRules::new(&config, &["tier"]),
        lake: Arc::clone(&lab.endpoint),
        store: Arc::clone(disk),
        identities: Arc::new(Identities::new([Identity::new("keeper", "secret")])),
        fence: lab.fence,
    };
    Packs::open(parts, |_| lab.roots.clone()).await
}

fn name(bucket: &str, key: &str) -> ObjectName {
    ObjectName {
        bucket: bucket.into(),
        key: key.as_bytes().into(),
        version: None,
    }
}

#[tokio::test]
async fn names_below_a_rule_that_packs_have_its_map_and_others_have_none() {
    let lab = Lab::new().await;
    let rules = vec![
        rule("s3://b/data/", Some("keeper")),
        rule("s3://b/plain/", None),
        rule("s3://c/", Some("keeper")),
    ];
    let packs = open(&lab, &lab.disk("node"), rules).await.unwrap();
    let of = |bucket: &str, key: &str| packs.of(&name(bucket, key)).map(|map| map.below());
    assert_eq!(of("b", "data/x").as_deref(), Some("s3://b/data/"));
    assert_eq!(of("c", "x").as_deref(), Some("s3://c/"));
    assert_eq!((of("b", "plain/x"), of("b", "x")), (None, None));

    assert!(packs.hide(&name("b", "data/.shoal-pack/x")) && packs.hide(&name("c", ".shoal-pack/map/1")));
    assert!(!packs.hide(&name("b", "data/x")) && !packs.hide(&name("b", ".shoal-pack/x")));

    let below = |bucket: &str, prefix: &str| packs.below(bucket, prefix.as_bytes()).count();
    for (bucket, prefix, count) in [
        ("b", "", 1),
        ("b", "da", 1),
        ("b", "data/", 1),
        ("b", "data/x", 1),
        ("b", "plain/", 0),
        ("b", "e", 0),
        ("c", "data/", 1),
        ("d", "", 0),
    ] {
        assert_eq!(below(bucket, prefix), count, "{bucket}/{prefix}");
    }
}

#[tokio::test]
async fn tables_of_a_rule_that_is_gone_leave_the_disk() {
    let lab = Lab::new().await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let disk = lab.disk("node");
    let data = rule("s3://b/data/", Some("keeper"));
    let other = rule("s3://c/", Some("keeper"));
    let packs = open(&lab, &disk, vec![data.clone(), other]).await.unwrap();
    packs.of(&name("b", "data/a")).unwrap().current().await.unwrap();
    let folders = || fs::read_dir(disk.node_folder().join("packs")).unwrap();
    assert_eq!(folders().count(), 2);
    drop(packs);
    let packs = open(&lab, &disk, vec![data]).await.unwrap();
    assert_eq!(folders().count(), 1);
    let asked = lab.lake.asked("GET", "/map/");
    packs.of(&name("b", "data/a")).unwrap().current().await.unwrap();
    assert_eq!(lab.lake.asked("GET", "/map/"), asked, "the others stay");
}

#[tokio::test]
async fn a_keeper_without_an_identity_is_named() {
    let lab = Lab::new().await;
    let error = open(&lab, &lab.disk("node"), vec![rule("s3://b/", Some("nobody"))]).await;
    let error = error.err().unwrap();
    assert!(error.problem.to_string().contains("nobody"), "{}", error.problem);
}
