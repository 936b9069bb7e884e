//! Checks of the entries of lists, but for `[[tier]]`.

use std::collections::HashMap;
use std::hash::Hash;

use shoal_base::spelling::suggestion;
use shoal_s3::uri::S3Uri;

use super::texts::{ACCESS_KEY_HINT, PLACE_HINT, access_key_fault, is_place};
use super::{Check, Entry, Problem};
use crate::config::problem::Provenance;
use crate::config::{CooperationMode, FreshnessMode, WriteMode, WriteRule};

/// Maximum share of an identity. Next to it, an identity with share 1 still gets every thousandth turn.
const SHARE_MAX: u32 = 1000;

impl Check<'_> {
    /// Checks the entries of all lists that a node reads.
    pub(super) fn entries(&mut self) {
        let lists = self.lists;
        let rules = lists.freshness_rules.iter();
        self.prefixes(rules.map(|(rule, entry)| (&*rule.prefix, *entry)));
        let rules = lists.write_rules.iter();
        self.prefixes(rules.map(|(rule, entry)| (&*rule.prefix, *entry)));
        let tiers = self.all_tiers();
        let names: Vec<&str> = tiers.iter().map(|tier| &*tier.name).collect();
        for (rule, entry) in &lists.write_rules {
            match rule.mode {
                WriteMode::Back => self.back_rule(rule, entry, &names),
                mode => self.other_rule(mode, entry),
            }
        }
        self.tiers();
        if self.config.cooperation.mode != CooperationMode::Directory {
            self.coherent_without_directory();
        }
        self.identities();
    }

    fn prefixes<'r>(&mut self, rules: impl Iterator<Item = (&'r str, &'r Entry)>) {
        let mut uris = Vec::new();
        for (prefix, entry) in rules {
            match prefix.parse::<S3Uri>() {
                Ok(uri) => uris.push((uri, format!("{prefix:?}"), entry)),
                Err(why) => {
                    let what = format!("prefix cannot be {prefix:?}: {why}");
                    self.refuse(entry, "prefix", &what, "write s3://bucket/prefix/");
                }
            }
        }
        self.written_once("prefix", uris);
    }

    /// Rejects an entry that has the same value of `key` as an earlier one. Each entry comes with its value
    /// and a name for it.
    fn written_once<'e, V: Eq + Hash>(
        &mut self,
        key: &str,
        entries: impl IntoIterator<Item = (V, String, &'e Entry)>,
    ) {
        let mut seen = HashMap::new();
        for (value, name, entry) in entries {
            if let Some(first) = seen.insert(value, entry.origin(key)) {
                let hint = format!("the first stands at {first}");
                self.refuse(entry, key, &format!("{name} is written twice"), &hint);
            }
        }
    }

    fn back_rule(&mut self, rule: &WriteRule, entry: &Entry, tiers: &[&str]) {
        if !rule.prefix.trim_start_matches("s3://").contains('/') {
            let what = format!("prefix {:?} does not end the bucket's name", rule.prefix);
            let hint = "write s3://bucket/ for one bucket: without the slash it would be every bucket whose name begins so";
            self.refuse(entry, "prefix", &what, hint);
        }
        if tiers.is_empty() {
            let what = "mode cannot be \"back\" without a [[tier]]";
            let hint = "write [[tier]] with name = \"a\", folder = \"/ssd/tier\" and capacity = \"100GiB\" for nodes of one \
                        process; a cluster needs endpoint, bucket and registry in place of folder, see shoal.toml";
            self.refuse(entry, "mode", what, hint);
        } else if rule.tier_in(tiers).is_none() {
            let all = tiers.join(", ");
            let Some(name) = &rule.tier else {
                let (what, hint) = (
                    "mode = \"back\" does not say into which tier",
                    "add tier = with one of",
                );
                return self.refuse(entry, "mode", what, &format!("{hint} {all}"));
            };
            let hint = suggestion(name, tiers.iter().copied()).map_or_else(
                || format!("the tiers are {all}"),
                |known| format!("did you mean \"{known}\"?"),
            );
            self.refuse(entry, "tier", &format!("tier cannot be {name:?}"), &hint);
        }
    }

    fn other_rule(&mut self, mode: WriteMode, entry: &Entry) {
        let of_tiers = ["tier", "lifetime", "fallback"].into_iter();
        for key in of_tiers.filter(|key| entry.has(key)) {
            let what = format!("{key} stands beside mode = \"{}\"", mode.as_str());
            let hint =
                "leave it out, or write mode = \"back\": only objects that are written back are in a tier";
            self.refuse(entry, key, &what, hint);
        }
    }

    /// Without a directory, nodes cannot learn of each other's changes.
    fn coherent_without_directory(&mut self) {
        let rules = self.lists.freshness_rules.iter();
        let rules = rules.map(|(rule, entry)| (rule.mode, entry.origin("freshness")));
        let draft = self.draft;
        let default = (
            self.config.freshness.default,
            draft.provenance("freshness", "default"),
        );
        for (_, provenance) in rules
            .chain([default])
            .filter(|(mode, _)| *mode == FreshnessMode::Coherent)
        {
            let problem = Problem::new(provenance, "freshness \"coherent\" needs a directory");
            let hint = "write a time such as \"10s\", or [cooperation] mode = \"directory\"";
            self.problems.push(problem.hint(hint));
        }
    }

    fn identities(&mut self) {
        for (identity, entry) in &self.lists.identities {
            let mut refuse = |what: String, hint| self.refuse(entry, "access_key", &what, hint);
            let lake_key = identity.lake_access_key.as_deref();
            for (name, key) in [
                ("access_key", Some(&*identity.access_key)),
                ("lake_access_key", lake_key),
            ] {
                if let Some(why) = key.and_then(access_key_fault) {
                    refuse(format!("{name} {why}"), ACCESS_KEY_HINT);
                }
            }
            if !(1..=SHARE_MAX).contains(&identity.share) {
                let hint = "write 1 for an identity like the others, 2 for one with twice their turns";
                refuse(format!("share is not between 1 and {SHARE_MAX}"), hint);
            }
            match (lake_key, &identity.lake_secret_key) {
                (Some(_), None) => refuse(
                    "lake_access_key has no lake_secret_key".into(),
                    "add lake_secret_key_file (or lake_secret_key)",
                ),
                (None, Some(_)) => refuse(
                    "lake_secret_key has no lake_access_key".into(),
                    "add lake_access_key",
                ),
                _ => {}
            }
        }
        let identities = self.lists.identities.iter().map(|(identity, entry)| {
            let key = &identity.access_key;
            (key, format!("access_key \"{key}\""), *entry)
        });
        self.written_once("access_key", identities);
    }

    /// Checks the entries of the list that the name server reads.
    pub(super) fn places(&mut self) {
        for (place, entry) in &self.lists.places {
            if !is_place(&place.topology) {
                let what = format!("topology cannot be {:?}", place.topology);
                self.refuse(entry, "network", &what, PLACE_HINT);
            }
        }
        let places = self.lists.places.iter().map(|(place, entry)| {
            let network = place.network;
            (network, format!("network {network}"), *entry)
        });
        self.written_once("network", places);
        if self.lists.places.is_empty() {
            let what = "no [[lookup.place]] says where clients are";
            let hint =
                "all nodes are equally far from every client; write the places of the networks of your racks";
            self.warn(&Provenance::Default, what, hint);
        }
    }
}
