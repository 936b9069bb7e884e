//! Freshness `coherent`: the directory says whether a name may have changed since the lake was asked, so that
//! a warm read asks the lake nothing (decision 0031).
//!
//! - A read asks for the name's token before it asks the lake, and keeps the answer with that token
//!   ([`Coherence::tokens`]).
//! - A write tells the directory before it goes to the lake, and when it is over ([`Coherence::begin`]).
//!
//! [`Attachment`] says when the directory can be believed, and how long a write that cannot be told waits.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use parking_lot::Mutex;
use shoal_base::chance;
use shoal_directory::Silent;
use shoal_directory::attachment::{ATTEND_PAUSE, Attachment, RENEWAL_PAUSE, TELL_PATIENCE};
use shoal_directory::names::{CHANGE_LIFE, Change, Promoted, Token, Tokens};
use shoal_policy::{NodeId, ObjectId};
use shoal_s3::object::ObjectName;
use shoal_s3::operation::{Classified, Effect};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::clock;
use crate::cooperation::Cooperation;
use crate::directory::BlockDirectory;
use crate::freshness::{FreshnessConfig, FreshnessRules};
use crate::membership::Member;
use crate::shutdown::Shutdown;

/// The pause between two tries to tell the directory of a change.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// Keeps the answers of the lake in step with the changes of all nodes.
#[derive(Debug)]
pub struct Coherence {
    lake: String,
    rules: FreshnessRules,
    directory: Arc<BlockDirectory>,
    cooperation: Arc<Cooperation>,
    attachment: Mutex<Attachment>,
    under_way: Mutex<HashMap<Change, UnderWay>>,
    looks: [AtomicU64; Look::ALL.len()],
    waits: AtomicU64,
}

/// The result of a read's look at the tokens of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// No change is under way.
    Settled,
    /// A change may be under way.
    Unsettled,
    /// The directory does not answer in time.
    Silent,
    /// A node is detached, so the directory may not know of its changes.
    Disbelieved,
}

impl Look {
    /// Every result.
    pub const ALL: [Self; 4] = [Self::Settled, Self::Unsettled, Self::Silent, Self::Disbelieved];

    /// The word in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Unsettled => "unsettled",
            Self::Silent => "silent",
            Self::Disbelieved => "disbelieved",
        }
    }
}

/// State and counters of coherence, for the pages of operators.
#[derive(Clone, Debug)]
pub struct CoherenceFigures {
    /// Whether this node tells the directory of its changes.
    pub attached: bool,
    /// Other nodes that do not, as far as this one has heard.
    pub absent: Vec<NodeId>,
    /// Changes that may still take effect.
    pub under_way: usize,
    /// Changes that had to wait before they went to the lake.
    pub waits: u64,
    /// Looks at tokens, by result.
    pub looks: [(Look, u64); Look::ALL.len()],
}

#[derive(Clone, Debug)]
struct UnderWay {
    names: Vec<ObjectId>,
    /// When a change whose end is not known is taken for over.
    until: Option<Instant>,
}

/// A change that may take effect at the lake. Unless it is [ended](Self::end), other nodes take it for
/// possible for [`CHANGE_LIFE`] after this is dropped.
#[derive(Debug)]
pub struct ChangeUnderWay {
    coherence: Arc<Coherence>,
    change: Change,
    is_ended: bool,
}

impl Coherence {
    /// Coherence by `config` among nodes that share a directory. `None` if no object is to be coherent.
    pub fn new(
        config: &FreshnessConfig,
        lake: &str,
        directory: &Arc<BlockDirectory>,
        cooperation: &Arc<Cooperation>,
    ) -> Option<Arc<Self>> {
        if !config.has_coherent() {
            return None;
        }
        let attachment = Attachment::new(cooperation.me(), digest(config), clock::instant());
        Some(Arc::new(Self {
            lake: lake.into(),
            rules: FreshnessRules::new(config),
            directory: Arc::clone(directory),
            cooperation: Arc::clone(cooperation),
            attachment: Mutex::new(attachment),
            under_way: Mutex::default(),
            looks: Default::default(),
            waits: AtomicU64::new(0),
        }))
    }

