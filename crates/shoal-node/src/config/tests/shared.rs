//! Which differences between the configurations of two nodes are found.

use shoal_base::secret::Secret;
use shoal_net::membership::{SettingsDigests, SharedSetting};
use shoal_registry::Lifetime;

use crate::config::{
    Config, EtcdConfig, Identity, PackConfig, RegistryConfig, TierConfig, TierStoreConfig, WriteMode,
    WriteRule,
};

fn pack() -> PackConfig {
    PackConfig {
        below_bytes: PackConfig::BELOW_BYTES,
        pack_bytes: PackConfig::PACK_BYTES,
        idle: PackConfig::IDLE,
        keeper: "AK".into(),
    }
}

fn tier(name: &str, members: &str) -> TierConfig {
    TierConfig {
        name: name.into(),
        store: TierStoreConfig::Folder(name.into()),
        capacity_bytes: 1 << 30,
        registry: RegistryConfig::Etcd(EtcdConfig::at(members)),
        inline_bytes: TierConfig::INLINE_BYTES,
        receipts: false,
    }
}

fn digests(change: impl FnOnce(&mut Config)) -> SettingsDigests {
    let mut config = Config {
        identities: vec![Identity::new("a", "1"), Identity::new("b", "2")],
        tiers: vec![
            tier("first", "https://e1,https://e2"),
            tier("second", "https://e3"),
        ],
        ..Config::default()
    };
    config.write.rules = vec![
        WriteRule::new("s3://b/x/", WriteMode::Back),
        WriteRule::new("s3://b/y/", WriteMode::Through),
    ];
    config.write.rules[0].tier = Some("first".into());
    config.cooperation.secret_key = Some(Secret::new("of the cluster"));
    change(&mut config);
    config.digests()
}

fn differences(change: impl FnOnce(&mut Config)) -> Vec<SharedSetting> {
    digests(|_| ()).differences(&digests(change))
}

#[test]
fn each_part_that_differs_is_named() {
    assert_eq!(
        differences(|config| config.store.block_bytes = 1 << 20),
        [SharedSetting::BlockSize]
    );
    assert_eq!(
        differences(|config| config.lake.endpoint.push('x')),
        [SharedSetting::Lake]
    );
    assert_eq!(
        differences(|config| drop(config.cooperation.layers.pop())),
        [SharedSetting::Layers]
    );
    assert_eq!(
        differences(|config| drop(config.write.rules.pop())),
        [SharedSetting::WriteRules]
    );
    assert_eq!(
        differences(|config| config.write.rules[0].mode = WriteMode::Through),
        [SharedSetting::WriteRules]
    );
    assert_eq!(
        differences(|config| config.write.rules[0].lifetime = Lifetime::Short),
        [SharedSetting::WriteRules]
    );
    assert_eq!(
        differences(|config| config.write.rules[0].readers = vec!["b".into()]),
        [SharedSetting::WriteRules]
    );
    assert_eq!(
        differences(|config| config.write.rules[0].pack = Some(pack())),
        [SharedSetting::WriteRules]
    );
    assert_eq!(
        differences(|config| config.write.rules[0].tier = Some("second".into())),
        [SharedSetting::WriteRules]
    );
    assert_eq!(
        differences(|config| config.tiers[1] = tier("second", "https://e4")),
        [SharedSetting::Tiers]
    );
    assert_eq!(
        differences(|config| config.tiers[1].store = TierStoreConfig::Folder("other".into())),
        [SharedSetting::Tiers]
    );
    assert_eq!(
        differences(|config| drop(config.identities.pop())),
        [SharedSetting::Identities]
    );
    assert_eq!(
        differences(|config| config.sts.roles = vec!["arn:aws:iam::1:role/x".into()]),
        [SharedSetting::Sts]
    );
    assert_eq!(
        differences(|config| config.write.rules[0].flush_as = Some("a".into())),
        [SharedSetting::WriteRules]
    );
    let secret = |config: &mut Config| config.identities[0].secret_key = Secret::new("another");
    assert_eq!(differences(secret), [SharedSetting::Identities]);
    let both = |config: &mut Config| {
        config.identities.clear();
        config.store.block_bytes = 1 << 20;
    };
    assert_eq!(
        differences(both),
        [SharedSetting::BlockSize, SharedSetting::Identities]
    );
}

#[test]
fn settings_that_may_differ_and_the_order_of_lists_are_not_compared() {
    let mine = |config: &mut Config| {
        config.node.name = "another".into();
        config.store.capacity_bytes = 1 << 30;
        config.identities.reverse();
        config.write.rules.reverse();
        config.tiers.reverse();
        config.tiers[1] = tier("first", "https://e2,https://e1");
        config.tiers[1].capacity_bytes = 1 << 20;
        config.tiers[1].inline_bytes = 0;
    };
    assert_eq!(differences(mine), []);
}

#[test]
fn nodes_are_compared_under_a_secret_that_both_know() {
    let under = |secrets: &[&str], config: &Config| {
        SettingsDigests::new(secrets.iter().copied(), |part, digest, has_secret| {
            config.digest(part, digest, has_secret);
        })
    };
    let mut config = Config::default();
    let both = under(&["new", "old"], &config);
    assert_eq!(both.differences(&under(&["old", "new"], &config)).len(), 0);
    assert_eq!(both.differences(&under(&["old"], &config)).len(), 0);
    config.store.block_bytes *= 2;
    assert_eq!(both.differences(&under(&["old"], &config)).len(), 1);
    let rejected = under(&["another"], &config);
    assert_eq!(both.differences(&rejected).len(), 0, "nothing to compare");
}

#[test]
fn without_a_secret_no_digest_depends_on_one() {
    let of = |secret| {
        let config = Config {
            identities: vec![Identity::new("a", secret)],
            ..Config::default()
        };
        config.digests()
    };
    assert_eq!(of("one"), of("two"));
}
