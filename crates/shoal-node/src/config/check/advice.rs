//! Warnings about settings that are valid but rarely intended, each with advice.

use std::path::Path;

use rustix::fs::statvfs;
use shoal_base::amount::human_bytes;
use shoal_writeback::tier::{TierStoreConfig, is_in_memory};

use super::rules::{Rule, faults, others_reach, rules};
use super::{Check, Fault};
use crate::config::problem::Provenance;
use crate::config::settings::ConfigDraft;
use crate::config::{Config, CooperationMode, FreshnessMode, UnknownIdentities, WriteMode, WriteRule};

rules! {
    /// Values of single settings that are rarely meant.
    ADVICE: fn(&ConfigDraft) -> Vec<Fault>;

    admin listen: |draft| is_exposed(&draft.config).then(|| format!(
            "({}) is not on loopback: without token_file or client_ca every machine that reaches it may \
             look, and orders are taken from this machine only",
            draft.config.admin.listen
        )),
        "write tokens into a token_file, let a firewall restrict access, or write 127.0.0.1 as the address";
    cooperation listen: |draft| others_reach(&draft.config)
            .filter(|it| it.ip().is_loopback() && !others_are_here(&draft.config))
            .map(|it| format!("({it}) is on loopback: no node on another machine reaches this one")),
        "write an address of this machine that the other nodes reach, and the same secret_key_file on all of \
         them";
    lake bandwidth: |draft| has_less_than_a_block(&draft.config)
            .then_some("is less than one block a second: a cold read of a few bytes takes as long as its \
                        block"),
        "write what the link carries (kbit, Mbit and Gbit count bits), or lower [store] block_size";
    store path: |draft| (is_store_known(draft)
            && is_in_memory(made(&draft.config.store.path)).unwrap_or_default())
            .then(|| format!(
                "({}) is in memory: cached blocks take room that the machine needs for other work, and are \
                 gone when it restarts",
                draft.config.store.path.display()
            )),
        "name a folder on a disk of this machine";
    store capacity: |draft| is_store_known(draft)
            .then(|| beyond(&draft.config.store.path, draft.config.store.capacity_bytes))
            .flatten(),
        "write less than the file system holds: when it is full, the node stores no block";
}

impl<'a> Check<'a> {
    pub(super) fn advice(&mut self) {
        self.advise_on_identities();
        self.advise_on_seeds();
        for rule in ADVICE {
            let faults = (rule.faults)(self.draft).into_iter();
            let provenance = self.draft.provenance(rule.section, rule.key);
            self.report
                .warnings
                .extend(faults.map(|fault| fault.of(rule, provenance)));
        }
        self.advise_on_tiers();
        self.advise_on_quotas();
        self.advise_on_coherent_objects();
    }

    fn advise_on_identities(&mut self) {
        let Config {
            identities,
            sts,
            key_sources,
            s3,
            ..
        } = &self.config;
        let knows_any = !identities.is_empty() || sts.is_on() || !key_sources.is_empty();
        if knows_any || s3.unknown_identities == UnknownIdentities::Lake {
            return;
        }
        self.warn(
            &Provenance::Default,
            "there is no [[identity]]: this node refuses every signed request",
            "add an [[identity]] with access_key and secret_key_file for each client; requests without a \
             signature go to the lake as those of a stranger",
        );
    }

    fn advise_on_seeds(&mut self) {
        let cooperation = &self.config.cooperation;
        if cooperation.mode != CooperationMode::Solo && cooperation.seeds.is_empty() {
            let what = "[cooperation] seeds is empty: this node finds no other node by itself";
            let hint = "write host:port of the listen of one or two other nodes, or mode = \"solo\" for a \
                        node that caches alone";
            self.warn(self.draft.provenance("cooperation", "mode"), what, hint);
        }
    }

