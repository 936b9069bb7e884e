//! Events that are no step of a process: the lake carries requests out, late commits happen, nodes fail.

use std::fmt;

use super::state::{At, LakeAnswer, Life, Named, Process, Request, State, Use, Work, value};

/// A transition between two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The process that moves, or whose message does.
    pub(crate) process: usize,
    pub(crate) what: &'static str,
    /// True if it goes wrong: nothing forces such a step to happen.
    pub(crate) is_fault: bool,
}

/// A state that can follow, and how.
pub(crate) type Next = Vec<(Step, State)>;

/// A step that nothing prevents.
pub(crate) fn step(number: usize, what: &'static str) -> Step {
    Step {
        process: number,
        what,
        is_fault: false,
    }
}

/// A step that goes wrong.
pub(crate) fn fault(number: usize, what: &'static str) -> Step {
    Step {
        process: number,
        what,
        is_fault: true,
    }
}

/// Each way in which the lake may treat the requests that are on their way.
pub(crate) fn lake_works(state: &State, next: &mut Next) {
    for index in 0..state.requests.len() {
        let request = state.requests[index];
        let number = usize::from(request.sender);
        let waiting = match state.processes[number].at {
            At::Waits { token, of } if token == request.token => Some((token, of)),
            _ => None,
        };
        let mut done = state.clone();
        done.requests.remove(index);
        let mut dropped = done.clone();
        let answer = carry_out(&mut done, request);
        let Some((token, of)) = waiting else {
            next.push((
                step(number, "was sent; the lake carries the request out late"),
                done,
            ));
            next.push((step(number, "was sent; the request is lost"), dropped));
            continue;
        };
        if state.losses_left > 0 {
            let silent = At::Silent { token, of };
            let mut lost = done.clone();
            let mut late = state.clone();
            dropped.processes[number].at = At::Answered {
                token,
                of,
                answer: LakeAnswer::Refused,
            };
            lost.processes[number].at = silent;
            late.processes[number].at = silent;
            let ways = [
                (dropped, "is refused by the lake"),
                (lost, "is carried out by the lake; the answer is lost"),
                (late, "has waited for the lake for long enough"),
            ];
            for (mut after, what) in ways {
                after.losses_left -= 1;
                next.push((fault(number, what), after));
            }
        }
        done.processes[number].at = At::Answered { token, of, answer };
        next.push((step(number, "is carried out by the lake"), done));
    }
}

fn carry_out(state: &mut State, request: Request) -> LakeAnswer {
    let holds = match request.work {
        Work::Create => state.lake == 0,
        Work::Replace => state.lake == request.expects,
        _ => true,
    };
    if !holds {
        return LakeAnswer::ConditionFailed;
    }
    state.lake = if request.work == Work::Delete {
        0
    } else {
        value(request.object)
    };
    LakeAnswer::Done
}

/// Each way in which commits that were not answered may end.
pub(crate) fn late_commits_land(state: &State, removed_during: Option<Use>, next: &mut Next) {
    for (index, late) in state.late_commits.iter().enumerate() {
        let number = usize::from(late.sender);
        let mut after = state.clone();
        after.late_commits.remove(index);
        next.push((
            step(number, "was to commit; the late commit is lost"),
            after.clone(),
        ));
        if state.is_unchanged(late.stamp) {
            after.commit(late.left, removed_during);
            next.push((step(number, "was to commit; the late commit happens"), after));
        }
    }
}

/// Nodes crash, freeze until their session has ended, or are taken over by a later life while they work.
pub(crate) fn nodes_fail(state: &State, next: &mut Next) {
    for node in 0..state.lives.len() {
        if state.lasting[node] < state.lives[node] {
            let mut ended = state.clone();
            ended.lasting[node] = state.lives[node];
            next.push((
                step(node, "was taken over; the session ends by its own clock"),
                ended,
            ));
        }
    }
    if state.crashes_left == 0 {
        return;
    }
    for node in 0..state.lives.len() {
        let is_at_work = |process: &&Process| {
            usize::from(process.life.node) == node
                && process.work != Work::Tend
                && !matches!(process.at, At::Idle | At::Ended | At::Unknown)
        };
        let Some(number) = state.processes.iter().position(|process| is_at_work(&process)) else {
            continue;
        };
        let mut crashed = state.clone();
        crash(&mut crashed, node);
        next.push((fault(number, "ends: its node crashes"), crashed));
        // Without a change in the entry, the end of a session means nothing.
        let owns = |life: Life| usize::from(life.node) == node && !state.has_lapsed(life);
        if state
            .processes
            .iter()
            .any(|process| owns(process.life) && process.has_change())
        {
            let mut taken_over = state.clone();
            taken_over.lives[node] += 1;
            taken_over.crashes_left -= 1;
            let mut lapsed = taken_over.clone();
            lapsed.lasting[node] = lapsed.lives[node];
            next.push((fault(number, "is frozen until its session has ended"), lapsed));
            if state.lasting[node] == state.lives[node] {
                next.push((
                    fault(number, "is taken over by a later life, and goes on"),
                    taken_over,
                ));
            }
        }
    }
}

/// All that a node does ends, and it begins its next life. Its requests are still on their way.
pub(crate) fn crash(state: &mut State, node: usize) {
    for process in &mut state.processes {
        let is_there = usize::from(process.life.node) == node && process.work != Work::Tend;
        if is_there && !matches!(process.at, At::Idle | At::Ended | At::Unknown) {
            process.at = if process.is_client() {
                At::Unknown
            } else {
                At::Idle
            };
            process.seen = None;
            process.alone = false;
        }
    }
    state.lives[node] += 1;
    state.lasting[node] = state.lives[node];
    state.crashes_left -= 1;
}

/// A step as counter-examples show it.
pub(crate) fn describe(step: Step, before: &State) -> impl fmt::Display {
    let process = &before.processes[step.process];
    let who = match process.work {
        Work::Flush => format!("flush on node {}", process.life.node),
        Work::Tend => "another node".into(),
        work => format!("{work:?} {} on node {}", Named(process.object), process.life.node),
    };
    format!("{who} {}", step.what)
}
