//! Events that are no step of a process: the lake carries requests out, nodes fail, and other nodes clear up
//! after dead ones.

use shoal_registry::entry::Busy;

use super::monitor::DONE;
use super::planted::Planted;
use super::rounds::{give_up, life, set_root};
use super::search::Protocol;
use super::state::{
    At, CLIENTS, FIRST_CLIENT, KEEPER, LateCommit, Map, Member, NAMES, NODES, Process, Request, State, What,
    Work,
};

/// A transition between two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The process that moves, or whose message does; `None` if other nodes act.
    pub(crate) process: Option<usize>,
    pub(crate) what: &'static str,
    /// True if it goes wrong: nothing forces such a step to happen.
    pub(crate) is_fault: bool,
}

/// The states that can follow, and how.
pub(crate) type Next = Vec<(Step, State)>;

/// The outcome that a client learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Found(u8),
    /// An error that promises that nothing has happened.
    NoEffect,
    Unknown,
}

/// A step that nothing prevents.
pub(crate) fn step(number: usize, what: &'static str) -> Step {
    Step {
        process: Some(number),
        what,
        is_fault: false,
    }
}

/// A step that goes wrong.
pub(crate) fn fault(number: usize, what: &'static str) -> Step {
    Step {
        is_fault: true,
        ..step(number, what)
    }
}

fn others(what: &'static str) -> Step {
    Step {
        process: None,
        what,
        is_fault: false,
    }
}

impl Protocol {
    /// Each way in which the lake may treat the requests that are on their way.
    pub(crate) fn lake_works(&self, state: &State, next: &mut Next) {
        for (index, request) in state.requests.iter().copied().enumerate() {
            let number = request.sender;
            let waiting = match state.processes[number].at {
                At::Waits(sent) if sent.round.token == request.token => Some(sent),
                _ => None,
            };
            let mut dropped = state.clone();
            dropped.requests.remove(index);
            let mut done = dropped.clone();
            carry_out(&mut done, request);
            let Some(sent) = waiting else {
                next.push((
                    step(number, "has sent a request, which the lake carries out late"),
                    done,
                ));
                next.push((step(number, "has sent a request, which is lost"), dropped));
                continue;
            };
            if state.losses_left > 0 {
                let mut lost = done.clone();
                let mut late = state.clone();
                for after in [&mut lost, &mut late] {
                    after.losses_left -= 1;
                    after.processes[number].at = At::Silent(sent);
                }
                next.push((
                    fault(number, "is carried out by the lake; the answer is lost"),
                    lost,
                ));
                next.push((fault(number, "has waited for the lake for long enough"), late));
                dropped.losses_left -= 1;
                let mut refused = Next::new();
                give_up(&dropped, number, sent, Outcome::NoEffect, &mut refused);
                next.extend(
                    refused
                        .into_iter()
                        .map(|(_, after)| (fault(number, "is refused"), after)),
                );
            }
            match sent.manifest {
                Some(map) => done.processes[number].at = At::Commits(sent.round, map),
                None => self.has_bytes(&mut done, number, sent.round),
            }
            next.push((step(number, "is carried out by the lake"), done));
        }
    }

    /// Commits of the root that were not answered happen, or do not.
    pub(crate) fn late_commits_land(&self, state: &State, next: &mut Next) {
        for (index, late) in state.late_commits.iter().enumerate() {
            let mut after = state.clone();
            after.late_commits.remove(index);
            next.push((others("lose a late commit of the root"), after.clone()));
            match late {
                LateCommit::Reserves(reserved) => {
                    after.commit_root(state.root.map, Some(*reserved));
                    next.push((others("see a late reservation"), after));
                }
                LateCommit::Names(token, map) => {
                    let reserved = state.root.reserved.map(|reserved| reserved.token);
                    if reserved == Some(*token) || self.is(Planted::OverwritesTheRoot) {
                        set_root(&mut after, *map);
                        next.push((others("see a late commit of the root"), after));
                    }
                }
            }
        }
    }

    /// Other nodes resolve the reservation of a dead owner, give its changes up, and remove empty entries.
    pub(crate) fn clear_up(&self, state: &State, next: &mut Next) {
        if let Some(reserved) = state.root.reserved
            && state.has_lapsed(reserved.owner)
            && (!state.may_still_send(reserved.owner) || self.is(Planted::ResolvesWithoutFence))
        {
            let mut after = state.clone();
            match state.next_manifest {
                Some(map) if !self.is(Planted::ReleasesWithoutLooking) => set_root(&mut after, map),
                _ => after.commit_root(state.root.map, None),
            }
            next.push((others("resolve the reservation of a dead owner"), after));
        }
        for name in 0..NAMES {
            let Some(entry) = &state.entries[name] else {
                continue;
            };
            let mut after = state.clone();
            if let Some(busy) = entry.busy {
                let owner = life(busy.owner);
                let is_resolved = state.root.reserved.is_none_or(|reserved| reserved.owner != owner);
                if state.has_lapsed(owner)
                    && !state.may_still_send(owner)
                    && (is_resolved || self.is(Planted::GivesUpBeforeItResolves))
                {
                    after.commit(name, entry.given_up(busy.token));
                    next.push((others("give up a change of a dead owner"), after));
                }
            } else if entry.is_empty() && (is_known(state, name) || self.is(Planted::RemovesAnEntryTooEarly))
            {
                after.commit(name, None);
                next.push((others("remove an empty entry"), after));
            }
        }
        for node in (0..NODES).filter(|node| state.cached[*node] != state.root.map) {
            let mut after = state.clone();
            after.cached[node] = state.root.map;
            next.push((others("read the map"), after));
        }
    }

