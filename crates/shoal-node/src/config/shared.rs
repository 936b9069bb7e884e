//! The settings that must be alike on every node, as nodes compare them.

use shoal_base::secret::Secret;

use super::value::lifetime_word;
use super::{
    BandwidthScope, Config, CooperationMode, IdentityConfig, RegistryConfig, TierConfig, TierStoreConfig,
    WriteMode, WriteRule,
};
use crate::membership::{SettingDigest, SettingsDigests, SharedSetting};

impl Config {
    /// The digests that this node tells the others, under each secret of its cluster.
    pub(crate) fn digests(&self) -> SettingsDigests {
        SettingsDigests::new(self.cooperation.secrets(), |part, digest, has_secret| {
            self.digest(part, digest, has_secret);
        })
    }

    /// Adds the settings that are compared. Lists whose order means nothing are sorted.
    pub(crate) fn digest(&self, part: SharedSetting, digest: &mut SettingDigest, has_secret: bool) {
        match part {
            SharedSetting::BlockSize => digest.add(&self.store.block_bytes.to_string()),
            SharedSetting::Lake => digest.add(&self.lake.endpoint),
            SharedSetting::Layers => {
                self.cooperation.layers.iter().for_each(|layer| digest.add(layer));
                if self.cooperation.mode == CooperationMode::Directory {
                    digest.add("directory");
                    digest.add(&self.directory.prefix);
                }
            }
            SharedSetting::WriteRules => {
                let write = &self.write;
                digest.add(write.default.as_str());
                let mut rules: Vec<&WriteRule> = write.rules.iter().collect();
                rules.sort_unstable_by_key(|rule| &rule.prefix);
                for rule in rules {
                    digest.add(&rule.prefix);
                    digest.add(rule.mode.as_str());
                    if rule.mode == WriteMode::Back {
                        let tier = rule.tier_in(&self.tiers).map(|tier| &self.tiers[tier]);
                        digest.add(tier.map_or("", |tier| &tier.name));
                        digest.add(lifetime_word(rule.lifetime));
                        digest.add(rule.fallback.as_str());
                    }
                }
            }
            SharedSetting::Identities => {
                let mut identities: Vec<&IdentityConfig> = self.identities.iter().collect();
                identities.sort_unstable_by_key(|identity| &identity.access_key);
                for identity in identities {
                    digest.add(&identity.access_key);
                    digest.add(identity.lake_access_key.as_deref().unwrap_or_default());
                    // Without a secret of the cluster, guesses could be tried against a digest.
                    if has_secret {
                        digest.add(identity.secret_key.expose());
                        digest.add(identity.lake_secret_key.as_ref().map_or("", Secret::expose));
                    }
                }
            }
            SharedSetting::Bandwidth => {
                let lake = &self.lake;
                let shared = lake
                    .bandwidth
                    .filter(|_| lake.bandwidth_scope == BandwidthScope::Cluster);
                let bytes = shared.map_or(0, |bandwidth| bandwidth.bytes_per_second);
                digest.add(&bytes.to_string());
            }
            SharedSetting::Tiers => {
                let mut tiers: Vec<&TierConfig> = self.tiers.iter().collect();
                tiers.sort_unstable_by_key(|tier| &tier.name);
                for tier in tiers {
                    digest_tier(tier, digest);
                }
            }
        }
    }
}

/// Adds where a tier is. How a node proves its identity there is its own.
fn digest_tier(tier: &TierConfig, digest: &mut SettingDigest) {
    digest.add(&tier.name);
    match &tier.store {
        TierStoreConfig::Folder(path) => digest.add(&path.to_string_lossy()),
        TierStoreConfig::S3(store) => {
            digest.add(&store.endpoint);
            digest.add(&store.bucket);
        }
    }
    match &tier.registry {
        RegistryConfig::Embedded(path) => digest.add(&path.to_string_lossy()),
        RegistryConfig::Etcd(etcd) => {
            // A node may begin with the member that is nearest to it.
            let mut members: Vec<&str> = etcd.endpoints.split(',').collect();
            members.sort_unstable();
            digest.add(&members.join(","));
        }
    }
}
