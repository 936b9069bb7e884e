//! Checks of `[write]` and its rules.

use std::time::Duration;

use shoal_base::spelling::suggestion;

use super::{Check, Entry, Problem};
use crate::config::{TierConfig, WriteMode, WriteRule};

/// With a lower age, the node would flush everything at once.
const AGE_MIN: Duration = Duration::from_secs(1);
/// No object is meant to stay longer in a tier.
const AGE_MAX: Duration = Duration::from_hours(7 * 24);
/// A permission withdrawn by the lake stays in effect for up to this time.
const PERMISSION_MAX: Duration = Duration::from_mins(10);

impl Check<'_> {
    pub(super) fn write(&mut self) {
        let write = &self.config.write;
        if write.default == WriteMode::Back {
            let hint =
                "write [[write.rule]] with mode = \"back\" and the prefixes that are to be written back";
            self.refuse("write", "default", "cannot be \"back\"", hint);
        }
        if !(AGE_MIN..=AGE_MAX).contains(&write.age) {
            let hint = "an object that is removed or overwritten in its tier costs no request to the lake; \
                        write a time in between, such as \"1m\"";
            self.refuse("write", "age", "is not between 1s and 7d", hint);
        }
        if write.permission > PERMISSION_MAX {
            let hint =
                "write at most 10m: for so long a client can write although the lake no longer permits it";
            self.refuse("write", "permission", "is longer than 10m", hint);
        }
        let tiers = self.all_tiers();
        let names: Vec<&str> = tiers.iter().map(|tier| &*tier.name).collect();
        for (rule, entry) in self.located.write_rules {
            match rule.mode {
                WriteMode::Back => self.back_rule(rule, entry, &names),
                mode => self.other_rule(mode, entry),
            }
        }
    }

    fn back_rule(&mut self, rule: &WriteRule, entry: &Entry, tiers: &[&str]) {
        let path = rule.prefix.trim_start_matches("s3://");
        if !path.contains('/') {
            let what = format!("prefix {:?} does not end the bucket's name", rule.prefix);
            let hint = "write s3://bucket/ for one bucket: without the slash it would be every bucket whose name begins so";
            self.refuse_entry(entry, "prefix", &what, hint);
        }
        match &rule.tier {
            _ if tiers.is_empty() => {
                let what = "mode cannot be \"back\" without a [[tier]]";
                let hint = "write [[tier]] with name = \"a\", folder = \"/ssd/tier\" and capacity = \"100GiB\" for nodes of one \
                            process; a cluster needs endpoint, bucket and registry in place of folder, see shoal.toml";
                self.refuse_entry(entry, "mode", what, hint);
            }
            None if rule.tier_in(tiers).is_none() => {
                let hint = format!("add tier = with one of {}", tiers.join(", "));
                self.refuse_entry(
                    entry,
                    "mode",
                    "mode = \"back\" does not say into which tier",
                    &hint,
                );
            }
            Some(name) if rule.tier_in(tiers).is_none() => {
                let hint = suggestion(name, tiers.iter().copied()).map_or_else(
                    || format!("the tiers are {}", tiers.join(", ")),
                    |known| format!("did you mean \"{known}\"?"),
                );
                self.refuse_entry(entry, "tier", &format!("tier cannot be {name:?}"), &hint);
            }
            _ => {}
        }
    }

    fn other_rule(&mut self, mode: WriteMode, entry: &Entry) {
        for key in ["tier", "lifetime", "fallback"]
            .into_iter()
            .filter(|key| entry.has(key))
        {
            let what = format!("{key} stands beside mode = \"{}\"", mode.as_str());
            let hint =
                "leave it out, or write mode = \"back\": only objects that are written back are in a tier";
            self.refuse_entry(entry, key, &what, hint);
        }
    }

    /// Returns every tier, those set by the caller before those of the file.
    pub(super) fn all_tiers(&self) -> Vec<TierConfig> {
        let of_file = self.located.tiers.iter().map(|(tier, _)| tier);
        self.config.tiers.iter().chain(of_file).cloned().collect()
    }

    /// Rejects an entry of a list, at the line of one of its keys.
    pub(super) fn refuse_entry(&mut self, entry: &Entry, key: &str, what: &str, hint: &str) {
        let what = format!("{} {what}", entry.title);
        self.problems
            .push(Problem::new(entry.origin(key), what).hint(hint));
    }
}
