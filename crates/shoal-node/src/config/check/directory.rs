//! Checks of `[directory]`.

use std::time::Duration;

use shoal_policy::eviction::PolicyName;

use super::{Check, address_for_others};
use crate::config::problem::Problem;
use crate::config::{CooperationMode, DirectoryConfig, FreshnessMode};

/// Redis on another machine cannot answer faster.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Beyond it, asking the lake is faster.
const TIMEOUT_MAX: Duration = Duration::from_secs(1);

impl Check<'_> {
    pub(super) fn directory(&mut self) {
        let DirectoryConfig { prefix, timeout, .. } = &self.config.directory;
        if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(timeout) {
            let hint = "write a time from 1ms to 1s; a reader waits for it at each block that is not here";
            self.refuse("directory", "timeout", "is too short or too long", hint);
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if prefix.is_empty() || !prefix.chars().all(is_plain) {
            let hint = "use letters, digits and . - _";
            self.refuse("directory", "prefix", "is not a prefix of keys", hint);
        }
        match self.config.directory.redis() {
            Some(redis) => {
                if let Err(error) = redis.check() {
                    let told = error.to_string();
                    let (what, hint) = told.split_once("\nhint: ").unwrap_or((&told, ""));
                    self.refuse("directory", "url", &format!("cannot be used: {what}"), hint);
                }
            }
            None => self.one_process_directory(),
        }
        let has_directory = self.config.cooperation.mode == CooperationMode::Directory;
        if self.config.store.policy.is_some_and(PolicyName::is_gwf) && !has_directory {
            let hint = "write duel, or [cooperation] mode = \"directory\"";
            self.refuse("store", "policy", "needs a directory", hint);
        }
        if !has_directory {
            self.coherent_without_directory();
        }
    }

    /// Without a directory, nodes cannot learn of each other's changes.
    fn coherent_without_directory(&mut self) {
        let (what, hint) = (
            "freshness \"coherent\" needs a directory",
            "write a time such as \"10s\", or [cooperation] mode = \"directory\"",
        );
        for (rule, entry) in self.located.freshness_rules {
            if rule.mode == FreshnessMode::Coherent {
                self.problems
                    .push(Problem::new(entry.origin("freshness"), what).hint(hint));
            }
        }
        if self.config.freshness.default == FreshnessMode::Coherent {
            let provenance = self.located.draft.provenance("freshness", "default");
            self.problems.push(Problem::new(provenance, what).hint(hint));
        }
    }

    /// Nodes in other processes would each have a directory of their own.
    fn one_process_directory(&mut self) {
        let cooperation = &self.config.cooperation;
        let address = address_for_others(cooperation);
        if cooperation.mode == CooperationMode::Directory && !address.ip().is_loopback() {
            let what = format!("is embedded, and nodes on other machines ({address}) have others");
            let hint = "write the URL of a Redis that all nodes reach, or [cooperation] mode = \"hierarchy\"";
            self.refuse("directory", "url", &what, hint);
        }
    }
}
