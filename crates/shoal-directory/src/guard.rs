//! Bounds the response time of a directory, and stops sending requests to one that does not answer.

mod extensions;
mod looks;
mod names;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_base::clock;
use shoal_policy::circuit_breaker::CircuitBreaker;
use shoal_policy::{BlockId, NodeId};
use tokio::task::yield_now;
use tokio::time::timeout;

use self::looks::{Looks, Part};
use crate::{Directory, Entry, Group, Left, Located, NodeState, Silent};

/// The maximum pause between two probes of a directory that does not answer. Shorter than for a peer, because
/// all nodes share one directory, and without it several nodes may fetch the same block from the lake.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// The timeout of requests for which no reader waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// A directory with a timeout and a circuit breaker.
#[derive(Debug)]
pub struct Guard {
    directory: Arc<dyn Directory>,
    timeout: Duration,
    breaker: Mutex<CircuitBreaker>,
    /// True if the last request was not answered.
    is_silent: AtomicBool,
    /// True if reports may have been lost since the node last started to report everything.
    has_lost_reports: AtomicBool,
    counters: [Counters; Kind::ALL.len()],
    looks: Looks,
    presence: OnceLock<Listener>,
}

/// Called with the blocks of a group that other nodes hold.
struct Listener(Box<dyn Fn(Group, u32) + Send + Sync>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listener").finish_non_exhaustive()
    }
}

/// A kind of request to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A reader waits for the answer.
    Look,
    /// A node reports the blocks that it holds, or repairs an entry.
    Report,
    /// A node renews a marker.
    Mark,
    /// A node asks before it evicts copies.
    Leave,
    /// A node sends its state and receives those of the others.
    Exchange,
    /// A reader asks whether a name may have changed.
    Token,
    /// A node reports a change of a name.
    Change,
    /// A node announces that it reports all its changes, and learns which others do.
    Attend,
    /// A node stores or removes an extension, or reads the stored ones.
    Extension,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Look,
        Self::Report,
        Self::Mark,
        Self::Leave,
        Self::Exchange,
        Self::Token,
        Self::Change,
        Self::Attend,
        Self::Extension,
    ];

    /// Returns true if a longer timeout applies, because no reader waits for the answer.
    const fn is_patient(self) -> bool {
        matches!(self, Self::Change | Self::Attend | Self::Extension)
    }

    /// The name in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Report => "report",
            Self::Mark => "mark",
            Self::Leave => "leave",
            Self::Exchange => "exchange",
            Self::Token => "token",
            Self::Change => "change",
            Self::Attend => "attend",
            Self::Extension => "extension",
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    answered: AtomicU64,
    silent: AtomicU64,
    held_back: AtomicU64,
    answer_micros: AtomicU64,
}

/// The requests of one kind since the start of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were answered.
    pub answered: u64,
    /// Requests that failed, or were not answered in time.
    pub silent: u64,
    /// Requests that were not sent because the circuit breaker was open.
    pub held_back: u64,
    /// The total time of answered requests.
    pub answer_time: Duration,
}

impl Guard {
    /// Wraps a directory; requests for which a reader waits time out after `timeout`.
    pub fn new(directory: Arc<dyn Directory>, timeout: Duration) -> Self {
        Self {
            directory,
            timeout,
            breaker: Mutex::new(CircuitBreaker::new(PROBE_PAUSE_MAX)),
            is_silent: AtomicBool::new(false),
            has_lost_reports: AtomicBool::new(false),
            counters: Default::default(),
            looks: Looks::default(),
            presence: OnceLock::new(),
        }
    }

    /// Calls `listener` for each answer that reports which blocks of a group other nodes hold. It must not
    /// block. Later calls of `listen` have no effect.
    pub fn listen(&self, listener: impl Fn(Group, u32) + Send + Sync + 'static) {
        let _ = self.presence.set(Listener(Box::new(listener)));
    }

