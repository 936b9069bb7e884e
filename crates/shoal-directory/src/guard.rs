//! Bounds the response time of a directory, and stops sending requests to one that does not answer.

mod looks;
mod requests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use shoal_policy::{BlockId, NodeId};
use tokio::task::yield_now;

use self::looks::{Looks, Part};
pub use self::requests::{Counts, Kind, Requests};
use crate::{Answers, Directory, Group, Left, Located, Silent};

/// A directory with a timeout and a circuit breaker.
pub struct Guard {
    directory: Arc<dyn Directory>,
    /// The requests so far.
    pub requests: Requests,
    /// True if reports may have been lost since the node last started to report everything.
    has_lost_reports: AtomicBool,
    /// Reports that wait or whose requests are under way.
    pub(crate) reports_under_way: AtomicU64,
    looks: Looks,
    presence: OnceLock<Listener>,
}

/// Receives the blocks of a group that other nodes hold.
type Listener = Box<dyn Fn(Group, u32) + Send + Sync>;

impl Guard {
    /// Wraps a directory; requests for which a reader waits time out after `timeout`.
    pub fn new(directory: Arc<dyn Directory>, timeout: Duration) -> Self {
        Self {
            directory,
            requests: Requests::new(timeout),
            has_lost_reports: AtomicBool::new(false),
            reports_under_way: AtomicU64::new(0),
            looks: Looks::default(),
            presence: OnceLock::new(),
        }
    }

    /// Calls `listener` for each answer that reports which blocks of a group other nodes hold. It must not
    /// block. Later calls of `listen` have no effect.
    pub fn listen(&self, listener: impl Fn(Group, u32) + Send + Sync + 'static) {
        let _ = self.presence.set(Box::new(listener));
    }

    /// Sends a request of this kind, unless the directory has not answered earlier ones, and waits for its
    /// answer.
    ///
    /// # Errors
    ///
    /// The directory does not answer. It may have received the request.
    pub async fn ask<'a, A>(
        &'a self,
        kind: Kind,
        question: impl FnOnce(&'a dyn Directory) -> BoxFuture<'a, Result<A, Silent>>,
    ) -> Result<A, Silent> {
        self.requests.ask(kind, question(&*self.directory)).await
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
        let located = self
            .ask(Kind::Look, |directory| {
                directory.locate(me, group, indexes, without)
            })
            .await?;
        self.complete(
            group,
            located,
            indexes.len(),
            "it has not answered about each block",
        )
    }

    /// Sends a report. If it does not reach the directory, the node reports everything again.
    ///
    /// # Errors
    ///
    /// The directory does not answer.
    pub(crate) async fn report<'a, A>(
        &'a self,
        report: impl FnOnce(&'a dyn Directory) -> BoxFuture<'a, Result<A, Silent>>,
    ) -> Result<(), Silent> {
        let reported = self.ask(Kind::Report, report).await;
        reported.map(drop).inspect_err(|_| self.lost_report())
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
        let left = self
            .ask(Kind::Leave, |directory| directory.leave(node, group, leaving))
            .await?;
        self.complete(group, left, leaving.len(), "it has not answered about each copy")
    }

    /// Passes on which blocks of a group other nodes hold, and returns the answers about `asked` blocks.
    fn complete<A>(
        &self,
        group: Group,
        answers: Answers<A>,
        asked: usize,
        incomplete: &str,
    ) -> Result<Vec<A>, Silent> {
        if answers.each.len() != asked {
            return Err(Silent(incomplete.into()));
        }
        if let Some(listener) = self.presence.get() {
            listener(group, answers.elsewhere);
        }
        Ok(answers.each)
    }

    /// Returns the number of reports that wait or whose requests are under way.
    pub fn reports_under_way(&self) -> u64 {
        self.reports_under_way.load(Ordering::Relaxed)
    }

    /// Records that a report did not reach the directory.
    pub(crate) fn lost_report(&self) {
        self.has_lost_reports.store(true, Ordering::Relaxed);
    }

