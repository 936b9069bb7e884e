//! Validates the values of a configuration against each other and against the machine.
//!
//! `rules` is the table of what a single setting must not be, `lists` and `tier` check the entries of lists,
//! `advice` and `disk` warn about values that are valid and rarely intended.

mod advice;
mod disk;
mod lists;
mod rules;
mod texts;
mod tier;

use super::load::file::Entry;
use super::load::lists::Lists;
use super::problem::{Problem, Provenance};
use super::settings::ConfigDraft;
use super::{Config, Role, TierConfig};

/// Returns all problems and all warnings in the sections that `role` reads.
pub(super) fn check(draft: &ConfigDraft, lists: &Lists<'_>, role: Role) -> (Vec<Problem>, Vec<Problem>) {
    let mut check = Check {
        draft,
        lists,
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
    lists: &'a Lists<'a>,
    config: &'a Config,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Check<'_> {
    /// Rejects an entry of a list, at the line of one of its keys.
    fn refuse(&mut self, entry: &Entry, key: &str, what: &str, hint: &str) {
        let what = format!("{} {what}", entry.title);
        self.problems
            .push(Problem::new(entry.origin(key), what).hint(hint));
    }

    fn warn(&mut self, provenance: &Provenance, what: impl Into<String>, hint: &str) {
        self.warnings.push(Problem::new(provenance, what).hint(hint));
    }

    /// Returns every tier, those set by the caller before those of the file.
    fn all_tiers(&self) -> Vec<TierConfig> {
        let of_file = self.lists.tiers.iter().map(|(tier, _)| tier);
        self.config.tiers.iter().chain(of_file).cloned().collect()
    }
}
