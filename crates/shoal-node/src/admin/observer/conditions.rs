//! The conditions that currently hold on this node.

use shoal_cache::cooperation::CooperationMode;
use shoal_net::clock;
use shoal_net::conditions::{Condition, ConditionName};
use shoal_store::Health;

use super::Observer;
use crate::handoff::HandoffPhase;

impl Observer {
    /// Returns the conditions that currently hold.
    pub fn conditions(&self) -> Vec<Condition> {
        let mut conditions = self.of_the_lake();
        let drain = self.drain().filter(|drain| drain.state != HandoffPhase::Serving);
        conditions.extend(drain.map(|_| {
            Condition::new(
                ConditionName::Draining,
                "it hands its blocks over before it is stopped; `shoal node undrain` ends this",
            )
        }));
        if let Health::Paused { why } = self.core.store.health() {
            let detail = format!("it stores nothing: {why}");
            conditions.push(Condition::new(ConditionName::StorePaused, detail));
        }
        conditions.extend(self.write_back.figures().conditions());
        if self.core.config.cooperation.mode != CooperationMode::Solo {
            conditions.extend(self.of_the_cluster());
        }
        conditions
    }

    fn of_the_lake(&self) -> Vec<Condition> {
        let health = &self.core.lake.health;
        let was_good = if self.core.lake.credentials.own().is_some() {
            health.has_accepted_own()
        } else if self.core.identities.is_empty() {
            health.has_answered()
        } else {
            health.has_accepted_any()
        };
        let mut conditions = Vec::new();
        if !was_good {
            let detail = if health.has_answered() {
                "since this node started, the lake has accepted no account that its requests need; \
                 `lake-account-refused` and the log say why"
            } else {
                "since this node started, the lake has not answered it; the log says why"
            };
            conditions.push(Condition::new(ConditionName::LakeNeverAnswered, detail));
        } else if health.is_silent() {
            conditions.push(Condition::new(
                ConditionName::LakeSilent,
                "the lake gave its last request no answer; the log says why",
            ));
        }
        conditions.extend(health.refused_accounts().into_iter().map(|(account, reason)| {
            Condition::new(
                ConditionName::LakeAccountRefused,
                format!("{account}: {reason}; {}", reason.hint()),
            )
        }));
        conditions
    }

    fn of_the_cluster(&self) -> Vec<Condition> {
        let notices = &self.core.cooperation.notices;
        let mut conditions = Vec::new();
        if notices.seeds.is_alone() {
            let seeds = self.core.config.cooperation.seeds.join(", ");
            let detail = format!("no other node has answered; its seeds are {seeds}");
            conditions.push(Condition::new(ConditionName::Alone, detail));
        }
        let directory = self.core.directory.as_ref();
        if directory.is_some_and(|directory| !directory.answers()) {
            let detail = "blocks are looked for at their homes until it answers";
            conditions.push(Condition::new(ConditionName::DirectorySilent, detail));
        }
        let unknown = notices.seeds.unknown().join(", ");
        if !unknown.is_empty() {
            let detail = format!("these seeds have no address: {unknown}");
            conditions.push(Condition::new(ConditionName::SeedUnknown, detail));
        }
        let rejected = notices.rejected.recent(clock::instant());
        conditions.extend(rejected.into_iter().map(|seen| {
            let hint = seen.why.hint();
            Condition::new(ConditionName::GossipRejected, format!("{seen}; {hint}"))
        }));
        let different = notices.agreement.different();
        conditions.extend(different.into_iter().map(|(name, parts)| {
            let settings: Vec<_> = parts.iter().map(|part| part.setting()).collect();
            Condition::new(
                ConditionName::ConfiguredDifferently,
                format!("{name} is configured differently in {}", settings.join(", ")),
            )
        }));
        conditions
    }
}