    /// Returns true if reports were lost since the last call.
    pub(crate) fn take_lost_reports(&self) -> bool {
        self.has_lost_reports.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::AtomicU64;

    use async_trait::async_trait;
    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use shoal_policy::{ObjectId, VersionId};

    use super::*;
    use crate::extensions::Extension;
    use crate::names::{Change, DirectoryTime, Presence, Promoted, Roll, Token};
    use crate::{Answers, Entry, GROUP_BLOCKS, NodeState};

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
        async fn answer<A: Send>(&self, answer: A) -> Result<A, Silent> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if self.hangs.load(Ordering::Relaxed) {
                pending::<()>().await;
            }
            if self.fails.load(Ordering::Relaxed) {
                return Err(Silent("it is full".into()));
            }
            Ok(answer)
        }
    }

    #[async_trait]
    impl Directory for Fickle {
        async fn locate(
            &self,
            _: NodeId,
            _: Group,
            indexes: &[u32],
            _: &[NodeId],
        ) -> Result<Answers<Located>, Silent> {
            // Each answer identifies its block.
            let each = indexes
                .iter()
                .map(|index| Located::Claimed(NodeId((*index).into())));
            self.answer(Answers {
                each: each.collect(),
                elsewhere: 0,
            })
            .await
        }

        async fn held(&self, _: NodeId, _: Group, _: &[u32]) -> Result<(), Silent> {
            self.answer(()).await
        }

        async fn dropped(&self, _: NodeId, _: Group, _: &[u32]) -> Result<(), Silent> {
            self.answer(()).await
        }

        async fn used(&self, _: Group, _: &[(u32, u64)]) -> Result<(), Silent> {
            self.answer(()).await
        }

        async fn leave(&self, _: NodeId, _: Group, _: &[(u32, u64)]) -> Result<Answers<Left>, Silent> {
            self.answer(Answers {
                each: vec![Left::Copied],
                elsewhere: 0,
            })
            .await
        }

        async fn take(&self, _: Group, _: &[(u32, u64)]) -> Result<(), Silent> {
            self.answer(()).await
        }

        async fn entry(&self, _: BlockId) -> Result<Entry, Silent> {
            self.answer(Entry::default()).await
        }

        async fn exchange(&self, mine: NodeState) -> Result<Vec<NodeState>, Silent> {
            self.answer(vec![mine]).await
        }

        async fn mark(&self, _: NodeId, _: u16) -> Result<bool, Silent> {
            self.answer(true).await
        }

        async fn token(&self, _: ObjectId, _: Token) -> Result<Option<Token>, Silent> {
            self.answer(None).await
        }

        async fn begin(&self, _: ObjectId, _: Change, _: Token) -> Result<Option<Promoted>, Silent> {
            self.answer(None).await
        }

        async fn end(&self, _: ObjectId, _: Change) -> Result<(), Silent> {
            self.answer(()).await
        }

        async fn attend(&self, mine: Presence, _: Option<DirectoryTime>) -> Result<Roll, Silent> {
            self.answer(Roll {
                at: DirectoryTime(0),
                present: vec![mine],
            })
            .await
        }

        async fn extend(&self, _: Group, _: &Extension, _: Duration) -> Result<bool, Silent> {
            self.answer(true).await
        }

        async fn extensions(&self, _: Group) -> Result<Vec<Extension>, Silent> {
            self.answer(Vec::new()).await
        }
    }

    async fn locate(guard: &Guard) -> bool {
        guard.locate(NodeId(1), BLOCK, &[]).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_directory_that_hangs_is_given_up_in_time_and_then_left_alone() {
        let fickle = Arc::new(Fickle::default());
        let guard = Guard::new(Arc::clone(&fickle) as Arc<dyn Directory>, TIMEOUT);
        assert!(locate(&guard).await && guard.requests.answers());
        fickle.hangs.store(true, Ordering::Relaxed);
        for _ in 0..10 {
            assert!(!locate(&guard).await);
        }
        assert!(!guard.requests.answers());
        let [(Kind::Look, counts), ..] = guard.requests.counts() else {
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
        let held = || guard.report(|directory| directory.held(NodeId(1), Group::containing(BLOCK), &[0]));
        held().await.unwrap();
        assert!(!guard.take_lost_reports());
        fickle.fails.store(true, Ordering::Relaxed);
        held().await.unwrap_err();
        assert!(guard.take_lost_reports());
        assert!(!guard.take_lost_reports());
    }
}