    fn report_presence(&self, group: Group, elsewhere: u32) {
        if let Some(Listener(listener)) = self.presence.get() {
            listener(group, elsewhere);
        }
    }

    /// Returns true if the directory answered the last request.
    pub fn answers(&self) -> bool {
        !self.is_silent.load(Ordering::Relaxed)
    }

    /// The requests of each kind so far.
    pub fn counts(&self) -> [(Kind, Counts); Kind::ALL.len()] {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Kind::ALL.map(|kind| {
            let counters = &self.counters[kind as usize];
            let counts = Counts {
                answered: load(&counters.answered),
                silent: load(&counters.silent),
                held_back: load(&counters.held_back),
                answer_time: Duration::from_micros(load(&counters.answer_micros)),
            };
            (kind, counts)
        })
    }

    /// As [`Directory::locate`], for one block. Concurrent look-ups of a node in one group are combined into
    /// one request.
    ///
    /// # Errors
    ///
    /// The directory does not answer.
    pub async fn locate(&self, me: NodeId, block: BlockId, without: &[NodeId]) -> Result<Located, Silent> {
        let group = Group::containing(block);
        if !without.is_empty() {
            let located = self.locate_all(me, group, &[block.index], without).await?;
            return Ok(located.into_iter().next().expect("one answer about one block"));
        }
        loop {
            match self.looks.join(me, group, block.index) {
                Part::Follower(answer) => {
                    // If the leader was dropped, this look-up starts again.
                    if let Ok(answer) = answer.await {
                        return answer;
                    }
                }
                Part::Leader(leader) => {
                    yield_now().await;
                    let look = leader.close();
                    let located = self.locate_all(me, group, look.indexes(), &[]).await;
                    return look.share(located);
                }
            }
        }
    }

    async fn locate_all(
        &self,
        me: NodeId,
        group: Group,
        indexes: &[u32],
        without: &[NodeId],
    ) -> Result<Vec<Located>, Silent> {
        let asked = self.directory.locate(me, group, indexes, without);
        let located = self.ask(Kind::Look, asked).await?;
        if located.each.len() == indexes.len() {
            self.report_presence(group, located.elsewhere);
            Ok(located.each)
        } else {
            Err(Silent("it has not answered about each block".into()))
        }
    }

    /// Renews the claims of `node` to blocks of a group that it is fetching, given by their index in the
    /// version. If another node has claimed one of them since, both fetch it.
    ///
    /// # Errors
    ///
    /// The directory does not answer. The node reports everything again once it does.
    pub async fn claim(&self, node: NodeId, group: Group, indexes: &[u32]) -> Result<(), Silent> {
        let claimed = self.directory.locate(node, group, indexes, &[]);
        let claimed = self.ask(Kind::Report, claimed).await;
        self.note_report(claimed.map(drop))
    }

    /// As [`Directory::held`].
    ///
    /// # Errors
    ///
    /// The directory does not answer. The node reports everything again once it does.
    pub async fn held(&self, node: NodeId, group: Group, indexes: &[u32]) -> Result<(), Silent> {
        let report = self.directory.held(node, group, indexes);
        let reported = self.ask(Kind::Report, report).await;
        self.note_report(reported)
    }

    /// As [`Directory::dropped`].
    ///
    /// # Errors
    ///
    /// The directory does not answer. The node that finds the wrong entry repairs it.
    pub async fn dropped(&self, node: NodeId, group: Group, indexes: &[u32]) -> Result<(), Silent> {
        let report = self.directory.dropped(node, group, indexes);
        self.ask(Kind::Report, report).await
    }

    /// As [`Directory::used`].
    ///
    /// # Errors
    ///
    /// The directory does not answer. The uses are lost.
    pub async fn used(&self, group: Group, uses: &[(u32, u64)]) -> Result<(), Silent> {
        self.ask(Kind::Report, self.directory.used(group, uses)).await
    }

