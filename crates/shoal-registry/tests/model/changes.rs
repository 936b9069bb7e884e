//! The life of a change of the name: it begins, its request goes to the lake, and it leaves the entry.

use shoal_registry::entry::{Busy, Entry, Kind, NotBegun, Owner};
use ulid::Ulid;

use super::happenings::{Next, step};
use super::monitor::Answer;
use super::planted::Planted;
use super::protocol::{Outcome, Protocol, Then};
use super::state::{
    At, LakeAnswer, Left, Life, Object, Packed, Process, Request, Seen, Stamp, State, Work, is_tombstone,
    value,
};

impl Protocol {
    /// `condition` is the condition of the commit, and the token of the change.
    pub(crate) fn begin(
        &mut self,
        state: &State,
        number: usize,
        condition: (Stamp, u8),
        seen: Seen,
        next: &mut Next,
    ) {
        let (stamp, token) = condition;
        let process = state.processes[number];
        let entry = Entry::from(seen.entry);
        let (kind, of) = match process.work {
            Work::Flush => (Kind::Flush, seen.entry.current),
            Work::Delete => (Kind::Delete, seen.entry.current),
            Work::Write if self.is(Planted::WriteWithoutFlush) => (Kind::Write, seen.entry.current),
            Work::Create | Work::Replace if self.is(Planted::ConditionWithoutFlush) => {
                (Kind::Write, seen.entry.current)
            }
            _ => (Kind::Write, 0),
        };
        if kind == Kind::Flush && of == 0 {
            return;
        }
        // A commit that is sent again must be the same: the first one may still happen.
        let is_retry =
            matches!(process.at, At::BeginUnsure { .. }) && !self.is(Planted::RetriesInAnotherLife);
        // An operation goes on in the life in which it began, as long as that one's session lasts.
        let goes_on = process.at != At::Idle && !state.has_lapsed(process.life);
        let life = if is_retry || goes_on {
            process.life
        } else {
            state.present_life(&process)
        };
        let busy = Busy {
            kind,
            owner: owner(life),
            token: Ulid(u128::from(token)),
            of: Some(Ulid(u128::from(of))).filter(|of| of.0 != 0),
        };
        let begun = match (self.planted, entry.begun(busy)) {
            (Some(Planted::FlushWithoutBusy), _) if kind == Kind::Flush => entry,
            (Some(Planted::RemovedBeforeLake), Ok(begun)) if kind == Kind::Flush => Entry {
                current: None,
                ..begun
            },
            (Some(Planted::ConditionWithoutFlush | Planted::WriteWithoutFlush), Err(NotBegun::Changed)) => {
                Entry {
                    busy: Some(busy),
                    ..entry
                }
            }
            (_, Ok(begun)) => begun,
            // It waits until the entry has changed.
            (_, Err(NotBegun::Busy(_) | NotBegun::Changed)) => return,
        };
        let was_nothing = stamp == Stamp::Absent || self.is(Planted::LeavesNothingOfAnEntry);
        let then = Then {
            what: "begins its change",
            at: At::Begun { token, of },
            outcome: Outcome::Nothing,
            unsure: At::BeginUnsure { stamp, token },
            conflict: if is_retry {
                At::BeginUnsure {
                    stamp: Stamp::Outdated,
                    token,
                }
            } else {
                start_of(&process)
            },
            alone: seen.entry == Packed::default() && !is_retry && was_nothing,
        };
        let mut before = state.clone();
        before.processes[number].life = life;
        self.commit(&before, number, stamp, begun.into(), then, next);
    }

    pub(crate) fn begin_again(
        &mut self,
        state: &State,
        number: usize,
        stamp: Stamp,
        token: u8,
        seen: Seen,
        next: &mut Next,
    ) {
        let process = state.processes[number];
        if process.seen.is_some() || state.is_unchanged(stamp) {
            self.begin(state, number, (stamp, token), seen, next);
            return;
        }
        let mut after = state.clone();
        let ours = seen.entry.busy.filter(|busy| busy.token == token);
        let (at, what) = match ours {
            Some(busy) => (At::Begun { token, of: busy.of }, "finds its change in the entry"),
            None => (start_of(&process), "finds that its change has not begun"),
        };
        after.processes[number].at = at;
        next.push((step(number, what), after));
    }

    /// The request goes into a buffer. A node may stand still before the buffer is sent.
    pub(crate) fn buffer(&mut self, state: &State, number: usize, token: u8, of: u8, next: &mut Next) {
        if self.is(Planted::AsksAboveABuffer) && state.has_lapsed(state.processes[number].life) {
            self.keep(state, number, next);
            return;
        }
        let mut after = state.clone();
        after.processes[number].at = At::Buffered { token, of };
        next.push((step(number, "puts its request into a buffer"), after));
    }

    pub(crate) fn send(&mut self, state: &State, number: usize, token: u8, of: u8, next: &mut Next) {
        let process = state.processes[number];
        let asks = !self.is(Planted::SendsAfterItsSession) && !self.is(Planted::AsksAboveABuffer);
        if asks && state.has_lapsed(process.life) {
            self.keep(state, number, next);
            return;
        }
        let mut after = state.clone();
        after.requests.push(Request {
            work: process.work,
            object: if process.work == Work::Flush {
                of
            } else {
                process.object
            },
            expects: process.expects,
            owner: process.life,
            token,
            sender: number as u8,
        });
        after.processes[number].at = At::Waits { token, of };
        next.push((step(number, "sends its request to the lake"), after));
    }

    fn keep(&mut self, state: &State, number: usize, next: &mut Next) {
        let what = "does not send: its session has ended";
        self.end(state, number, what, Outcome::NoEffect, next);
    }