    fn advise_on_tiers(&mut self) {
        let names = self.config.tier_names();
        let used: Vec<_> = self.rules_back().map(|rule| rule.tier_in(&names)).collect();
        for (position, (tier, entry)) in self.list("[[tier]]", &self.config.tiers).enumerate() {
            // A tier in memory is rejected when it is opened.
            if let TierStoreConfig::Folder(folder) = &tier.store
                && let Some(what) = beyond(folder, tier.capacity_bytes)
            {
                let what = format!("capacity of [[tier]] {} {what}", tier.name);
                let hint = "write less than the file system holds: when it is full, writes are answered 503";
                self.warn(entry.origin("capacity"), what, hint);
            }
            if !used.contains(&Some(position)) {
                let name = &tier.name;
                let what = format!("[[tier]] {name} is not used: no [[write.rule]] writes back into it");
                let hint = format!("write a [[write.rule]] with mode = \"back\" and tier = \"{name}\"");
                self.warn(entry.origin("name"), what, &hint);
            }
        }
    }

    fn advise_on_coherent_objects(&mut self) {
        let rules = self.list("[[freshness.rule]]", &self.config.freshness.rules);
        for (rule, entry) in rules.filter(|(rule, _)| rule.mode == FreshnessMode::Coherent) {
            if let Some(back) = self
                .rules_back()
                .find(|back| rule.prefix.starts_with(&back.prefix))
            {
                let what = format!(
                    "objects below {} are written back, so their freshness is revalidate and not coherent",
                    back.prefix
                );
                let hint = "leave the rule out, or write these objects through";
                self.warn(entry.origin("prefix"), what, hint);
            }
        }
    }

    fn rules_back(&self) -> impl Iterator<Item = &'a WriteRule> + use<'a> {
        let rules = self.config.write.rules.iter();
        rules.filter(|rule| rule.mode == WriteMode::Back)
    }
}

/// Returns true if other machines may read the pages for operators.
fn is_exposed(config: &Config) -> bool {
    let admin = &config.admin;
    !admin.listen.ip().is_loopback() && admin.token_file.is_none() && admin.client_ca.is_none()
}

fn has_less_than_a_block(config: &Config) -> bool {
    let bandwidth = config.lake.bandwidth;
    bandwidth.is_some_and(|bandwidth| bandwidth.bytes_per_second < config.store.block_bytes)
}

/// Returns true if the folder of the store is on the disk that the node will use. The default folder may be
/// on one that is mounted before the node starts.
fn is_store_known(draft: &ConfigDraft) -> bool {
    let is_named = *draft.provenance("store", "path") != Provenance::Default;
    is_named || draft.config.store.path.exists()
}

/// Returns true if all seeds name this machine.
fn others_are_here(config: &Config) -> bool {
    let seeds = &config.cooperation.seeds;
    !seeds.is_empty() && seeds.iter().all(|seed| is_on_loopback(seed))
}

/// Returns true if a seed (`host:port`) names this machine.
fn is_on_loopback(seed: &str) -> bool {
    let address = seed.parse::<std::net::SocketAddr>();
    address.map_or_else(
        |_| seed.starts_with("localhost:"),
        |address| address.ip().is_loopback(),
    )
}

/// Returns the folder, or its nearest existing ancestor.
fn made(folder: &Path) -> &Path {
    let mut ancestors = folder.ancestors();
    ancestors.find(|ancestor| ancestor.exists()).unwrap_or(folder)
}

/// Returns a message if a capacity exceeds the size of the folder's file system.
fn beyond(folder: &Path, capacity_bytes: u64) -> Option<String> {
    let disk = statvfs(made(folder)).ok()?;
    let in_all = disk.f_blocks.saturating_mul(disk.f_frsize);
    // Some file systems report a size of zero.
    let is_beyond = in_all > 0 && capacity_bytes > in_all;
    is_beyond.then(|| {
        format!(
            "({}) is more than its file system has: {}",
            human_bytes(capacity_bytes),
            human_bytes(in_all)
        )
    })
}