    /// As [`Directory::leave`].
    ///
    /// # Errors
    ///
    /// The directory does not answer, or not for every copy.
    pub async fn leave(
        &self,
        node: NodeId,
        group: Group,
        leaving: &[(u32, u64)],
    ) -> Result<Vec<Left>, Silent> {
        let asked = self.directory.leave(node, group, leaving);
        let left = self.ask(Kind::Leave, asked).await?;
        if left.each.len() == leaving.len() {
            self.report_presence(group, left.elsewhere);
            Ok(left.each)
        } else {
            Err(Silent("it has not answered about each copy".into()))
        }
    }

    /// As [`Directory::take`].
    ///
    /// # Errors
    ///
    /// The directory does not answer. The weights may then count twice, on the node and in the directory.
    pub async fn take(&self, group: Group, weights: &[(u32, u64)]) -> Result<(), Silent> {
        self.ask(Kind::Leave, self.directory.take(group, weights)).await
    }

    /// As [`Directory::entry`].
    ///
    /// # Errors
    ///
    /// The directory does not answer.
    pub async fn entry(&self, block: BlockId) -> Result<Entry, Silent> {
        self.ask(Kind::Look, self.directory.entry(block)).await
    }

    /// As [`Directory::exchange`].
    ///
    /// # Errors
    ///
    /// The directory does not answer.
    pub async fn exchange(&self, mine: NodeState) -> Result<Vec<NodeState>, Silent> {
        self.ask(Kind::Exchange, self.directory.exchange(mine)).await
    }

    /// As [`Directory::mark`].
    ///
    /// # Errors
    ///
    /// The directory does not answer.
    pub async fn mark(&self, node: NodeId, marker: u16) -> Result<bool, Silent> {
        self.ask(Kind::Mark, self.directory.mark(node, marker)).await
    }

    /// Records that a report did not reach the directory.
    pub(crate) fn lost_report(&self) {
        self.has_lost_reports.store(true, Ordering::Relaxed);
    }

    /// Returns true if reports were lost since the last call.
    pub(crate) fn take_lost_reports(&self) -> bool {
        self.has_lost_reports.swap(false, Ordering::Relaxed)
    }

    fn note_report(&self, reported: Result<(), Silent>) -> Result<(), Silent> {
        reported.inspect_err(|_| self.lost_report())
    }

    async fn ask<A>(
        &self,
        kind: Kind,
        question: impl Future<Output = Result<A, Silent>>,
    ) -> Result<A, Silent> {
        let counters = &self.counters[kind as usize];
        let began = clock::instant();
        {
            let mut breaker = self.breaker.lock();
            if !breaker.is_reachable(began) {
                counters.held_back.fetch_add(1, Ordering::Relaxed);
                return Err(Silent("earlier requests were not answered".into()));
            }
            breaker.sending(began);
        }
        let patience = if kind.is_patient() { PATIENCE } else { self.timeout };
        let answer = match timeout(patience, question).await {
            Ok(answer) => answer,
            Err(_) => Err(Silent(format!("no answer within {patience:?}"))),
        };
        let now = clock::instant();
        match &answer {
            Ok(_) => {
                self.breaker.lock().succeeded();
                let took = now.saturating_duration_since(began);
                let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                counters.answer_micros.fetch_add(micros, Ordering::Relaxed);
                counters.answered.fetch_add(1, Ordering::Relaxed);
                if self.is_silent.swap(false, Ordering::Relaxed) {
                    tracing::info!("the directory answers again");
                }
            }
            Err(error) => {
                self.breaker.lock().failed(now);
                counters.silent.fetch_add(1, Ordering::Relaxed);
                if !self.is_silent.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "blocks are found by their homes until the directory answers");
                }
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt;
    use futures_util::future::{BoxFuture, join_all};
    use shoal_policy::{ObjectId, VersionId};

    use super::*;
    use crate::extensions::{Extension, Extensions};
    use crate::names::{Change, DirectoryTime, Names, Presence, Promoted, Roll, Token};
    use crate::{Answers, GROUP_BLOCKS};

    const TIMEOUT: Duration = Duration::from_millis(20);
    const BLOCK: BlockId = BlockId {
        version: VersionId([7; 16]),
        index: 0,
    };

    /// Answers as a test wants.
    #[derive(Debug, Default)]
    struct Fickle {
        hangs: AtomicBool,
        fails: AtomicBool,
        asked: AtomicU64,
    }

    impl Fickle {
        fn answer<A: Send + 'static>(&self, answer: A) -> BoxFuture<'_, Result<A, Silent>> {
            async move {
                self.asked.fetch_add(1, Ordering::Relaxed);
                if self.hangs.load(Ordering::Relaxed) {
                    pending::<()>().await;
                }
                if self.fails.load(Ordering::Relaxed) {
                    return Err(Silent("it is full".into()));
                }
                Ok(answer)
            }
            .boxed()
        }
    }

    impl Names for Fickle {
        fn token(&self, _: ObjectId, _: Token) -> BoxFuture<'_, Result<Option<Token>, Silent>> {
            self.answer(None)
        }

        fn begin(&self, _: ObjectId, _: Change, _: Token) -> BoxFuture<'_, Result<Option<Promoted>, Silent>> {
            self.answer(None)
        }

