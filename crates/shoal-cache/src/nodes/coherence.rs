//! Freshness `coherent`: the directory tracks whether a name may have changed since the lake was last asked,
//! so that a warm read sends no request to the lake (decision 0031).
//!
//! - A read fetches the name's token before it asks the lake, and stores the answer with that token
//!   ([`Coherence::tokens`]).
//! - A write is reported to the directory before it is sent to the lake, and again when it has finished
//!   ([`Coherence::begin`]).
//!
//! [`Attachment`] decides when the directory can be trusted, and how long a write that cannot be reported is
//! delayed.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_base::chance;
use shoal_directory::attachment::{ATTEND_PAUSE, Attachment, RENEWAL_PAUSE, REPORT_TIMEOUT};
use shoal_directory::guard::Kind;
use shoal_directory::names::{CHANGE_LIFE, Change, Promoted, Token, Tokens};
use shoal_net::clock;
use shoal_net::membership::Member;
use shoal_net::metrics::{Counts, WordCounts};
use shoal_net::pauses::ticks;
use shoal_net::shutdown::Shutdown;
use shoal_net::words;
use shoal_policy::{NodeId, ObjectId};
use shoal_s3::object::ObjectName;
use shoal_s3::operation::{Classified, Effect};
use tokio::time::timeout;

use crate::grants::freshness::{FreshnessConfig, FreshnessRules};
use crate::nodes::cooperation::Cooperation;
use crate::nodes::directory::BlockDirectory;

/// Pause between attempts to report a change to the directory.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// Invalidates remembered answers of the lake when any node changes the object.
pub struct Coherence {
    lake: String,
    rules: FreshnessRules,
    directory: Arc<BlockDirectory>,
    cooperation: Arc<Cooperation>,
    attachment: Mutex<Attachment>,
    under_way: Mutex<HashMap<Change, UnderWay>>,
    looks: Counts<Look>,
    waits: AtomicU64,
}

words! {
    /// Result of looking up the tokens of a name.
    pub enum Look {
        /// No change is pending.
        Settled = "settled",
        /// A change may be pending.
        Unsettled = "unsettled",
        /// The directory did not answer in time.
        Silent = "silent",
        /// This node or another is detached, so the directory may have missed a change.
        NodeAbsent = "node-absent",
    }
}

/// State and counters of coherence, for operators.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CoherenceFigures {
    /// True if this node reports its changes to the directory.
    pub attached: bool,
    /// The names of other nodes that do not, as far as this one knows.
    pub absent: Vec<String>,
    /// Changes that may still take effect.
    pub changes_under_way: usize,
    /// Changes that were delayed before they were sent to the lake.
    pub waits: u64,
    /// Token lookups, by result.
    pub looks: WordCounts,
}

#[derive(Clone, Debug)]
struct UnderWay {
    names: Vec<ObjectId>,
    /// When a change of unknown outcome is considered finished.
    until: Option<Instant>,
}

/// A change that may take effect at the lake. If it is dropped without being [ended](Self::end), it remains
/// pending for another [`CHANGE_LIFE`].
pub struct ChangeUnderWay {
    coherence: Arc<Coherence>,
    change: Change,
}

impl Coherence {
    /// Creates the coherence of nodes that share a directory. Returns `None` if no object is coherent.
    pub fn new(
        config: &FreshnessConfig,
        lake: &str,
        directory: &Arc<BlockDirectory>,
        cooperation: &Arc<Cooperation>,
    ) -> Option<Arc<Self>> {
        if !config.has_coherent() {
            return None;
        }
        let attachment = Attachment::new(cooperation.me, digest(config), clock::instant());
        Some(Arc::new(Self {
            lake: lake.into(),
            rules: FreshnessRules::new(config),
            directory: Arc::clone(directory),
            cooperation: Arc::clone(cooperation),
            attachment: Mutex::new(attachment),
            under_way: Mutex::default(),
            looks: Counts::default(),
            waits: AtomicU64::new(0),
        }))
    }

