//! The protocol of one name: what can happen next. The changes of the entry are those of `entry.rs`.

use shoal_registry::entry::Entry;

use super::happenings::{Next, crash, fault, lake_works, late_commits_land, nodes_fail, step};
use super::monitor::{Answer, Monitor};
use super::planted::Planted;
use super::state::{
    At, FIRST_CLIENT, LateCommit, Left, Object, PROCESSES, Seen, Stamp, State, Use, Work, is_tombstone, value,
};

/// The rules by which a state follows from another.
pub(crate) struct Protocol {
    pub(crate) monitor: Monitor,
    /// A rule that is left out.
    pub(crate) planted: Option<Planted>,
    /// True if reading an entry and committing the next one are separate steps. If they are one, nothing is
    /// lost: a commit that succeeds finds the entry as it was read, so the read may as well come just before,
    /// and a commit that fails changes nothing.
    pub(crate) separate_reads: bool,
}

/// The continuation of a process after a commit.
#[derive(Clone, Copy)]
pub(crate) struct Then {
    pub(crate) what: &'static str,
    /// Where the process is once it knows that the commit has happened.
    pub(crate) at: At,
    pub(crate) outcome: Outcome,
    /// Where it is if the commit is not answered.
    pub(crate) unsure: At,
    /// Where it is if the entry has changed.
    pub(crate) conflict: At,
    /// True if the entry is then its own: see [`Process::alone`](super::state::Process::alone).
    pub(crate) alone: bool,
}

/// The outcome that a client learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Nothing,
    Answer(Answer),
    /// An error that promises that nothing has happened.
    NoEffect,
    /// An error that leaves it open.
    Unknown,
}

impl Protocol {
    /// Every state that can follow `state`.
    pub(crate) fn next(&mut self, state: &State) -> Next {
        let mut next = Next::new();
        for process in 0..PROCESSES {
            self.moves(state, process, &mut next);
        }
        lake_works(state, &mut next);
        late_commits_land(state, self.removed_during(), &mut next);
        nodes_fail(state, &mut next);
        for (_, after) in &mut next {
            self.forget(after);
        }
        next
    }

    fn moves(&mut self, state: &State, number: usize, next: &mut Next) {
        let process = state.processes[number];
        match process.at {
            At::Ended | At::Unknown | At::Waits { .. } => {}
            At::Idle if self.is(Planted::LakeFirst) && process.work == Work::Get => {
                let mut after = state.clone();
                self.begin_operation(&mut after, number);
                after.processes[number].at = At::LakeSaid(state.lake);
                next.push((step(number, "asks the lake"), after));
            }
            At::Idle | At::Start if process.work == Work::Get => self.get(state, number, next),
            At::AsksLake(stamp) => self.ask_lake(state, number, stamp, next),
            At::LooksAgain(stamp) => self.look_again(state, number, stamp, next),
            At::LakeSaid(found) => {
                let current = state.entry.map_or(0, |entry| entry.current);
                let found = if current == 0 { found } else { value(current) };
                let outcome = Outcome::Answer(Answer::Found(found));
                self.end(state, number, "reads the entry and answers", outcome, next);
            }
            At::Begun { token, of } => self.buffer(state, number, token, of, next),
            At::Buffered { token, of } => self.send(state, number, token, of, next),
            At::BeginUnsure { .. } if self.is(Planted::LeavesItsChange) => {
                self.end(state, number, "leaves", Outcome::Unknown, next);
            }
            At::Silent { token, .. } if self.may_still_happen(state, token) => {}
            _ => self.read_and_act(state, number, next),
        }
        if matches!(process.at, At::PutUnsure(_)) {
            self.end(
                state,
                number,
                "waits for the registry no longer",
                Outcome::Unknown,
                next,
            );
            next.last_mut().expect("it has just ended").0.is_fault = true;
        }
    }

    /// A process whose next step reads the entry and commits another.
    fn read_and_act(&mut self, state: &State, number: usize, next: &mut Next) {
        let process = state.processes[number];
        if let Some(seen) = process.seen {
            self.act(state, number, seen, next);
            return;
        }
        if !self.separate_reads {
            self.act(state, number, state.seen(), next);
            return;
        }
        // A process that sees at once that it can do nothing, or what has become of its commit, does not
        // commit.
        let mut outcomes = Next::new();
        self.act(state, number, state.seen(), &mut outcomes);
        let looks = match process.at {
            At::PutUnsure(stamp) | At::BeginUnsure { stamp, .. } => !state.is_unchanged(stamp),
            _ => false,
        };
        if looks {
            next.append(&mut outcomes);
        } else if !outcomes.is_empty() {
            let mut after = state.clone();
            self.begin_operation(&mut after, number);
            after.processes[number].seen = Some(state.seen());
            next.push((step(number, "reads the entry"), after));
        }
    }