        fn end(&self, _: ObjectId, _: Change) -> BoxFuture<'_, Result<(), Silent>> {
            self.answer(())
        }

        fn attend(&self, mine: Presence, _: Option<DirectoryTime>) -> BoxFuture<'_, Result<Roll, Silent>> {
            self.answer(Roll {
                at: DirectoryTime(0),
                present: vec![mine],
            })
        }
    }

    impl Extensions for Fickle {
        fn extend<'a>(
            &'a self,
            _: Group,
            _: &'a Extension,
            _: Duration,
        ) -> BoxFuture<'a, Result<bool, Silent>> {
            self.answer(true)
        }

        fn retract<'a>(&'a self, _: Group, _: &'a str) -> BoxFuture<'a, Result<(), Silent>> {
            self.answer(())
        }

        fn extensions(&self, _: Group) -> BoxFuture<'_, Result<Vec<Extension>, Silent>> {
            self.answer(Vec::new())
        }
    }

    impl Directory for Fickle {
        fn locate<'a>(
            &'a self,
            _: NodeId,
            _: Group,
            indexes: &'a [u32],
            _: &'a [NodeId],
        ) -> BoxFuture<'a, Result<Answers<Located>, Silent>> {
            // Each answer identifies its block.
            let each = indexes
                .iter()
                .map(|index| Located::Claimed(NodeId((*index).into())));
            self.answer(Answers {
                each: each.collect(),
                elsewhere: 0,
            })
        }

        fn held<'a>(&'a self, _: NodeId, _: Group, _: &'a [u32]) -> BoxFuture<'a, Result<(), Silent>> {
            self.answer(())
        }

        fn dropped<'a>(&'a self, _: NodeId, _: Group, _: &'a [u32]) -> BoxFuture<'a, Result<(), Silent>> {
            self.answer(())
        }

        fn used<'a>(&'a self, _: Group, _: &'a [(u32, u64)]) -> BoxFuture<'a, Result<(), Silent>> {
            self.answer(())
        }

        fn leave<'a>(
            &'a self,
            _: NodeId,
            _: Group,
            _: &'a [(u32, u64)],
        ) -> BoxFuture<'a, Result<Answers<Left>, Silent>> {
            self.answer(Answers {
                each: vec![Left::Copied],
                elsewhere: 0,
            })
        }

        fn take<'a>(&'a self, _: Group, _: &'a [(u32, u64)]) -> BoxFuture<'a, Result<(), Silent>> {
            self.answer(())
        }

        fn entry(&self, _: BlockId) -> BoxFuture<'_, Result<Entry, Silent>> {
            self.answer(Entry::default())
        }

        fn exchange(&self, mine: NodeState) -> BoxFuture<'_, Result<Vec<NodeState>, Silent>> {
            self.answer(vec![mine])
        }

        fn mark(&self, _: NodeId, _: u16) -> BoxFuture<'_, Result<bool, Silent>> {
            self.answer(true)
        }
    }

    async fn locate(guard: &Guard) -> bool {
        guard.locate(NodeId(1), BLOCK, &[]).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_directory_that_hangs_is_given_up_in_time_and_then_left_alone() {
        let fickle = Arc::new(Fickle::default());
        let guard = Guard::new(Arc::clone(&fickle) as Arc<dyn Directory>, TIMEOUT);
        assert!(locate(&guard).await && guard.answers());
        fickle.hangs.store(true, Ordering::Relaxed);
        for _ in 0..10 {
            assert!(!locate(&guard).await);
        }
        assert!(!guard.answers());
        let [(Kind::Look, counts), ..] = guard.counts() else {
            unreachable!("looks are the first kind");
        };
        assert_eq!((counts.answered, counts.silent, counts.held_back), (1, 3, 7));
        assert_eq!(fickle.asked.load(Ordering::Relaxed), 4, "it is asked no more");
    }

    #[tokio::test]
    async fn looks_of_one_moment_at_one_group_are_one_request() {
        let fickle = Arc::new(Fickle::default());
        let guard = Guard::new(Arc::clone(&fickle) as Arc<dyn Directory>, TIMEOUT);
        let look = |index| {
            let block = BlockId { index, ..BLOCK };
            guard.locate(NodeId(1), block, &[])
        };
        let located = join_all([5, 3, 3, GROUP_BLOCKS].map(look)).await;
        let expected = [5, 3, 3, GROUP_BLOCKS].map(|index| Ok(Located::Claimed(NodeId(index.into()))));
        assert_eq!(located, expected);
        assert_eq!(fickle.asked.load(Ordering::Relaxed), 2, "two groups");
        look(7).await.unwrap();
        assert_eq!(fickle.asked.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_whose_leader_is_dropped_is_made_again() {
        for polls in 1..=2 {
            let fickle = Arc::new(Fickle::default());
            let guard = Guard::new(Arc::clone(&fickle) as Arc<dyn Directory>, TIMEOUT);
            fickle.hangs.store(true, Ordering::Relaxed);
            let mut leader = Box::pin(guard.locate(NodeId(1), BLOCK, &[]));
            for _ in 0..polls {
                assert!((&mut leader).now_or_never().is_none());
            }
            let mut follower = Box::pin(guard.locate(NodeId(1), BlockId { index: 1, ..BLOCK }, &[]));
            assert!((&mut follower).now_or_never().is_none());
            fickle.hangs.store(false, Ordering::Relaxed);
            drop(leader);
            assert_eq!(follower.await, Ok(Located::Claimed(NodeId(1))));
        }
    }

    #[tokio::test]
    async fn an_answer_about_fewer_copies_than_were_asked_about_is_none() {
        let guard = Guard::new(Arc::new(Fickle::default()), TIMEOUT);
        let leave = |copies| guard.leave(NodeId(1), Group::containing(BLOCK), copies);
        assert_eq!(leave(&[(0, 1)]).await, Ok(vec![Left::Copied]));
        leave(&[(0, 1), (1, 1)]).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_report_that_is_lost_is_told() {
        let fickle = Arc::new(Fickle::default());
        let guard = Guard::new(Arc::clone(&fickle) as Arc<dyn Directory>, TIMEOUT);
        let held = || guard.held(NodeId(1), Group::containing(BLOCK), &[0]);
        held().await.unwrap();
        assert!(!guard.take_lost_reports());
        fickle.fails.store(true, Ordering::Relaxed);
        held().await.unwrap_err();
        assert!(guard.take_lost_reports());
        assert!(!guard.take_lost_reports());
    }
}
