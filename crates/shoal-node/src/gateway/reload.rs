//! Reloads the settings that can change while a node runs: identities, quotas, rules, certificates,
//! bandwidth, operators' tokens and the access log. Other settings need a restart.

use std::sync::Arc;

use shoal_cache::freshness::FreshnessRules;
use shoal_cache::quotas::QuotaConfig;
use shoal_cache::write::{WriteConfig, WriteMode, WriteRules};
use shoal_net::clock;
use tokio::task::spawn_blocking;

use super::{Gateway, GatewayError};
use crate::access_log::OpenLog;
use crate::config::{self, Config, ConfigError};

/// The result of comparing a new configuration with the one in force.
#[derive(Debug)]
struct Plan {
    in_force: Config,
    /// Settings that differ but need a restart.
    need_restart: Vec<String>,
}

impl Plan {
    fn of(old: &Config, new: &Config) -> Self {
        let mut in_force = old.clone();
        in_force.identities.clone_from(&new.identities);
        in_force.quotas.clone_from(&new.quotas);
        in_force.log.filter.clone_from(&new.log.filter);
        in_force.log.access = new.log.access;
        in_force.log.access_file.clone_from(&new.log.access_file);
        // Metering is set up at start: a reload can change the rate, but not turn metering on or off.
        let scope = |config: &Config| config.lake.bandwidth.map(|bandwidth| bandwidth.scope);
        if new.lake.bandwidth.is_some() && scope(old) == scope(new) {
            in_force.lake.bandwidth = new.lake.bandwidth;
        }
        // Other nodes rely on this node reporting changes of coherent objects.
        if !old.freshness.has_coherent() && !new.freshness.has_coherent() {
            in_force.freshness.clone_from(&new.freshness);
        }
        // Other nodes and existing dirty objects rely on the names under which objects may be dirty.
        if !writes_back(&old.write) && !writes_back(&new.write) {
            in_force.write.default = new.write.default;
            in_force.write.rules.clone_from(&new.write.rules);
        }
        let need_restart = config::differences(&in_force, new);
        Self {
            in_force,
            need_restart,
        }
    }
}

/// Returns true if any object may be dirty.
fn writes_back(write: &WriteConfig) -> bool {
    let mut modes = write.rules.iter().map(|rule| rule.mode).chain([write.default]);
    modes.any(|mode| mode == WriteMode::Back)
}

impl Gateway {
    /// Applies a new configuration and returns the configuration then in force. No request is dropped:
    /// requests in flight finish under the old settings.
    ///
    /// # Errors
    ///
    /// Fails if `new` is an error or cannot be applied. The old configuration then stays in force.
    pub async fn reload(&self, new: Result<Config, ConfigError>) -> Result<Config, GatewayError> {
        let mut in_force = self.in_force.lock().await;
        let taken_over = self.take_over(&in_force, new).await;
        if taken_over.is_err() {
            self.open_log_again(&in_force).await;
        }
        let noted = taken_over.as_ref().map(|plan| plan.need_restart.as_slice());
        self.reloads.lock().note(clock::utc_now(), noted);
        let plan = taken_over?;
        for setting in &plan.need_restart {
            tracing::warn!(
                setting,
                "this setting changes with a restart only; the old value stays in force"
            );
        }
        tracing::info!(
            identities = plan.in_force.identities.len(),
            "configuration reloaded"
        );
        *in_force = plan.in_force;
        Ok(in_force.clone())
    }

    /// Opens the file of the access log again although the new configuration is refused: the program that has
    /// moved the file away sends the same signal.
    async fn open_log_again(&self, in_force: &Config) {
        let opened = OpenLog::aside(&in_force.log).await;
        let changed = opened
            .map_err(GatewayError::from)
            .and_then(|open| Ok(self.core.access_log.change(open)?));
        if let Err(error) = changed {
            tracing::error!(%error, "the access log stays in the former file");
        }
    }

