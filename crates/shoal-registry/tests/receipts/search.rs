//! Searches the states of the model breadth first.

use std::collections::{HashMap, VecDeque};

use super::protocol::{Case, State};

/// The result of a search.
pub(crate) enum Verdict {
    /// No state is wrong.
    Holds {
        /// The number of states.
        states: usize,
    },
    /// A state is wrong.
    Fails {
        /// A shortest way to it.
        steps: Vec<String>,
    },
}

/// Searches all states of a case.
pub(crate) fn explore(case: &Case) -> Verdict {
    let start = State::new(case);
    // For each state, the one before it and the step that led to it.
    let mut found: HashMap<State, Option<(usize, String)>> = HashMap::from([(start.clone(), None)]);
    let mut states = vec![start.clone()];
    let mut next = VecDeque::from([0]);
    while let Some(at) = next.pop_front() {
        let state = states[at].clone();
        if let Err(problem) = state.check() {
            return Verdict::Fails {
                steps: story(&states, &found, at, problem),
            };
        }
        for (step, after) in state.next(case) {
            if !found.contains_key(&after) {
                found.insert(after.clone(), Some((at, step)));
                next.push_back(states.len());
                states.push(after);
            }
        }
    }
    Verdict::Holds { states: states.len() }
}

fn story(
    states: &[State],
    found: &HashMap<State, Option<(usize, String)>>,
    mut at: usize,
    problem: String,
) -> Vec<String> {
    let mut steps = vec![problem];
    while let Some((before, step)) = &found[&states[at]] {
        steps.push(step.clone());
        at = *before;
    }
    steps.reverse();
    steps
}
