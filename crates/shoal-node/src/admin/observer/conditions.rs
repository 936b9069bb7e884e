//! The conditions that currently hold on this node.

use shoal_base::amount::{counted, human_bytes};
use shoal_cache::cooperation::CooperationMode;
use shoal_net::clock;
use shoal_net::conditions::{Condition, ConditionName};
use shoal_store::Health;
use shoal_writeback::dirty::TierStatus;

use super::{Observer, name_of};
use crate::handoff::{HandoffPhase, HandoffProgress};

impl Observer {
    /// Returns the conditions that currently hold. `drain` is the progress of draining.
    pub fn conditions(&self, drain: Option<&HandoffProgress>) -> Vec<Condition> {
        let mut conditions = self.of_the_lake();
        if drain.is_some_and(|drain| drain.state != HandoffPhase::Serving) {
            conditions.push(Condition::new(
                ConditionName::Draining,
                "it hands its blocks over before it is stopped; `shoal node undrain` ends this",
            ));
        }
        if let Health::Paused { why } = self.store.health() {
            conditions.push(Condition::new(
                ConditionName::StorePaused,
                format!("it stores nothing: {why}"),
            ));
        }
        for tier in self.dirty.entries.tiers() {
            conditions.extend(of_tier(&tier));
        }
        conditions.extend(self.of_damaged_objects());
        if self.config.cooperation.mode != CooperationMode::Solo {
            conditions.extend(self.of_the_cluster());
        }
        conditions
    }

    fn of_damaged_objects(&self) -> Option<Condition> {
        let damaged = self.dirty.damaged();
        let (object, damage) = damaged.first()?;
        let more = match damaged.len() - 1 {
            0 => String::new(),
            more => format!(", as {more} more,"),
        };
        let detail = format!(
            "{object}{more} has other bytes than were acknowledged, and stays dirty: {}; {}",
            damage.why, damage.hint
        );
        Some(Condition::new(ConditionName::WrongBytes, detail))
    }

    fn of_the_lake(&self) -> Vec<Condition> {
        let health = self.lake.health();
        let was_good = if self.lake.credentials().own().is_some() {
            health.has_accepted_own()
        } else if self.identities.is_empty() {
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
        conditions.extend(health.refused_accounts().into_iter().map(|refused| {
            let account = refused.owner.describe(&refused.access_key);
            let (reason, hint) = (refused.reason, refused.reason.hint());
            Condition::new(
                ConditionName::LakeAccountRefused,
                format!("{account}: {reason}; {hint}"),
            )
        }));
        conditions
    }

    fn of_the_cluster(&self) -> Vec<Condition> {
        let notices = self.cooperation.notices();
        let mut conditions = Vec::new();
        if notices.seeds.is_alone() {
            let seeds = self.config.cooperation.seeds.join(", ");
            conditions.push(Condition::new(
                ConditionName::Alone,
                format!("no other node has answered; its seeds are {seeds}"),
            ));
        }
        if self
            .directory
            .as_ref()
            .is_some_and(|directory| !directory.answers())
        {
            let detail = "blocks are looked for at their homes until it answers".to_owned();
            conditions.push(Condition::new(ConditionName::DirectorySilent, detail));
        }
        let unknown = notices.seeds.unknown();
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            conditions.push(Condition::new(
                ConditionName::SeedUnknown,
                format!("these seeds have no address: {unknown}"),
            ));
        }
        let unheard = notices.rejected.recent(clock::instant());
        conditions.extend(unheard.into_iter().map(|seen| {
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

/// Returns the conditions of one tier.
fn of_tier(tier: &TierStatus) -> Vec<Condition> {
    let name = &tier.name;
    let mut conditions = Vec::new();
    if !tier.is_reachable {
        let detail = format!(
            "the registry of tier {name} does not answer; requests for names below its rules are answered 503"
        );
        conditions.push(Condition::new(ConditionName::TierUnreachable, detail));
    }
    if tier.is_full {
        let [stored, capacity, uploads] =
            [tier.bytes, tier.capacity_bytes, tier.survey.upload_bytes].map(human_bytes);
        let detail = format!(
            "tier {name} has no room: {stored} of {capacity}, {uploads} of them parts of uploads that have not ended; \
             objects go to the lake at once, and an upload ends when it is completed or aborted, or {} days after \
             its last part",
            tier.pace.upload_age.as_secs() / 86_400
        );
        conditions.push(Condition::new(ConditionName::TierFull, detail));
    }
    if let Some(nearly_full) = &tier.nearly_full {
        let detail = format!("{nearly_full}; {}", nearly_full.remedy);
        conditions.push(Condition::new(ConditionName::RegistryNearlyFull, detail));
    }
    if let (1.., Some(example)) = (tier.survey.uncovered, &tier.survey.example) {
        let detail = format!(
            "{} in tier {name} {} no rule with mode = \"back\", such as {}; reads do not find them before they are \
             flushed, so add the rule again until then",
            counted(tier.survey.uncovered, "dirty object"),
            if tier.survey.uncovered == 1 { "has" } else { "have" },
            name_of(example)
        );
        conditions.push(Condition::new(ConditionName::DirtyWithoutRule, detail));
    }
    let mut refused = tier.failed.iter().filter(|failed| failed.is_refused);
    if let Some(first) = refused.next() {
        let others = match refused.count() {
            0 => String::new(),
            others => format!(", and {others} more (write_back.troubled)"),
        };
        let (object, error) = (name_of(&first.name), &first.error);
        let detail = format!("{object} stays in tier {name}: {error}{others}");
        conditions.push(Condition::new(ConditionName::FlushRefused, detail));
    }
    conditions
}
