//! The view of operators on objects that are written back: conditions, a part of `/status`, and metrics.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shoal_base::amount::{counted, human_bytes};
use shoal_net::conditions::{Condition, ConditionName};
use shoal_net::metrics::{Sample, WordCounts, each, one};
use shoal_net::observed;
use shoal_registry::Name;

pub use crate::dirty::TierPage;
use crate::dirty::{DirtyObjects, TierStatus};
use crate::orders::{FlushOrders, FlushProgress, PackOrders, PackProgress};
use crate::tier::Damage;

/// Maximum number of objects listed by name in `/status`.
const TROUBLES_SHOWN: usize = 100;

/// Reads the state of dirty objects, and takes orders to flush them.
pub struct WriteBack {
    dirty: Arc<DirtyObjects>,
    /// Operators' orders.
    pub flushes: FlushOrders,
    /// Operators' orders about packs.
    pub packs: PackOrders,
}

/// The state of dirty objects at one moment.
pub struct WriteBackFigures {
    /// The part of `/status`. Objects that this node could not flush are listed by name.
    pub page: WriteBackPage,
    tiers: Vec<TierStatus>,
    damaged: Vec<(Arc<str>, Damage)>,
    packs: PackTroubles,
}

/// The troubles with packs.
struct PackTroubles {
    /// The packs and tables that are not as they were written.
    damaged: Vec<(Arc<str>, Damage)>,
    /// The reasons why maps cannot be read.
    unreadable: Vec<String>,
}

/// Objects that the lake does not have yet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WriteBackPage {
    /// Dirty objects that this node wrote.
    pub objects: u64,
    /// Removals that this node has acknowledged, and that the lake has not carried out yet.
    pub removals: u64,
    /// Bytes in the tiers, of all nodes.
    pub bytes: u64,
    /// Objects by what became of them.
    pub outcomes: WordCounts,
    /// Multipart uploads.
    pub uploads: UploadsPage,
    /// The tiers.
    pub tiers: Vec<TierPage>,
    /// Some of the objects whose last flush failed.
    pub troubled: Vec<TroubledObject>,
    /// The latest order to flush.
    pub flush: FlushProgress,
    /// The latest order about packs.
    pub packs: PackProgress,
}

/// Multipart uploads that began at a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UploadsPage {
    /// Uploads that are open or ended recently.
    pub kept: u64,
    /// Uploads by how they ended.
    pub ended: WordCounts,
}

/// A dirty object, or a removal, whose last flush failed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TroubledObject {
    /// Its URI.
    pub object: String,
    /// Failures in a row.
    pub failures: u32,
    /// The last error.
    pub error: String,
    /// True if every flush will fail until a person or a client acts.
    pub refused: bool,
}

impl WriteBack {
    /// Observes these objects.
    pub fn new(dirty: &Arc<DirtyObjects>) -> Self {
        Self {
            dirty: Arc::clone(dirty),
            flushes: FlushOrders::new(&dirty.entries),
            packs: PackOrders::new(&dirty.entries),
        }
    }

    /// Refreshes cached counts that come from the registries.
    pub async fn refresh(&self) {
        self.dirty.entries.refresh().await;
    }

    fn packs(&self) -> PackTroubles {
        let packs = &self.dirty.entries.packs;
        let unreadable = packs.all().filter_map(|map| map.trouble());
        PackTroubles {
            damaged: packs.damages().objects(),
            unreadable: unreadable.map(|trouble| trouble.to_string()).collect(),
        }
    }

    /// Returns the current state.
    pub fn figures(&self) -> WriteBackFigures {
        let (tiers, outcomes) = (self.dirty.entries.tiers(), &self.dirty.shared.outcomes);
        let sum = |read: fn(&TierPage) -> u64| tiers.iter().map(|tier| read(&tier.page)).sum();
        let failed = tiers.iter().flat_map(|tier| &tier.failed);
        let troubled = failed.take(TROUBLES_SHOWN).map(|failed| TroubledObject {
            object: text_of(&failed.name),
            failures: failed.failures,
            error: failed.error.to_string(),
            refused: failed.is_refused,
        });
        let page = WriteBackPage {
            objects: sum(|tier| tier.objects),
            removals: sum(|tier| tier.removals),
            bytes: sum(|tier| tier.bytes),
            outcomes: outcomes.writes.by_word(),
            uploads: UploadsPage {
                kept: sum(|tier| tier.uploads),
                ended: outcomes.uploads.by_word(),
            },
            tiers: tiers.iter().map(|tier| tier.page.clone()).collect(),
            troubled: troubled.collect(),
            flush: self.flushes.progress(),
            packs: self.packs.progress(),
        };
        WriteBackFigures {
            page,
            tiers,
            damaged: self.dirty.shared.damages.objects(),
            packs: self.packs(),
        }
    }
}

impl WriteBackFigures {
    /// Returns the conditions that hold.
    pub fn conditions(&self) -> Vec<Condition> {
        let of_tiers = self.tiers.iter().flat_map(of_tier);
        let of_maps = self.packs.unreadable.iter();
        let of_maps = of_maps.map(|why| Condition::new(ConditionName::PacksUnreadable, why.clone()));
        let (object, pack) = (
            "other bytes than were acknowledged, and stays dirty",
            "other bytes than were written",
        );
        let damaged = [
            of_damage(ConditionName::WrongBytes, &self.damaged, object),
            of_damage(ConditionName::PacksDamaged, &self.packs.damaged, pack),
        ];
        let conditions = of_tiers.chain(of_maps).chain(damaged.into_iter().flatten());
        conditions.collect()
    }
}

