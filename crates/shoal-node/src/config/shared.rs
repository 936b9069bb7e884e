//! Digests of the settings that must be the same on every node.

use shoal_net::membership::{SettingDigest, SettingsDigests, SharedSetting};

use super::role_pattern::RolePattern;
use super::value::lifetime_word;
use super::{
    BandwidthScope, Config, CooperationMode, Identity, RegistryConfig, TierConfig, TierStoreConfig,
    WriteMode, WriteRule,
};

impl Config {
    /// Returns the digests that this node broadcasts, under each secret of its cluster.
    pub(crate) fn digests(&self) -> SettingsDigests {
        SettingsDigests::new(self.cooperation.secrets(), |part, digest, has_secret| {
            self.digest(part, digest, has_secret);
        })
    }

    /// Adds the settings of one part. Lists whose order is irrelevant are sorted.
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
                let tiers = self.tier_names();
                digest.add(write.default.as_str());
                let mut rules: Vec<&WriteRule> = write.rules.iter().collect();
                rules.sort_unstable_by_key(|rule| &rule.prefix);
                for rule in rules {
                    digest.add(&rule.prefix);
                    digest.add(rule.mode.as_str());
                    if rule.mode == WriteMode::Back {
                        digest.add(rule.tier_in(&tiers).map_or("", |tier| tiers[tier]));
                        digest.add(lifetime_word(rule.lifetime));
                        digest.add(rule.fallback.as_str());
                        let mut readers: Vec<&String> = rule.readers.iter().collect();
                        readers.sort_unstable();
                        for reader in readers {
                            digest.add(reader);
                        }
                        digest.add(rule.flush_as.as_deref().unwrap_or_default());
                        if let Some(pack) = &rule.pack {
                            digest.add(&pack.below_bytes.to_string());
                            digest.add(&pack.pack_bytes.to_string());
                            digest.add(&pack.idle.as_millis().to_string());
                            digest.add(&pack.keeper);
                        }
                    }
                }
            }
            SharedSetting::Identities => {
                let mut identities: Vec<&Identity> = self.identities.iter().collect();
                identities.sort_unstable_by_key(|identity| &identity.access_key);
                for identity in identities {
                    digest.add(&identity.access_key);
                    let account = identity.lake_account.as_ref();
                    digest.add(account.map_or("", |account| &account.access_key));
                    // Without a cluster secret the digest has no key, and the secrets could be guessed from
                    // it.
                    if has_secret {
                        digest.add(identity.secret_key.expose());
                        digest.add(account.map_or("", |account| account.secret_key.expose()));
                    }
                }
            }
            SharedSetting::Sts => {
                let mut roles: Vec<&str> = self.sts.roles.iter().map(RolePattern::as_str).collect();
                roles.sort_unstable();
                for role in roles {
                    digest.add(role);
                }
                digest.add(self.sts.endpoint.as_deref().unwrap_or_default());
            }
            SharedSetting::Bandwidth => {
                let shared = self
                    .lake
                    .bandwidth
                    .filter(|bandwidth| bandwidth.scope == BandwidthScope::Cluster);
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

/// Adds the location of a tier, and that it has receipts. The credentials may differ between nodes.
fn digest_tier(tier: &TierConfig, digest: &mut SettingDigest) {
    digest.add(&tier.name);
    if tier.receipts {
        digest.add("receipts");
    }
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
            // Each node may list its nearest member first.
            let mut members: Vec<&str> = etcd.endpoints.split(',').collect();
            members.sort_unstable();
            digest.add(&members.join(","));
        }
    }
}
