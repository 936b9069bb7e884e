//! Validates the values of a configuration against each other and against the machine.
//!
//! `rules` is the table of what a single setting must not be, `lists`, `quotas` and `tier` have those for the
//! entries of lists, `advice` warns about values that are valid and rarely intended.

mod advice;
mod lists;
mod quotas;
mod rules;
mod texts;
mod tier;

use super::load::file::{Entry, File};
use super::problem::{Fault, Problem, Provenance, Report};
use super::settings::ConfigDraft;
use super::{Config, Role};

/// Reports all problems and all warnings in the sections that `role` reads. Every entry of `file` is valid in
/// itself, so the lists of the draft have one value for each.
pub(super) fn check(draft: &ConfigDraft, file: &File, role: Role, report: &mut Report) {
    let mut check = Check {
        draft,
        file,
        config: &draft.config,
        report,
    };
    for rule in rules::RULES.iter().filter(|rule| role.reads(rule.section)) {
        let provenance = draft.provenance(rule.section, rule.key);
        let faults = (rule.faults)(&draft.config).into_iter();
        check
            .report
            .problems
            .extend(faults.map(|fault| fault.of(rule, provenance)));
    }
    match role {
        Role::Node => {
            check.entries();
            check.advice();
        }
        Role::Dev => check.entries(),
        Role::Lookup => check.places(),
    }
}

struct Check<'a> {
    draft: &'a ConfigDraft,
    file: &'a File,
    config: &'a Config,
    report: &'a mut Report,
}

impl<'a> Check<'a> {
    /// Returns the values of a list, each with its text in the file.
    fn list<T>(
        &self,
        title: &'static str,
        values: &'a [T],
    ) -> impl Iterator<Item = (&'a T, &'a Entry)> + use<'a, T> {
        let entries = self.file.list(title);
        debug_assert_eq!(
            self.file.list(title).count(),
            values.len(),
            "each entry has one value"
        );
        values.iter().zip(entries)
    }

    /// Rejects the value of a key in an entry of a list.
    fn refuse(&mut self, entry: &Entry, key: &str, faults: impl IntoIterator<Item = Fault>) {
        let name = format!("{} {key}", entry.title);
        let faults = faults.into_iter();
        self.report
            .problems
            .extend(faults.map(|fault| fault.of(&name, entry.origin(key))));
    }

    fn warn(&mut self, provenance: &Provenance, what: impl Into<String>, hint: &str) {
        self.report.warnings.push(Problem::new(provenance, what, hint));
    }
}