/// Returns the condition of objects that have the wrong bytes, if there are any.
fn of_damage(name: ConditionName, damaged: &[(Arc<str>, Damage)], bytes: &str) -> Option<Condition> {
    let (object, damage) = damaged.first()?;
    let more = match damaged.len() - 1 {
        0 => String::new(),
        more => format!(", as {more} more,"),
    };
    let detail = format!("{object}{more} has {bytes}: {}; {}", damage.why, damage.hint);
    Some(Condition::new(name, detail))
}

observed! {
    /// The metrics of dirty objects.
    TABLE of WriteBackFigures:

    Gauge dirty_objects{} "Objects that this node acknowledged and the lake does not have yet."
        => |s| one(s.page.objects);
    Gauge dirty_removals{} "Removals that this node acknowledged and the lake has not carried out yet."
        => |s| one(s.page.removals);
    Gauge dirty_bytes{} "Bytes in the tiers, of all nodes, as far as this node knows."
        => |s| one(s.page.bytes);
    Gauge tier_oldest_seconds{tier} "Age of the oldest dirty object of this node that is not short-lived and not held."
        => |s| tiers(s, |tier| tier.page.oldest_seconds.unwrap_or_default());
    Gauge tier_age_seconds{tier} "Age at which objects go from the tier to the lake."
        => |s| tiers(s, |tier| tier.page.age_seconds);
    Gauge tier_flushes_parallel{tier}
        "Objects that this node brings from the tier to the lake at a time, at most."
        => |s| tiers(s, |tier| tier.page.parallel as u64);
    Gauge tier_upload_bytes{tier} "Bytes in the tier of uploads that have not ended, of all nodes."
        => |s| tiers(s, |tier| tier.page.upload_bytes);
    Gauge tier_registry_bytes{tier} "Bytes that the registry of the tier uses, as it says."
        => |s| tiers(s, |tier| tier.page.registry_bytes.unwrap_or_default());
    Gauge tier_registry_quota_bytes{tier} "Bytes that the registry of the tier may use."
        => |s| tiers(s, |tier| tier.page.registry_quota_bytes.unwrap_or_default());
    Counter tier_swept_pieces{tier}
        "Pieces of the tier's store that nothing named and that this node removed."
        => |s| tiers(s, |tier| tier.swept.pieces);
    Counter tier_swept_bytes{tier} "Bytes of the pieces that nothing named and that this node removed."
        => |s| tiers(s, |tier| tier.swept.bytes);
    Counter written_back{outcome} "Objects acknowledged before the lake had them, by outcome."
        => |s| each(s.page.outcomes.clone());
    Gauge uploads_kept{} "Multipart uploads for write-back that began here, open or ended not long ago."
        => |s| one(s.page.uploads.kept);
    Counter uploads_ended{outcome} "Multipart uploads for write-back that ended here, by outcome."
        => |s| each(s.page.uploads.ended.clone());
}

fn tiers(s: &WriteBackFigures, read: fn(&TierStatus) -> u64) -> Vec<Sample> {
    each(s.tiers.iter().map(|tier| (&*tier.page.name, read(tier))))
}

/// Returns the conditions of one tier.
fn of_tier(tier: &TierStatus) -> Vec<Condition> {
    let TierStatus { page, .. } = tier;
    let name = &page.name;
    let mut conditions = Vec::new();
    if !page.reachable {
        let detail = format!(
            "the registry of tier {name} does not answer; requests for names below its rules are answered 503"
        );
        conditions.push(Condition::new(ConditionName::TierUnreachable, detail));
    }
    if let Some(problem) = &tier.store_problem {
        let detail = format!(
            "the store of tier {name} cannot be used: {problem}; objects that the registry does not keep itself go to \
             the lake at once, and dirty ones in the store are answered 503"
        );
        conditions.push(Condition::new(ConditionName::TierStoreUnusable, detail));
    }
    if tier.is_full {
        let [stored, capacity, uploads] =
            [page.bytes, page.capacity_bytes, page.upload_bytes].map(human_bytes);
        let detail = format!(
            "tier {name} has no room: {stored} of {capacity}, {uploads} of them parts of uploads that have not ended; \
             objects go to the lake at once, and an upload ends when it is completed or aborted, or {} days after \
             its last part",
            tier.upload_age.as_secs() / 86_400
        );
        conditions.push(Condition::new(ConditionName::TierFull, detail));
    }
    if let Some(nearly_full) = &tier.nearly_full {
        let detail = format!("{nearly_full}; {}", nearly_full.remedy);
        conditions.push(Condition::new(ConditionName::RegistryNearlyFull, detail));
    }
    if let (1.., Some(example)) = (page.without_rule, &tier.without_rule) {
        let detail = format!(
            "{} in tier {name} {} no rule with mode = \"back\", such as {}; reads do not find them before they are \
             flushed, so add the rule again until then",
            counted(page.without_rule, "dirty object"),
            if page.without_rule == 1 { "has" } else { "have" },
            text_of(example)
        );
        conditions.push(Condition::new(ConditionName::DirtyWithoutRule, detail));
    }
    let mut refused = tier.failed.iter().filter(|failed| failed.is_refused);
    if let Some(first) = refused.next() {
        let others = match refused.count() {
            0 => String::new(),
            others => format!(", and {others} more (write_back.troubled)"),
        };
        let (object, error) = (text_of(&first.name), &first.error);
        let detail = format!("{object} stays in tier {name}: {error}{others}");
        conditions.push(Condition::new(ConditionName::FlushRefused, detail));
    }
    conditions
}

/// Formats a name of a registry for people.
fn text_of(name: &Name) -> String {
    let (bucket, key) = name.parts();
    format!("s3://{}/{}", bucket.escape_ascii(), key.escape_ascii())
}