    async fn take_over(&self, old: &Config, new: Result<Config, ConfigError>) -> Result<Plan, GatewayError> {
        let plan = Plan::of(old, &new?);
        let (config, front) = (&plan.in_force, &self.front);
        assert_eq!(config.store, old.store, "a reload keeps the store and its blocks");
        assert_eq!(config.lake.endpoint, old.lake.endpoint, "a reload keeps the lake");
        assert_eq!(
            config.tiers, old.tiers,
            "a reload keeps the tiers of dirty objects"
        );
        for tls in &self.tls {
            tls.look().await?;
        }
        let tokens = Arc::clone(&self.auth);
        let reading = spawn_blocking(move || tokens.reload());
        reading.await.expect("reading tokens does not panic")?;
        // The last step that can fail.
        let access_log = OpenLog::aside(&config.log).await?;
        self.core.access_log.change(access_log)?;
        self.core.identities.replace(config.identities.iter().cloned());
        let capacity_bytes = config.store.capacity_bytes;
        let rooms = QuotaConfig::rooms(&config.quotas, capacity_bytes);
        self.core.store.set_quotas(&rooms);
        let fill_bytes = config.limits.fill_bytes;
        self.core.quotas.set(&config.quotas, capacity_bytes, fill_bytes);
        if let (Some(link), Some(bandwidth)) = (self.core.lake.link(), config.lake.bandwidth) {
            link.set_bandwidth(bandwidth);
        }
        let freshness = FreshnessRules::new(&config.freshness);
        front.reload(freshness, WriteRules::new(&config.write, &config.tier_names()));
        // Other nodes compare the settings that must be the same.
        let agreement = &self.core.cooperation.notices.agreement;
        agreement.renew(config.digests());
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use shoal_base::secret::Secret;

    use super::{Config, Plan, WriteMode};
    use crate::config::{
        AccessFormat, FreshnessMode, QuotaConfig, QuotaScope, QuotaSize, RegistryConfig, TierConfig,
        TierStoreConfig, WriteRule,
    };

    fn rule(mode: WriteMode) -> Vec<WriteRule> {
        vec![WriteRule::new("s3://b/", mode)]
    }

    #[test]
    fn a_reload_changes_only_what_may_change_and_names_the_rest() {
        let (old, mut new) = (Config::default(), Config::default());
        new.freshness.default = FreshnessMode::Immutable;
        new.write.rules = rule(WriteMode::Through);
        new.log.filter = "debug".into();
        new.log.access = AccessFormat::S3;
        new.log.access_file = Some("/log".into());
        new.quotas = vec![QuotaConfig {
            scope: QuotaScope::Identity("AK".into()),
            room: Some(QuotaSize::Percent(20)),
            bandwidth: None,
        }];
        let plan = Plan::of(&old, &new);
        assert_eq!((&plan.in_force, plan.need_restart.len()), (&new, 0));

        let changed = new.clone();
        new.store.capacity_bytes *= 2;
        new.limits.requests = 7;
        new.lake.secret_key = Some(Secret::new("another"));
        new.cooperation.previous_secret_key = Some(Secret::new("old"));
        let plan = Plan::of(&old, &new);
        assert_eq!(plan.in_force, changed);
        assert_eq!(
            plan.need_restart,
            [
                "[lake] secret_key",
                "[store] capacity",
                "[limits] requests",
                "[cooperation] secret_key_file"
            ]
        );
    }

    #[test]
    fn rules_for_coherent_objects_wait_for_a_restart() {
        let (revalidate, mut coherent) = (Config::default(), Config::default());
        coherent.freshness.default = FreshnessMode::Coherent;
        for (old, new) in [(&revalidate, &coherent), (&coherent, &revalidate)] {
            let plan = Plan::of(old, new);
            assert_eq!(&plan.in_force, old);
            assert_eq!(plan.need_restart, ["[freshness] default"]);
        }
    }

    #[test]
    fn tiers_wait_for_a_restart() {
        let (old, mut new) = (Config::default(), Config::default());
        new.tiers = vec![TierConfig {
            name: "a".into(),
            store: TierStoreConfig::Folder("/tier".into()),
            capacity_bytes: 1 << 30,
            registry: RegistryConfig::within("/tier".as_ref()),
            inline_bytes: TierConfig::INLINE_BYTES,
            receipts: false,
        }];
        let plan = Plan::of(&old, &new);
        assert_eq!(
            (plan.in_force, plan.need_restart),
            (old, vec!["[[tier]]".to_owned()])
        );
    }

    #[test]
    fn rules_for_dirty_objects_wait_for_a_restart() {
        for (before, after) in [
            (WriteMode::Around, WriteMode::Back),
            (WriteMode::Back, WriteMode::Through),
        ] {
            let (mut old, mut new) = (Config::default(), Config::default());
            (old.write.rules, new.write.rules) = (rule(before), rule(after));
            let plan = Plan::of(&old, &new);
            assert_eq!(plan.in_force, old);
            assert_eq!(plan.need_restart, ["[[write.rule]]"]);
        }
    }
}
