//! The operations of clients.

use super::happenings::{Next, Outcome, step, tell};
use super::monitor::found;
use super::planted::Planted;
use super::rounds::{begin, written};
use super::search::Protocol;
use super::state::{At, Member, Process, Round, RoundKind, Stamp, State, Work, value};

impl Protocol {
    pub(crate) fn serve(&self, state: &State, number: usize, next: &mut Next) {
        let mut state = state.clone();
        open(&mut state, number);
        let state = &state;
        match state.processes[number].work {
            Work::Put | Work::Large | Work::Delete => self.write(state, number, next),
            Work::Write => self.write_through(state, number, next),
            Work::Unpack => self.unpack(state, number, next),
            Work::Get => self.get(state, number, next),
            Work::List => self.list(state, number, next),
            Work::Nothing | Work::Pack | Work::Rewrite => {}
        }
    }

    /// Commits an object or a tombstone to the entry. This is the write.
    fn write(&self, state: &State, number: usize, next: &mut Next) {
        let Process { name, object, .. } = state.processes[number];
        let entry = state.entries[name].as_ref();
        let mut after = state.clone();
        if value(object) == 0 && self.is(Planted::LeavesNoTombstone) {
            let mut entry = entry.cloned().unwrap_or_default();
            entry.current = None;
            after.plain[name] = 0;
            after.commit(name, Some(entry));
        } else {
            after.commit(name, Some(written(entry, object)));
        }
        tell(&mut after, number, Outcome::Done);
        next.push((step(number, "commits its object"), after));
    }

    /// A packed object gets its own name first.
    fn write_through(&self, state: &State, number: usize, next: &mut Next) {
        let Process { name, object, .. } = state.processes[number];
        match state.root.map[name] {
            Some(_) if !self.is(Planted::WritesThroughOverPacked) => self.unpack(state, number, next),
            _ => begin(
                state,
                number,
                Round::of(state, RoundKind::Through, name, object),
                next,
            ),
        }
    }

    fn unpack(&self, state: &State, number: usize, next: &mut Next) {
        let name = state.processes[number].name;
        let is_dirty = state.entries[name]
            .as_ref()
            .is_some_and(|entry| entry.current.is_some());
        let round = |member: Member| Round::of(state, RoundKind::Unpacked, name, member.object);
        match state.root.map[name] {
            Some(_) if is_dirty => {}
            Some(member) if self.is(Planted::UnpacksWithoutBusy) => {
                let mut before = state.clone();
                let entries = std::mem::take(&mut before.entries);
                let mut begun = Next::new();
                begin(&before, number, round(member), &mut begun);
                for (step, mut after) in begun {
                    after.entries.clone_from(&entries);
                    next.push((step, after));
                }
            }
            Some(member) => begin(state, number, round(member), next),
            None => {
                let mut after = state.clone();
                tell(&mut after, number, Outcome::Done);
                next.push((step(number, "finds nothing to unpack"), after));
            }
        }
    }

    /// Reads the entry and the root at one moment. Without an entry, the map that the node has will do.
    fn get(&self, state: &State, number: usize, next: &mut Next) {
        let Process { name, life, .. } = state.processes[number];
        let entry = state.entries[name].as_ref();
        let current = entry.and_then(|entry| entry.current);
        let map = if entry.is_none() || self.is(Planted::ReadsByAnOldMap) {
            state.cached[usize::from(life.node)]
        } else {
            state.root.map
        };
        match (current, map[name]) {
            (Some(object), _) => answer(state, number, value(object.0), next),
            (None, Some(member)) => goes_on(state, number, At::ReadsPack(member), next),
            (None, None) => goes_on(state, number, At::AsksLake(state.stamp(name)), next),
        }
    }

    /// Reads the entry, then the map, then the lake. Nothing is read twice.
    fn list(&self, state: &State, number: usize, next: &mut Next) {
        let name = state.processes[number].name;
        if self.is(Planted::ListsTheMapFirst) {
            let object = state.root.map[name].map_or(0, |member| member.object);
            goes_on(state, number, At::ListsEntry(object), next);
            return;
        }
        match state.entries[name].as_ref().and_then(|entry| entry.current) {
            Some(object) => answer(state, number, value(object.0), next),
            None => goes_on(state, number, At::ListsMap, next),
        }
    }
}

/// The operation of a client begins with its first step: later than that it cannot, and earlier would
/// only allow more orders.
fn open(state: &mut State, number: usize) {
    let Process {
        work, name, is_open, ..
    } = state.processes[number];
    if !is_open && work != Work::Unpack {
        state.processes[number].is_open = true;
        let open = state.open(name);
        state.explanations[name].begins(open);
    }
}

pub(crate) fn ask_lake(state: &State, number: usize, stamp: Stamp, next: &mut Next) {
    match state.plain[state.processes[number].name] {
        0 => goes_on(state, number, At::LooksAgain(stamp), next),
        object => answer(state, number, object, next),
    }
}

/// The lake has no object. This is the answer only if the entry is as it was.
pub(crate) fn look_again(state: &State, number: usize, stamp: Stamp, next: &mut Next) {
    if state.is_unchanged(state.processes[number].name, stamp) {
        answer(state, number, 0, next);
    } else {
        goes_on(state, number, At::Idle, next);
    }
}

pub(crate) fn list_map(state: &State, number: usize, next: &mut Next) {
    match state.root.map[state.processes[number].name] {
        Some(member) => answer(state, number, member.object, next),
        None => goes_on(state, number, At::ListsLake, next),
    }
}

pub(crate) fn list_lake(state: &State, number: usize, next: &mut Next) {
    answer(state, number, state.plain[state.processes[number].name], next);
}

pub(crate) fn list_entry(state: &State, number: usize, packed: u8, next: &mut Next) {
    let current = state.entries[state.processes[number].name].as_ref();
    match (current.and_then(|entry| entry.current), packed) {
        (Some(object), _) => answer(state, number, value(object.0), next),
        (None, 0) => goes_on(state, number, At::ListsLake, next),
        (None, object) => answer(state, number, object, next),
    }
}

fn goes_on(state: &State, number: usize, at: At, next: &mut Next) {
    let mut after = state.clone();
    after.processes[number].at = at;
    next.push((step(number, "reads on"), after));
}

pub(crate) fn answer(state: &State, number: usize, object: u8, next: &mut Next) {
    let mut after = state.clone();
    tell(&mut after, number, Outcome::Found(found(object)));
    next.push((step(number, "answers"), after));
}
