//! The open sessions and the keys attached to them. Pure: the time is an argument.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::engine::{EngineError, SessionId};

/// The sessions of this process.
#[derive(Debug)]
pub(super) struct Sessions {
    open: HashMap<SessionId, Session>,
    ended: Vec<Ended>,
    next: u64,
}

#[derive(Debug)]
struct Session {
    time_to_live: Duration,
    deadline: Instant,
    keys: HashSet<Bytes>,
}

/// A session that has ended, and keys that may not have been removed yet.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) session: SessionId,
    pub(super) keys: HashSet<Bytes>,
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
            keys: HashSet::new(),
        };
        self.open.insert(session, opened);
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

    /// Attaches a key to a session.
    pub(super) fn attach(&mut self, session: SessionId, key: Bytes) {
        if let Some(open) = self.open.get_mut(&session) {
            open.keys.insert(key);
        }
    }

    /// Ends a session.
    pub(super) fn close(&mut self, session: SessionId) -> Result<(), EngineError> {
        let closed = self.open.remove(&session).ok_or(EngineError::SessionEnded)?;
        self.ended.push(Ended {
            session,
            keys: closed.keys,
        });
        Ok(())
    }

    /// Ends expired sessions, and returns all whose keys have not been removed.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Ended> {
        let over = self.open.extract_if(|_, session| session.deadline <= now);
        self.ended.extend(over.map(|(session, over)| Ended {
            session,
            keys: over.keys,
        }));
        self.ended.clone()
    }

    /// Forgets sessions whose keys have been removed.
    pub(super) fn forget(&mut self, removed: &[Ended]) {
        self.ended
            .retain(|ended| removed.iter().all(|removed| removed.session != ended.session));
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
        sessions.attach(session, Bytes::from_static(b"key"));
        assert!(sessions.expire(start).is_empty());
        let over = start + Duration::from_secs(1);
        for _ in 0..2 {
            let ended = sessions.expire(over);
            assert_eq!(ended.len(), 1);
            assert!(ended[0].keys.contains(&b"key"[..]));
        }
        let ended = sessions.expire(over);
        sessions.forget(&ended);
        assert!(sessions.expire(over).is_empty());
        assert_eq!(sessions.close(session), Err(EngineError::SessionEnded));
    }
}