    /// Says that this node is present, and renews its changes, until the node stops.
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
            let mut pause = interval(RENEWAL_PAUSE);
            pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                pause.tick().await;
                self.renew().await;
            }
        };
        tokio::select! {
            () = attending => {}
            () = renewing => {}
            () = stopping.begun() => {}
        }
    }

    /// The tokens of an object now. `None` if an answer of the lake from before now proves nothing later, and
    /// none from earlier can be used.
    pub async fn tokens(&self, name: &ObjectName) -> Option<Tokens> {
        let looked = self.look(name).await;
        let look = *looked.as_ref().err().unwrap_or(&Look::Settled);
        self.looks[look as usize].fetch_add(1, Ordering::Relaxed);
        looked.ok()
    }

    async fn look(&self, name: &ObjectName) -> Result<Tokens, Look> {
        if !self.attachment.lock().believes(clock::instant()) {
            return Err(Look::Disbelieved);
        }
        let token = async |name| self.directory.guard().token(name, fresh()).await;
        let (object, bucket) = tokio::join!(token(self.object(name)), token(self.bucket(&name.bucket)));
        match (object, bucket) {
            (Ok(Some(object)), Ok(Some(bucket))) => Ok(Tokens { object, bucket }),
            (Ok(_), Ok(_)) => Err(Look::Unsettled),
            (Err(_), _) | (_, Err(_)) => Err(Look::Silent),
        }
    }

    /// The names to tell the directory of before this request goes to the lake.
    pub fn changed_by(&self, classified: &Classified) -> Vec<ObjectId> {
        match (classified.effect(), &classified.object, &classified.bucket) {
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

    /// Tells the directory that names may change, and waits until that may be. If the directory cannot be
    /// told, this takes up to [`NOTICED`](shoal_directory::attachment::NOTICED) once.
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
            is_ended: false,
        };
        if self.attachment.lock().need_not_tell_first(clock::instant()) {
            let coherence = Arc::clone(self);
            tokio::spawn(async move { drop(coherence.tell(change, &names).await) });
            return begun;
        }
        let told = self.tell(change, &names).await;
        let now = clock::instant();
        let may_change_at = {
            let mut attachment = self.attachment.lock();
            match told {
                Some(servers) => {
                    let times = servers
                        .into_iter()
                        .map(|server| attachment.may_change_at(server, now));
                    times.max().unwrap_or(now)
                }
                None => attachment.may_change_untold_at(now),
            }
        };
        let wait = may_change_at.saturating_duration_since(now);
        if !wait.is_zero() {
            self.waits.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(wait).await;
        }
        begun
    }

    /// How this node stands with the directory.
    pub fn figures(&self) -> CoherenceFigures {
        let (attached, absent) = {
            let attachment = self.attachment.lock();
            (attachment.is_attached(), attachment.absent().to_vec())
        };
        CoherenceFigures {
            attached,
            absent,
            under_way: self.under_way.lock().len(),
            waits: self.waits.load(Ordering::Relaxed),
            looks: Look::ALL.map(|look| (look, self.looks[look as usize].load(Ordering::Relaxed))),
        }
    }

    async fn attend(&self) {
        let asked_at = clock::instant();
        let (mine, at) = self.attachment.lock().presence(asked_at);
        if let Ok(roll) = self.directory.guard().attend(mine, at).await {
            let (members, me) = (self.cooperation.members(), self.cooperation.me());
            let others = members.iter().map(Member::id).filter(|id| *id != me);
            let mut attachment = self.attachment.lock();
            let was_attached = attachment.is_attached();
            attachment.heard(&roll, others, asked_at, clock::instant());
            if !was_attached && attachment.is_attached() {
                tracing::info!("the directory is told of changes of coherent objects");
            }
        }
    }

    /// Tells the directory of each change that is under way again: it may have forgotten them.
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
        let told = under_way.iter().map(|(change, names)| self.tell(*change, names));
        join_all(told).await;
    }

    /// Tells the directory that a change may take effect. Returns the servers that were told, or `None`: the
    /// node is then detached.
    async fn tell(&self, change: Change, names: &[ObjectId]) -> Option<Vec<Option<Promoted>>> {
        let told = join_all(names.iter().map(|name| self.tell_of(*name, change)));
        let told = match timeout(TELL_PATIENCE, told).await {
            Ok(servers) => return Some(servers),
            Err(_) => None,
        };
        let mut attachment = self.attachment.lock();
        if attachment.is_attached() {
            tracing::warn!(
                "the directory cannot be told of changes: reads of coherent objects ask the lake until it can"
            );
        }
        attachment.failed(clock::instant());
        told
    }

    /// Tries to tell the directory of a change of one name until it answers.
    async fn tell_of(&self, name: ObjectId, change: Change) -> Option<Promoted> {
        loop {
            let told: Result<_, Silent> = self.directory.guard().begin(name, change, fresh()).await;
            match told {
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

    /// Stands for all objects of a bucket. No object has an empty key.
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
    /// Notes that the change has taken effect, or never will. The directory hears of it in the background.
    pub fn end(mut self) {
        self.is_ended = true;
        let (coherence, change) = (Arc::clone(&self.coherence), self.change);
        let ended = coherence.under_way.lock().remove(&change);
        tokio::spawn(async move {
            for name in ended.into_iter().flat_map(|ended| ended.names) {
                // A change whose end is not told ends by itself.
                let _ = coherence.directory.guard().end(name, change).await;
            }
        });
    }
}

impl Drop for ChangeUnderWay {
    fn drop(&mut self) {
        if self.is_ended {
            return;
        }
        let until = clock::instant() + CHANGE_LIFE;
        if let Some(under_way) = self.coherence.under_way.lock().get_mut(&self.change) {
            under_way.until = Some(until);
        }
    }
}

fn fresh() -> Token {
    Token(chance::bits())
}

/// Stands for the rules of freshness: nodes with the same rules have the same digest.
fn digest(config: &FreshnessConfig) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{config:?}").hash(&mut hasher);
    hasher.finish()
}
