//! What operators see of objects that are written back: conditions, a part of `/status`, and metrics.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shoal_base::amount::{counted, human_bytes};
use shoal_net::conditions::{Condition, ConditionName};
use shoal_net::metrics::{Sample, WordCounts, by_word, each, one};
use shoal_net::observed;
use shoal_registry::Name;
use shoal_s3::uri::S3Uri;

use crate::dirty::{
    DirtyObjects, Figures, FlushOrders, FlushProgress, TierStatus, UploadEnd, WriteBackOutcome,
};
use crate::tier::Damage;

/// Maximum number of objects listed by name in `/status`.
const TROUBLES_SHOWN: usize = 100;

/// Reads the state of dirty objects, and takes orders to flush them.
pub struct WriteBack {
    dirty: Arc<DirtyObjects>,
    flushes: FlushOrders,
}

/// The state of dirty objects at one moment.
pub struct WriteBackFigures {
    figures: Figures,
    tiers: Vec<TierStatus>,
    damaged: Vec<(Arc<str>, Damage)>,
    flush: FlushProgress,
}

/// Objects that the lake does not have yet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WriteBackPage {
    /// Dirty objects that this node wrote.
    pub objects: u64,
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

/// A tier, and this node's objects in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TierPage {
    /// The name in the configuration.
    pub name: String,
    /// False if the registry has not heard from this node in time.
    pub reachable: bool,
    /// Dirty objects that this node wrote.
    pub objects: u64,
    /// Bytes in the store, of all nodes.
    pub bytes: u64,
    /// The most that the store may hold.
    pub capacity_bytes: u64,
    /// Uploads that began at this node.
    pub uploads: u64,
    /// Bytes in parts of uploads that have not ended, of all nodes.
    pub upload_bytes: u64,
    /// Dirty objects of all nodes that no rule names.
    pub without_rule: u64,
    /// Bytes that the registry uses, if it reports them.
    pub registry_bytes: Option<u64>,
    /// Bytes that the registry may use.
    pub registry_quota_bytes: Option<u64>,
    /// The age of the oldest of `objects` that is not short-lived.
    pub oldest_seconds: Option<u64>,
    /// The age at which objects are due.
    pub age_seconds: u64,
    /// The age at which short-lived objects are due.
    pub short_age_seconds: u64,
    /// Flushes at a time, at most.
    pub parallel: usize,
    /// Dead nodes for which this node acts.
    pub adopted_nodes: usize,
    /// Objects whose last flush failed.
    pub failed: usize,
}

/// A dirty object whose last flush failed.
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
            flushes: FlushOrders::of(dirty),
        }
    }

    /// Starts to flush the dirty objects below a prefix, or all of them.
    pub fn flush(&self, below: Option<S3Uri>) -> FlushProgress {
        self.flushes.begin(below)
    }

    /// Refreshes cached counts that come from the registries.
    pub async fn refresh(&self) {
        self.dirty.entries.refresh().await;
    }

    /// Returns the current state.
    pub fn figures(&self) -> WriteBackFigures {
        WriteBackFigures {
            figures: self.dirty.figures(),
            tiers: self.dirty.entries.tiers(),
            damaged: self.dirty.damaged(),
            flush: self.flushes.progress(),
        }
    }
}

impl WriteBackFigures {
    /// Returns the part of `/status`. Objects that this node could not flush are listed by name.
    pub fn page(&self) -> WriteBackPage {
        let failed = self.tiers.iter().flat_map(|tier| &tier.failed);
        let troubled = failed.take(TROUBLES_SHOWN).map(|failed| TroubledObject {
            object: text_of(&failed.name),
            failures: failed.failures,
            error: failed.error.to_string(),
            refused: failed.is_refused,
        });
        WriteBackPage {
            objects: self.figures.objects,
            bytes: self.figures.bytes,
            outcomes: by_word(&self.figures.outcomes, WriteBackOutcome::as_str),
            uploads: UploadsPage {
                kept: self.figures.uploads,
                ended: by_word(&self.figures.upload_ends, UploadEnd::as_str),
            },
            tiers: self.tiers.iter().map(tier_page).collect(),
            troubled: troubled.collect(),
            flush: self.flush.clone(),
        }
    }

