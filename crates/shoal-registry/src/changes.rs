//! The changes at the lake that this node has begun, and their definite ends.
//!
//! A change ends as *done* or *refused* when the lake has answered. If there is no response, or the node
//! drops the change, the lake may still carry it out within the *fence*. Only after that does the node's
//! [`worker`](crate::worker) give the change up, and the name is free for the next one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use scopeguard::ScopeGuard;
use shoal_base::send_permit::SendPermit;
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use crate::engine::Revision;
use crate::entry::Kind;
use crate::keys::Name;
pub use crate::names::ChangedObject;
use crate::names::{BeginError, BegunChange, ChangeError, End, Ended, Found, Names};
use crate::session::{Session, new_id};

/// How long a change waits for another one of the same name.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Pause between two reads of the entry of a busy name.
pub(crate) const LOOK_PAUSE: Duration = Duration::from_millis(30);

/// Pause before the end of a change is reported to the registry again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Begins changes at the lake on behalf of one node.
#[derive(Debug)]
pub struct Changes {
    pub(crate) names: Names,
    pub(crate) session: Arc<Session>,
    under_way: Mutex<HashSet<Ulid>>,
}

/// A change at the lake that has begun. No other node changes the name at the lake until it ends. If this is
/// dropped, its outcome counts as unknown.
#[derive(Debug)]
#[must_use]
pub struct LakeChange {
    changes: Arc<Changes>,
    begun: BegunChange,
    is_over: bool,
}

impl Changes {
    /// Creates changes that may begin while `session` lasts.
    pub fn new(names: Names, session: Arc<Session>) -> Self {
        Self {
            names,
            session,
            under_way: Mutex::default(),
        }
    }

    /// Begins a change of a name. `known` is a recently read entry of the name, if there is one. Waits up to
    /// `PATIENCE` for another change to end.
    ///
    /// # Errors
    ///
    /// The change has not begun, and nothing may be sent to the lake.
    pub async fn begin(
        self: &Arc<Self>,
        name: &Name,
        kind: Kind,
        of: ChangedObject,
        mut known: Option<Found>,
    ) -> Result<LakeChange, BeginError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.try_to_begin(name, kind, of, known.take()).await {
                Err(BeginError::Busy(_)) if Instant::now() < deadline => sleep(LOOK_PAUSE).await,
                outcome => return outcome,
            }
        }
    }

    /// As [`begin`](Self::begin), but does not wait for another change.
    pub(crate) async fn try_to_begin(
        self: &Arc<Self>,
        name: &Name,
        kind: Kind,
        of: ChangedObject,
        known: Option<Found>,
    ) -> Result<LakeChange, BeginError> {
        let owner = self.session.owner().ok_or(BeginError::NoSession)?;
        let token = new_id();
        let is_new = self.under_way.lock().insert(token);
        assert!(is_new, "each change has a token of its own");
        let not_begun = scopeguard::guard(token, |token| self.forget(token));
        let begun = self.names.begin(name, kind, of, owner, token, known).await?;
        ScopeGuard::into_inner(not_begun);
        Ok(LakeChange {
            changes: Arc::clone(self),
            begun,
            is_over: false,
        })
    }

    /// Returns true if this process will end the change with this `token`. Otherwise the change began in an
    /// earlier life, or its beginning was not confirmed.
    pub fn is_under_way(&self, token: Ulid) -> bool {
        self.under_way.lock().contains(&token)
    }

    fn forget(&self, token: Ulid) {
        let was_under_way = self.under_way.lock().remove(&token);
        debug_assert!(was_under_way, "a change ends once");
    }

    /// Records the end of a change in the registry, retrying until that succeeds.
    async fn record_end(&self, begun: &BegunChange, end: End) {
        while self.end(begun, end).await.is_err() {
            sleep(RETRY_PAUSE).await;
        }
        self.forget(begun.busy.token);
    }

    async fn end(&self, begun: &BegunChange, end: End) -> Result<Ended, ChangeError> {
        let lasts = || self.session.is_of(begun.busy.owner);
        self.names.end(begun, end, lasts).await
    }
}

impl LakeChange {
    /// The name that changes.
    pub fn name(&self) -> &Name {
        &self.begun.name
    }

    /// Returns the revision at which the change began. If the answer to that commit was lost, and the object
    /// was written again since, it is the revision of that write, which no later change has either.
    pub fn revision(&self) -> Revision {
        self.begun.revision()
    }

    /// Returns the permission to send the requests of this change.
    pub fn permit(&self) -> SendPermit {
        Self::permit_of_all([self])
    }

    /// Returns the permission to send a request that belongs to all these changes. They may have begun in
    /// different sessions, each of which must last.
    pub fn permit_of_all<'a>(changes: impl IntoIterator<Item = &'a Self>) -> SendPermit {
        let changes = changes.into_iter();
        let owners = changes.map(|change| (Arc::clone(&change.changes.session), change.begun.busy.owner));
        let mut owners: Vec<_> = owners.collect();
        owners.dedup_by_key(|(_, owner)| *owner);
        SendPermit::new(move || owners.iter().all(|(session, owner)| session.is_of(*owner)))
    }

    /// Ends the change as carried out by the lake.
    ///
    /// # Errors
    ///
    /// The registry could not record the end; the node keeps retrying. Or this node's session has ended, and
    /// another node may have done something else with the dirty object.
    pub async fn done(self) -> Result<(), ChangeError> {
        match self.over(End::Done).await? {
            Ended::Ended => Ok(()),
            Ended::TakenOver => Err(ChangeError::OutcomeUnknown),
        }
    }

    /// Ends the change as refused by the lake, or not sent to it.
    ///
    /// # Errors
    ///
    /// The registry could not record the end; the node keeps retrying.
    pub async fn refused(self) -> Result<(), ChangeError> {
        self.over(End::Refused).await.map(drop)
    }

    /// Removes the receipts that these changes make superfluous once the lake has carried them out, in few
    /// requests. Otherwise, or if that fails, [`done`](Self::done) removes those of its own change.
    pub(crate) async fn remove_receipts(changes: &mut [&mut Self]) {
        let Some(first) = changes.first() else { return };
        let names = first.changes.names.clone();
        let begun: Vec<_> = changes.iter().map(|change| change.begun.clone()).collect();
        if names.remove_receipts_of(&begun).await.is_ok() {
            for change in changes {
                change.begun.receipts_are_gone();
            }
        }
    }

    async fn over(mut self, end: End) -> Result<Ended, ChangeError> {
        self.is_over = true;
        let (changes, begun) = (Arc::clone(&self.changes), self.begun.clone());
        // A separate task, so that the end is recorded even if the client disconnects.
        let recorded = tokio::spawn(async move {
            let result = changes.end(&begun, end).await;
            match &result {
                Ok(_) => changes.forget(begun.busy.token),
                Err(_) => drop(tokio::spawn(async move { changes.record_end(&begun, end).await })),
            }
            result
        });
        recorded.await.unwrap_or(Err(ChangeError::OutcomeUnknown))
    }
}

impl Drop for LakeChange {
    fn drop(&mut self) {
        if !self.is_over {
            // The worker finds it in this node's list, and gives it up after the fence.
            self.changes.forget(self.begun.busy.token);
        }
    }
}