    fn act(&mut self, state: &State, number: usize, seen: Seen, next: &mut Next) {
        let process = state.processes[number];
        match process.at {
            At::PutUnsure(stamp) => self.put_again(state, number, stamp, seen, next),
            At::BeginUnsure { stamp, token } => self.begin_again(state, number, stamp, token, seen, next),
            At::Answered { .. } | At::Silent { .. } => self.finish(state, number, seen, next),
            _ => match process.work {
                Work::Remove if self.is(Planted::AnswersBeforeTheTombstone) => {
                    self.answer_early(state, number, seen, next);
                }
                Work::Put | Work::Remove => self.put(state, number, seen.stamp, seen, next),
                Work::Tend => self.tend(state, number, seen, next),
                _ => {
                    let token = state.new_token();
                    self.begin(state, number, (seen.stamp, token), seen, next);
                }
            },
        }
    }

    fn get(&mut self, state: &State, number: usize, next: &mut Next) {
        let Seen { stamp, entry } = state.seen();
        let is_overlooked = is_tombstone(entry.current) && self.is(Planted::AsksTheLakeBehindATombstone);
        if entry.current == 0 || is_overlooked {
            let mut after = state.clone();
            self.begin_operation(&mut after, number);
            after.processes[number].at = At::AsksLake(stamp);
            next.push((step(number, "finds no dirty object"), after));
        } else {
            let outcome = Outcome::Answer(Answer::Found(value(entry.current)));
            self.end(state, number, "reads the dirty object", outcome, next);
        }
    }

    fn ask_lake(&mut self, state: &State, number: usize, stamp: Stamp, next: &mut Next) {
        if state.lake != 0 || self.is(Planted::NoSecondLook) {
            let outcome = Outcome::Answer(Answer::Found(state.lake));
            self.end(state, number, "answers what the lake has", outcome, next);
        } else {
            let mut after = state.clone();
            after.processes[number].at = At::LooksAgain(stamp);
            next.push((step(number, "gets a 404 from the lake"), after));
        }
    }

    fn look_again(&mut self, state: &State, number: usize, stamp: Stamp, next: &mut Next) {
        if state.is_unchanged(stamp) {
            let outcome = Outcome::Answer(Answer::Found(0));
            self.end(
                state,
                number,
                "finds the entry unchanged and answers 404",
                outcome,
                next,
            );
        } else {
            let mut after = state.clone();
            after.processes[number].at = At::Start;
            next.push((step(number, "finds the entry changed, starts anew"), after));
        }
    }

    /// `stamp` is the condition of the commit.
    fn put(&mut self, state: &State, number: usize, stamp: Stamp, seen: Seen, next: &mut Next) {
        let object = Object(state.processes[number].object);
        let before = Entry::from(seen.entry);
        let is_dirty = seen.entry.current != 0 && !is_tombstone(seen.entry.current);
        let entry = match self.planted {
            Some(Planted::OverwritesARemoval) if is_tombstone(seen.entry.current) => Entry {
                current: Some(object),
                busy: None,
            },
            Some(Planted::ForgetsTheYoung) if is_tombstone(object.0) && is_dirty => Entry {
                current: None,
                busy: before.busy,
            },
            _ => before.written(object),
        };
        let blind = self.is(Planted::RetryWithoutLooking);
        let is_retry = matches!(state.processes[number].at, At::PutUnsure(_));
        let then = Then {
            what: "commits its object",
            at: At::Ended,
            outcome: Outcome::Answer(Answer::Done),
            unsure: if blind { At::Start } else { At::PutUnsure(stamp) },
            // Only the first commit fails for certain. The one before this may have happened.
            conflict: if is_retry {
                At::PutUnsure(Stamp::Outdated)
            } else {
                At::Start
            },
            alone: false,
        };
        self.commit(state, number, stamp, entry.into(), then, next);
    }

    /// Planted: the client has its answer, and the tombstone is not committed yet.
    fn answer_early(&mut self, state: &State, number: usize, seen: Seen, next: &mut Next) {
        let mut before = state.clone();
        before.late_commits.push(LateCommit {
            stamp: seen.stamp,
            left: Entry::from(seen.entry)
                .written(Object(state.processes[number].object))
                .into(),
            sender: number as u8,
        });
        let outcome = Outcome::Answer(Answer::Done);
        self.end(&before, number, "answers before its commit", outcome, next);
    }

    fn put_again(&mut self, state: &State, number: usize, stamp: Stamp, seen: Seen, next: &mut Next) {
        // With separate reads, `seen` was read when the entry was unchanged.
        if state.processes[number].seen.is_some() || state.is_unchanged(stamp) {
            self.put(state, number, stamp, seen, next);
        } else if seen.entry.current == state.processes[number].object {
            let outcome = Outcome::Answer(Answer::Done);
            self.end(state, number, "finds its object in the entry", outcome, next);
        } else {
            self.end(
                state,
                number,
                "cannot know whether it wrote",
                Outcome::Unknown,
                next,
            );
        }
    }