    /// Returns the conditions that hold.
    pub fn conditions(&self) -> Vec<Condition> {
        let of_tiers = self.tiers.iter().flat_map(of_tier);
        of_tiers.chain(self.of_damaged_objects()).collect()
    }

    fn of_damaged_objects(&self) -> Option<Condition> {
        let (object, damage) = self.damaged.first()?;
        let more = match self.damaged.len() - 1 {
            0 => String::new(),
            more => format!(", as {more} more,"),
        };
        let detail = format!(
            "{object}{more} has other bytes than were acknowledged, and stays dirty: {}; {}",
            damage.why, damage.hint
        );
        Some(Condition::new(ConditionName::WrongBytes, detail))
    }
}

observed! {
    /// The metrics of dirty objects.
    TABLE of WriteBackFigures:

    Gauge dirty_objects{} "Objects that this node acknowledged and the lake does not have yet."
        => |s| one(s.figures.objects);
    Gauge dirty_bytes{} "Bytes in the tiers, of all nodes, as far as this node knows."
        => |s| one(s.figures.bytes);
    Gauge tier_oldest_seconds{tier} "Age of the oldest dirty object of this node that is not short-lived."
        => |s| tiers(s, |tier| tier.oldest.unwrap_or_default().as_secs());
    Gauge tier_age_seconds{tier} "Age at which objects go from the tier to the lake."
        => |s| tiers(s, |tier| tier.pace.age.as_secs());
    Gauge tier_flushes_parallel{tier}
        "Objects that this node brings from the tier to the lake at a time, at most."
        => |s| tiers(s, |tier| tier.pace.parallel as u64);
    Gauge tier_upload_bytes{tier} "Bytes in the tier of uploads that have not ended, of all nodes."
        => |s| tiers(s, |tier| tier.survey.upload_bytes);
    Gauge tier_registry_bytes{tier} "Bytes that the registry of the tier uses, as it says."
        => |s| tiers(s, |tier| tier.registry.map_or(0, |room| room.used_bytes));
    Gauge tier_registry_quota_bytes{tier} "Bytes that the registry of the tier may use."
        => |s| tiers(s, |tier| tier.registry.map_or(0, |room| room.quota_bytes));
    Counter tier_swept_pieces{tier}
        "Pieces of the tier's store that nothing named and that this node removed."
        => |s| tiers(s, |tier| tier.swept.pieces);
    Counter tier_swept_bytes{tier} "Bytes of the pieces that nothing named and that this node removed."
        => |s| tiers(s, |tier| tier.swept.bytes);
    Counter written_back{outcome} "Objects acknowledged before the lake had them, by outcome."
        => |s| each(by_word(&s.figures.outcomes, WriteBackOutcome::as_str));
    Gauge uploads_kept{} "Multipart uploads for write-back that began here, open or ended not long ago."
        => |s| one(s.figures.uploads);
    Counter uploads_ended{outcome} "Multipart uploads for write-back that ended here, by outcome."
        => |s| each(by_word(&s.figures.upload_ends, UploadEnd::as_str));
}

fn tiers(s: &WriteBackFigures, read: fn(&TierStatus) -> u64) -> Vec<Sample> {
    each(s.tiers.iter().map(|tier| (&*tier.name, read(tier))))
}

fn tier_page(tier: &TierStatus) -> TierPage {
    TierPage {
        name: tier.name.to_string(),
        reachable: tier.is_reachable,
        objects: tier.objects,
        bytes: tier.bytes,
        capacity_bytes: tier.capacity_bytes,
        uploads: tier.uploads,
        upload_bytes: tier.survey.upload_bytes,
        without_rule: tier.survey.uncovered,
        registry_bytes: tier.registry.map(|room| room.used_bytes),
        registry_quota_bytes: tier.registry.map(|room| room.quota_bytes),
        oldest_seconds: tier.oldest.map(|age| age.as_secs()),
        age_seconds: tier.pace.age.as_secs(),
        short_age_seconds: tier.pace.short_age.as_secs(),
        parallel: tier.pace.parallel,
        adopted_nodes: tier.adopted,
        failed: tier.failed.len(),
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