    /// The lake has answered, or will not: the change leaves the entry.
    pub(crate) fn finish(&mut self, state: &State, number: usize, seen: Seen, next: &mut Next) {
        let process = state.processes[number];
        let (token, of, answer) = match process.at {
            At::Answered { token, of, answer } => (token, of, Some(answer)),
            At::Silent { token, of } => (token, of, None),
            _ => unreachable!("only these finish"),
        };
        let outcome = match answer {
            Some(LakeAnswer::Done) => Outcome::Answer(Answer::Done),
            Some(LakeAnswer::ConditionFailed) => Outcome::Answer(Answer::ConditionFailed),
            Some(LakeAnswer::Refused) => Outcome::NoEffect,
            None => Outcome::Unknown,
        };
        let is_dropped = answer == Some(LakeAnswer::Refused)
            && is_tombstone(of)
            && self.is(Planted::DropsARefusedTombstone);
        let is_done = answer == Some(LakeAnswer::Done) || is_dropped;
        let mut ways = vec![(
            is_done,
            if is_done {
                "leaves the entry: done"
            } else {
                "leaves the entry: given up"
            },
        )];
        // A HEAD, after the request can no longer be carried out, may find that it was.
        if answer.is_none() && process.work == Work::Flush && state.lake == value(of) {
            ways.push((true, "finds its object at the lake and leaves the entry: done"));
        }
        for (done, what) in ways {
            let then = Then {
                what,
                at: if process.is_client() { At::Ended } else { At::Idle },
                outcome,
                unsure: process.at,
                conflict: process.at,
                alone: false,
            };
            let entry = Entry::from(seen.entry);
            if let Some(entry) = self.left(&entry, token, of, done) {
                let is_refused = answer.is_some_and(|answer| answer != LakeAnswer::Done);
                let left = if is_refused && process.alone {
                    Left::NothingAtOnce
                } else {
                    entry.into()
                };
                self.commit(state, number, seen.stamp, left, then, next);
                continue;
            }
            // The change has left the entry. As long as the session lasts, only the process itself can have
            // done it. Later another node may have given the change up, and kept the object that a DELETE was
            // to remove.
            let lapsed = state.has_lapsed(process.life);
            let given_up = match self.planted {
                Some(Planted::TrustsOthers) => false,
                Some(Planted::TrustsTheEntry) => lapsed && seen.entry.current == of,
                _ => lapsed,
            };
            let outcome = if given_up && of != 0 && is_done {
                Outcome::Unknown
            } else {
                outcome
            };
            self.end(
                state,
                number,
                "finds that its change has left the entry",
                outcome,
                next,
            );
        }
    }

    /// The entry without the change that `token` names.
    fn left(&self, entry: &Entry<Object>, token: u8, of: u8, done: bool) -> Option<Entry<Object>> {
        let token = Ulid(u128::from(token));
        match self.planted {
            Some(Planted::FlushWithoutBusy)
                if entry.busy.is_none_or(|busy| busy.token != token) && of != 0 =>
            {
                let is_same = entry.current == Some(Object(of)) && done;
                Some(Entry {
                    current: entry.current.filter(|_| !is_same),
                    busy: entry.busy,
                })
            }
            Some(Planted::DoneRemovesNewer) if done => {
                let done = entry.done(token)?;
                Some(Entry {
                    current: None,
                    ..done
                })
            }
            _ if done => entry.done(token),
            _ => entry.given_up(token),
        }
    }

    /// Clears the change of an owner whose session has ended, or removes an empty entry.
    pub(crate) fn tend(&mut self, state: &State, number: usize, seen: Seen, next: &mut Next) {
        let then = |what| Then {
            what,
            at: At::Idle,
            outcome: Outcome::Nothing,
            unsure: At::Idle,
            conflict: At::Idle,
            alone: false,
        };
        let entry = Entry::from(seen.entry);
        if let Some(busy) = seen.entry.busy {
            let lives = match self.planted {
                Some(Planted::AdoptsFromTheLiving) => false,
                Some(Planted::AdoptsAtTakeover) => !state.is_succeeded(busy.owner),
                _ => !state.has_lapsed(busy.owner),
            };
            let fenced = !state.requests.iter().any(|request| request.owner == busy.owner)
                || self.is(Planted::AdoptsWithoutFence);
            let is_unknown = state.is_unknown(busy.token) && !self.is(Planted::LeavesItsChange);
            if lives && !is_unknown || !fenced {
                return;
            }
            let given_up = entry
                .given_up(Ulid(u128::from(busy.token)))
                .expect("the token is the entry's");
            let then_given_up =
                then("gives up a change of a dead owner, or one that its owner does not know");
            self.commit(state, number, seen.stamp, given_up.into(), then_given_up, next);
            if busy.kind == Kind::Flush && state.lake == value(busy.of) {
                let done = entry
                    .done(Ulid(u128::from(busy.token)))
                    .expect("the token is the entry's");
                let then_done = then("finds the flush of a dead owner done");
                self.commit(state, number, seen.stamp, done.into(), then_done, next);
            }
        } else if entry.is_empty() && seen.stamp != Stamp::Absent {
            self.commit(
                state,
                number,
                seen.stamp,
                Left::Nothing,
                then("removes the empty entry"),
                next,
            );
        }
    }
}

/// Where a process is that is about to read the entry.
fn start_of(process: &Process) -> At {
    if process.is_client() { At::Start } else { At::Idle }
}

fn owner(life: Life) -> Owner {
    Owner {
        node: u64::from(life.node),
        life: Ulid(u128::from(life.number)),
    }
}