    /// Every way in which a commit on the condition `stamp` may go.
    pub(crate) fn commit(
        &mut self,
        state: &State,
        number: usize,
        stamp: Stamp,
        left: Left,
        then: Then,
        next: &mut Next,
    ) {
        let mut before = state.clone();
        before.processes[number].seen = None;
        self.begin_operation(&mut before, number);
        if !before.is_unchanged(stamp) && !self.is(Planted::NoCondition) {
            before.processes[number].at = then.conflict;
            next.push((step(number, "finds the entry changed"), before));
            return;
        }
        let mut unsure = before.clone();
        // Before the commit changes what the stamps mean.
        unsure.processes[number].at = then.unsure;
        let mut happened = unsure.clone();
        happened.commit(left, self.removed_during());
        let mut late = unsure;
        late.late_commits.push(LateCommit {
            stamp,
            left,
            sender: number as u8,
        });

        before.processes[number].at = then.at;
        before.commit(left, self.removed_during());
        before.processes[number].alone = then.alone;
        if before.processes[number].is_client() {
            self.tell(&mut before, number, then.outcome);
        }
        next.push((step(number, then.what), before));

        let ways = [
            (
                happened,
                "commits; the answer is lost",
                "commits, and its node crashes",
            ),
            (
                late,
                "commits; the commit is late",
                "sends a commit, and its node crashes",
            ),
        ];
        for (mut after, what, crashes) in ways {
            // The node may end after its commit and before it learns of it.
            if state.crashes_left > 0 && state.processes[number].work != Work::Tend {
                let mut crashed = after.clone();
                crash(&mut crashed, usize::from(state.processes[number].life.node));
                next.push((fault(number, crashes), crashed));
            }
            if state.losses_left > 0 {
                after.losses_left -= 1;
                next.push((fault(number, what), after));
            }
        }
    }

    /// A process is done, and its client learns the outcome.
    pub(crate) fn end(
        &mut self,
        state: &State,
        number: usize,
        what: &'static str,
        outcome: Outcome,
        next: &mut Next,
    ) {
        let mut after = state.clone();
        after.processes[number].seen = None;
        if after.processes[number].is_client() {
            self.begin_operation(&mut after, number);
            after.processes[number].at = At::Ended;
            self.tell(&mut after, number, outcome);
        } else {
            after.processes[number].at = At::Idle;
        }
        next.push((step(number, what), after));
    }

    fn tell(&mut self, after: &mut State, number: usize, outcome: Outcome) {
        let State {
            explanations,
            processes,
            ..
        } = after;
        match outcome {
            Outcome::Nothing => {}
            Outcome::Unknown => processes[number].at = At::Unknown,
            Outcome::NoEffect => {
                *explanations = self.monitor.has_no_effect(*explanations, number, processes);
            }
            Outcome::Answer(answer) => {
                *explanations = self.monitor.answers(*explanations, number, answer, processes);
            }
        }
    }

    /// The operation of a client begins with its first step: later than that it cannot, and earlier would
    /// only allow more orders.
    fn begin_operation(&mut self, after: &mut State, number: usize) {
        let process = &mut after.processes[number];
        if process.at == At::Idle && process.is_client() {
            process.at = At::Start;
            process.life.number = after.lives[usize::from(process.life.node)];
            after.explanations = self.monitor.begins(after.explanations, number, &after.processes);
        }
    }

    /// Ends operations with an unknown outcome whose requests are no longer on their way.
    fn forget(&mut self, after: &mut State) {
        for number in FIRST_CLIENT..PROCESSES {
            let sent = number as u8;
            if after.processes[number].at == At::Unknown
                && !after.requests.iter().any(|request| request.sender == sent)
                && !after.late_commits.iter().any(|late| late.sender == sent)
            {
                after.explanations = self
                    .monitor
                    .is_forgotten(after.explanations, number, &after.processes);
                after.processes[number].at = At::Ended;
            }
        }
    }

    /// Returns true if the request of a silent process may still be carried out. It may not once FENCE has
    /// passed.
    fn may_still_happen(&self, state: &State, token: u8) -> bool {
        !self.is(Planted::GivesUpWithoutFence) && state.requests.iter().any(|request| request.token == token)
    }

    fn removed_during(&self) -> Option<Use> {
        match self.planted {
            Some(Planted::RemovedDuringGet) => Some(Use::Get),
            Some(Planted::RemovedDuringCommit) => Some(Use::Commit),
            _ => None,
        }
    }

    pub(crate) fn is(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }
}
