//! The open sessions. The file has their keys. Pure: the time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::engine::{EngineError, SessionId};

/// The sessions of this process.
#[derive(Debug)]
pub(super) struct Sessions {
    open: HashMap<SessionId, Session>,
    /// Sessions whose keys may not have been removed yet.
    ended: Vec<SessionId>,
    next: u64,
}

#[derive(Debug)]
struct Session {
    time_to_live: Duration,
    deadline: Instant,
}

impl Sessions {
    /// Creates an empty set. `seed` names the first session, so that its name differs from those of an
    /// earlier process.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            open: HashMap::new(),
            ended: Vec::new(),
            next: seed >> 1,
        }
    }

    /// Opens a session.
    pub(super) fn open(&mut self, time_to_live: Duration, now: Instant) -> SessionId {
        // Stored keys without a session carry 0.
        self.next = (self.next + 1).max(1);
        let session = SessionId(self.next);
        let opened = Session {
            time_to_live,
            deadline: now + time_to_live,
        };
        let before = self.open.insert(session, opened);
        assert!(before.is_none(), "each session has a name of its own");
        session
    }

    /// Renews a session that has not ended.
    pub(super) fn renew(&mut self, session: SessionId, now: Instant) -> Result<(), EngineError> {
        let renewed = self.open.get_mut(&session).filter(|open| now < open.deadline);
        let renewed = renewed.ok_or(EngineError::SessionEnded)?;
        renewed.deadline = now + renewed.time_to_live;
        Ok(())
    }

    /// Returns true if a session is open.
    pub(super) fn is_open(&self, session: SessionId, now: Instant) -> bool {
        self.open.get(&session).is_some_and(|open| now < open.deadline)
    }

    /// Ends a session.
    pub(super) fn close(&mut self, session: SessionId) -> Result<(), EngineError> {
        self.open.remove(&session).ok_or(EngineError::SessionEnded)?;
        self.ended.push(session);
        Ok(())
    }

    /// Ends expired sessions, and returns all whose keys have not been removed.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<SessionId> {
        let over = self.open.extract_if(|_, session| session.deadline <= now);
        self.ended.extend(over.map(|(session, _)| session));
        self.ended.clone()
    }

    /// Forgets sessions whose keys have been removed.
    pub(super) fn forget(&mut self, removed: &[SessionId]) {
        self.ended.retain(|ended| !removed.contains(ended));
    }

    /// Returns true if there are keys to remove.
    pub(super) fn are_due(&self, now: Instant) -> bool {
        self.has_ended() || self.next_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Returns true if there are sessions whose keys have not been removed.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The time at which the next session ends.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.values().map(|session| session.deadline).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_at_its_deadline_without_a_look_at_it() {
        let start = shoal_base::clock::instant();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut sessions = Sessions::new(0);
        let session = sessions.open(Duration::from_secs(10), start);
        assert_eq!(sessions.renew(session, at(9)), Ok(()));
        assert!(sessions.is_open(session, at(18)));
        assert!(!sessions.is_open(session, at(19)));
        assert_eq!(sessions.renew(session, at(19)), Err(EngineError::SessionEnded));
    }

    #[test]
    fn an_ended_session_is_told_until_its_keys_are_removed() {
        let start = shoal_base::clock::instant();
        let mut sessions = Sessions::new(u64::MAX);
        let session = sessions.open(Duration::from_secs(1), start);
        assert!(sessions.expire(start).is_empty());
        let over = start + Duration::from_secs(1);
        for _ in 0..2 {
            assert_eq!(sessions.expire(over), [session]);
        }
        let ended = sessions.expire(over);
        sessions.forget(&ended);
        assert!(sessions.expire(over).is_empty());
        assert_eq!(sessions.close(session), Err(EngineError::SessionEnded));
    }
}
