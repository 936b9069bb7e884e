//! Validates the values of a configuration against each other and against the machine.
//!
//! `rules` is the table of what a single setting must not be, `lists` and `tier` have those for the entries
//! of lists, `advice` and `disk` warn about values that are valid and rarely intended.

mod advice;
mod disk;
mod lists;
mod rules;
mod texts;
mod tier;

use super::load::file::{Entry, File};
use super::problem::{Problem, Provenance};
use super::settings::ConfigDraft;
use super::{Config, Role};
use rules::Fault;

/// Returns all problems and all warnings in the sections that `role` reads. Every entry of `file` is valid in
/// itself, so the lists of the draft have one value for each.
pub(super) fn check(draft: &ConfigDraft, file: &File, role: Role) -> (Vec<Problem>, Vec<Problem>) {
    let mut check = Check {
        draft,
        file,
        config: &draft.config,
        problems: vec![],
        warnings: vec![],
    };
    for rule in rules::RULES.iter().filter(|rule| role.reads(rule.section)) {
        let provenance = draft.provenance(rule.section, rule.key);
        for fault in (rule.faults)(&draft.config) {
            let what = format!("[{}] {} {}", rule.section, rule.key, fault.what);
            let problem = Problem::new(provenance, what).hint(fault.hint);
            check.problems.push(problem);
        }
    }
    match role {
        Role::Node => {
            check.entries();
            check.advice();
        }
        Role::Dev => check.entries(),
        Role::Lookup => check.places(),
    }
    (check.problems, check.warnings)
}

struct Check<'a> {
    draft: &'a ConfigDraft,
    file: &'a File,
    config: &'a Config,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl<'a> Check<'a> {
    /// Returns the values of a list, each with its text in the file.
    fn list<T>(
        &self,
        title: &'static str,
        values: &'a [T],
    ) -> impl Iterator<Item = (&'a T, &'a Entry)> + use<'a, T> {
        values.iter().zip(self.file.list(title))
    }

    /// Rejects the value of a key in an entry of a list.
    fn refuse(&mut self, entry: &Entry, key: &str, faults: impl IntoIterator<Item = Fault>) {
        for Fault { what, hint } in faults {
            let what = format!("{} {key} {what}", entry.title);
            self.problems
                .push(Problem::new(entry.origin(key), what).hint(hint));
        }
    }

    fn warn(&mut self, provenance: &Provenance, what: impl Into<String>, hint: &str) {
        self.warnings.push(Problem::new(provenance, what).hint(hint));
    }
}