    /// Announces that this node is attached, and renews its pending changes, until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        let attending = async {
            loop {
                let was_attached = self.attachment.lock().is_attached();
                self.attend().await;
                if was_attached || !self.attachment.lock().is_attached() {
                    tokio::time::sleep(ATTEND_PAUSE).await;
                }
            }
        };
        let renewing = async {
            let mut pause = ticks(RENEWAL_PAUSE);
            loop {
                pause.tick().await;
                self.renew().await;
            }
        };
        let working = async {
            tokio::join!(attending, renewing);
        };
        stopping.limits(working).await;
    }

    /// Returns the current tokens of an object. `None` means that remembered answers of the lake must not be
    /// used, and that an answer requested now must not be reused later.
    pub async fn tokens(&self, name: &ObjectName) -> Option<Tokens> {
        let looked = self.look(name).await;
        self.looks.count(*looked.as_ref().err().unwrap_or(&Look::Settled));
        looked.ok()
    }

    async fn look(&self, name: &ObjectName) -> Result<Tokens, Look> {
        if !self.attachment.lock().may_use_tokens(clock::instant()) {
            return Err(Look::NodeAbsent);
        }
        let guard = &self.directory.guard;
        let token = |name| guard.ask(Kind::Token, move |directory| directory.token(name, fresh()));
        let (object, bucket) = tokio::join!(token(self.object(name)), token(self.bucket(&name.bucket)));
        match (object, bucket) {
            (Ok(Some(object)), Ok(Some(bucket))) => Ok(Tokens { object, bucket }),
            (Ok(_), Ok(_)) => Err(Look::Unsettled),
            (Err(_), _) | (_, Err(_)) => Err(Look::Silent),
        }
    }

    /// Returns the names to report to the directory before this request is sent to the lake.
    pub fn changed_by(&self, classified: &Classified) -> Vec<ObjectId> {
        match (classified.effect, &classified.object, &classified.bucket) {
            (Effect::Object, Some(name), _) => {
                let is_coherent = self.rules.is_coherent(name);
                is_coherent.then(|| self.object(name)).into_iter().collect()
            }
            (Effect::Bucket, _, Some(bucket)) => {
                let has_coherent = self.rules.has_coherent_in(bucket);
                has_coherent.then(|| self.bucket(bucket)).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Reports to the directory that names may change, and waits until the change may be sent to the lake. If
    /// the directory is unreachable, this waits once, for up to
    /// [`NOTICED`](shoal_directory::attachment::NOTICED).
    pub async fn begin(self: &Arc<Self>, names: Vec<ObjectId>) -> ChangeUnderWay {
        let change = Change(chance::bits());
        let under_way = UnderWay {
            names: names.clone(),
            until: None,
        };
        self.under_way.lock().insert(change, under_way);
        let begun = ChangeUnderWay {
            coherence: Arc::clone(self),
            change,
        };
        if self.attachment.lock().may_change_before_report(clock::instant()) {
            let coherence = Arc::clone(self);
            tokio::spawn(async move { drop(coherence.report(change, &names).await) });
            return begun;
        }
        let reported = self.report(change, &names).await;
        let now = clock::instant();
        let may_change_at = {
            let mut attachment = self.attachment.lock();
            match reported {
                Some(servers) => {
                    let times = servers
                        .into_iter()
                        .map(|server| attachment.may_change_at(server, now));
                    times.max().unwrap_or(now)
                }
                None => attachment.may_change_unreported_at(now),
            }
        };
        let wait = may_change_at.saturating_duration_since(now);
        if !wait.is_zero() {
            self.waits.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(wait).await;
        }
        begun
    }

    /// Returns the state and the counters.
    pub fn figures(&self) -> CoherenceFigures {
        let (attached, absent) = {
            let attachment = self.attachment.lock();
            (attachment.is_attached(), attachment.absent().to_vec())
        };
        let name = |node: NodeId| {
            self.cooperation
                .name_of(node)
                .unwrap_or_else(|| format!("{:016x}", node.0))
        };
        CoherenceFigures {
            attached,
            absent: absent.into_iter().map(name).collect(),
            changes_under_way: self.under_way.lock().len(),
            waits: self.waits.load(Ordering::Relaxed),
            looks: self.looks.by_word(),
        }
    }

    async fn attend(&self) {
        let asked_at = clock::instant();
        let (mine, at) = self.attachment.lock().presence(asked_at);
        let guard = &self.directory.guard;
        let attended = guard.ask(Kind::Attend, |directory| directory.attend(mine, at));
        if let Ok(roll) = attended.await {
            let (members, me) = (self.cooperation.members(), self.cooperation.me);
            let others = members.iter().map(Member::id).filter(|id| *id != me);
            let mut attachment = self.attachment.lock();
            let was_attached = attachment.is_attached();
            attachment.record_roll(&roll, others, asked_at, clock::instant());
            if !was_attached && attachment.is_attached() {
                tracing::info!("changes of coherent objects are reported to the directory");
            }
        }
    }

    /// Reports each pending change again, because the directory may have lost it.
    async fn renew(&self) {
        let now = clock::instant();
        let under_way: Vec<_> = {
            let mut under_way = self.under_way.lock();
            under_way.retain(|_, change| change.until.is_none_or(|until| until > now));
            let changes = under_way.iter();
            changes
                .map(|(change, under_way)| (*change, under_way.names.clone()))
                .collect()
        };
        let reported = under_way
            .iter()
            .map(|(change, names)| self.report(*change, names));
        join_all(reported).await;
    }

    /// Reports to the directory that a change may take effect. Returns the servers that acknowledged it, or
    /// `None`: the node is then detached.
    async fn report(&self, change: Change, names: &[ObjectId]) -> Option<Vec<Option<Promoted>>> {
        let reported = join_all(names.iter().map(|name| self.report_name(*name, change)));
        if let Ok(servers) = timeout(REPORT_TIMEOUT, reported).await {
            return Some(servers);
        }
        let mut attachment = self.attachment.lock();
        if attachment.is_attached() {
            tracing::warn!(
                "changes cannot be reported to the directory: reads of coherent objects ask the lake until they can"
            );
        }
        attachment.failed(clock::instant());
        None
    }

    /// Reports a change of one name, retrying until the directory answers.
    async fn report_name(&self, name: ObjectId, change: Change) -> Option<Promoted> {
        loop {
            let guard = &self.directory.guard;
            let reported = guard.ask(Kind::Change, |directory| directory.begin(name, change, fresh()));
            match reported.await {
                Ok(server) => return server,
                Err(_) => tokio::time::sleep(TRY_AGAIN).await,
            }
        }
    }

    fn object(&self, name: &ObjectName) -> ObjectId {
        let current = ObjectName {
            version: None,
            ..name.clone()
        };
        current.id(&self.lake)
    }

    /// Returns the id that stands for all objects of a bucket. No object has an empty key.
    fn bucket(&self, bucket: &str) -> ObjectId {
        let all = ObjectName {
            bucket: bucket.into(),
            key: [].as_slice().into(),
            version: None,
        };
        all.id(&self.lake)
    }
}

impl ChangeUnderWay {
    /// Marks the change as finished, in effect or failed. The directory is updated in the background.
    pub fn end(self) {
        let (coherence, change) = (Arc::clone(&self.coherence), self.change);
        let ended = coherence.under_way.lock().remove(&change);
        tokio::spawn(async move {
            for name in ended.into_iter().flat_map(|ended| ended.names) {
                // If this fails, the change expires by itself.
                let guard = &coherence.directory.guard;
                let _ = guard
                    .ask(Kind::Change, |directory| directory.end(name, change))
                    .await;
            }
        });
    }
}

impl Drop for ChangeUnderWay {
    fn drop(&mut self) {
        // A change that has ended is not among them.
        if let Some(under_way) = self.coherence.under_way.lock().get_mut(&self.change) {
            under_way.until = Some(clock::instant() + CHANGE_LIFE);
        }
    }
}

fn fresh() -> Token {
    Token(chance::bits())
}

/// Returns a digest of the freshness rules: nodes with the same rules have the same digest.
fn digest(config: &FreshnessConfig) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{config:?}").hash(&mut hasher);
    hasher.finish()
}