    /// The registry is lost while nothing is dirty, and the map is made from what the lake has.
    pub(crate) fn rebuild(&self, state: &State, next: &mut Next) {
        let is_idle = |process: &Process| matches!(process.at, At::Idle | At::Ended);
        if state.rebuilds_left == 0
            || state.root.reserved.is_some()
            || state.entries.iter().any(Option::is_some)
            || !state.processes[..FIRST_CLIENT].iter().all(is_idle)
            || !state.requests.is_empty()
            || !state.late_commits.is_empty()
        {
            return;
        }
        let mut after = state.clone();
        after.rebuilds_left -= 1;
        if self.is(Planted::RebuildsFromPacks) {
            for name in 0..NAMES {
                let members = state.packs.iter().map(|pack| Member {
                    pack: pack.id,
                    object: pack.members[name],
                });
                let newest = members.max_by_key(|member| member.object);
                after.root.map[name] = newest.filter(|member| member.object != 0);
            }
        } else if let Some(map) = state.next_manifest {
            set_root(&mut after, map);
        }
        after.cached = [after.root.map; NODES];
        next.push((others("rebuild the map"), after));
    }
}

/// Nodes crash, or freeze until their sessions have ended.
pub(crate) fn nodes_fail(state: &State, next: &mut Next) {
    if state.crashes_left == 0 {
        return;
    }
    for node in 0..NODES {
        let is_there = |process: &Process| usize::from(process.life.node) == node;
        let is_at_work = |process: &Process| !matches!(process.at, At::Idle | At::Ended | At::Unknown);
        let at_work = |process: &&Process| is_there(process) && is_at_work(process);
        let Some(number) = state.processes.iter().position(|process| at_work(&process)) else {
            continue;
        };
        let mut frozen = state.clone();
        frozen.lives[node] += 1;
        frozen.crashes_left -= 1;
        let mut crashed = frozen.clone();
        next.push((fault(number, "is frozen until its session has ended"), frozen));
        for process in crashed.processes.iter_mut().filter(|process| is_there(process)) {
            if is_at_work(process) {
                let serves = !matches!(process.work, Work::Pack | Work::Rewrite);
                process.at = if serves { At::Unknown } else { At::Idle };
            }
        }
        next.push((fault(number, "ends: its node crashes"), crashed));
    }
}

/// A client has an answer, or an error.
pub(crate) fn tell(after: &mut State, number: usize, outcome: Outcome) {
    let Process { name, is_open, .. } = after.processes[number];
    let client = number - FIRST_CLIENT;
    after.processes[number].at = match outcome {
        Outcome::Unknown => At::Unknown,
        _ => At::Ended,
    };
    if !is_open {
        after.processes[number].at = At::Ended;
        return;
    }
    match outcome {
        Outcome::Done => after.explanations[name].answers(client, DONE),
        Outcome::Found(answer) => after.explanations[name].answers(client, answer),
        Outcome::NoEffect => after.explanations[name].has_no_effect(client),
        Outcome::Unknown => return,
    }
    after.processes[number].is_open = false;
}

/// Ends operations with an unknown outcome that can no longer take effect: no request of theirs is on its
/// way, and no change is left in the entry or the root.
pub(crate) fn forget(after: &mut State) {
    for number in FIRST_CLIENT..FIRST_CLIENT + CLIENTS {
        let Process {
            name, at, life: of, ..
        } = after.processes[number];
        let is_busy = |busy: &Busy| life(busy.owner) == of;
        let busy = after.entries[name].as_ref().and_then(|entry| entry.busy);
        if at != At::Unknown
            || after.requests.iter().any(|request| request.sender == number)
            || !after.late_commits.is_empty()
            || busy.as_ref().is_some_and(is_busy)
            || after.root.reserved.is_some_and(|reserved| reserved.owner == of)
        {
            continue;
        }
        if after.processes[number].is_open {
            after.explanations[name].forget(number - FIRST_CLIENT);
        }
        after.processes[number].is_open = false;
        after.processes[number].at = At::Ended;
    }
}

/// A node without a GET to come has no use for an old map.
pub(crate) fn drop_unused_maps(after: &mut State) {
    for node in 0..NODES {
        let reads = |process: &Process| {
            let may_look = matches!(process.at, At::Idle | At::AsksLake(_) | At::LooksAgain(_));
            process.work == Work::Get && usize::from(process.life.node) == node && may_look
        };
        if !after.processes.iter().any(reads) {
            after.cached[node] = after.root.map;
        }
    }
}

/// Returns true if each node uses a map that agrees with the root about a name. That is so once FENCE has
/// passed since the name changed: no node uses a map for that long without reading the root again.
fn is_known(state: &State, name: usize) -> bool {
    let object = |map: &Map| map[name].map(|member| member.object);
    state
        .cached
        .iter()
        .all(|map| object(map) == object(&state.root.map))
}

fn carry_out(state: &mut State, request: Request) {
    match request.what {
        What::Pack(pack) => {
            state.packs.push(pack);
            state.packs.sort_unstable_by_key(|pack| pack.id);
        }
        What::Manifest(map) => state.next_manifest = Some(map),
        What::Plain(name, object) => state.plain[name] = object,
    }
}

/// A step as counter-examples show it.
pub(crate) fn describe(step: Step, before: &State) -> String {
    let Some(number) = step.process else {
        return format!("other nodes {}", step.what);
    };
    let process = &before.processes[number];
    let Process {
        work,
        object,
        name,
        life,
        ..
    } = process;
    let who = if number <= KEEPER {
        String::new()
    } else {
        format!(" {object:#x} of name {name}")
    };
    format!("{work:?}{who} on node {} {}", life.node, step.what)
}
