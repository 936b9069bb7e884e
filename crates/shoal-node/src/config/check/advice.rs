//! Warnings about settings that are valid but rarely intended, each with advice.

use super::Check;
use crate::config::problem::Provenance;
use crate::config::{Config, CooperationMode, FreshnessMode, WriteMode, WriteRule};

impl<'a> Check<'a> {
    pub(super) fn advice(&mut self) {
        self.advise_on_admin();
        self.advise_on_identities();
        self.advise_on_seeds();
        self.advise_on_link();
        self.advise_on_disks();
        self.advise_on_tiers();
        self.advise_on_coherent_objects();
    }

    fn advise_on_admin(&mut self) {
        let listen = self.config.admin.listen;
        let admin = &self.config.admin;
        if listen.ip().is_loopback() || admin.token_file.is_some() || admin.client_ca.is_some() {
            return;
        }
        let provenance = self.draft.provenance("admin", "listen");
        self.warn(
            provenance,
            format!(
                "[admin] listen ({listen}) is not on loopback: without token_file or client_ca every machine that \
                 reaches it may look, and orders are taken from this machine only"
            ),
            "write tokens into a token_file, let a firewall restrict access, or write 127.0.0.1 as the address",
        );
    }

    fn advise_on_identities(&mut self) {
        if !self.config.identities.is_empty() {
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
        if cooperation.mode == CooperationMode::Solo {
            return;
        }
        let (listen, seeds) = (cooperation.listen, &cooperation.seeds);
        let address = cooperation.advertise.unwrap_or(listen);
        let has_seeds = !seeds.is_empty();
        let others_are_here = has_seeds && seeds.iter().all(|seed| is_on_loopback(seed));
        if !has_seeds {
            let provenance = self.draft.provenance("cooperation", "mode");
            self.warn(
                provenance,
                "[cooperation] seeds is empty: this node finds no other node by itself",
                "write host:port of the listen of one or two other nodes, or mode = \"solo\" for a node that \
                 caches alone",
            );
        }
        if address.ip().is_loopback() && !others_are_here {
            let provenance = self.draft.provenance("cooperation", "listen");
            self.warn(
                provenance,
                format!("[cooperation] listen ({address}) is on loopback: no node on another machine reaches this one"),
                "write an address of this machine that the other nodes reach, and the same secret_key_file on \
                 all of them",
            );
        }
    }

    fn advise_on_link(&mut self) {
        let Config { lake, store, .. } = self.config;
        let Some(bandwidth) = lake.bandwidth else { return };
        if bandwidth.bytes_per_second >= store.block_bytes {
            return;
        }
        let provenance = self.draft.provenance("lake", "bandwidth");
        self.warn(
            provenance,
            "[lake] bandwidth is less than one block a second: a cold read of a few bytes takes as long as its block",
            "write what the link carries (kbit, Mbit and Gbit count bits), or lower [store] block_size",
        );
    }

    fn advise_on_tiers(&mut self) {
        let names = self.config.tier_names();
        let used: Vec<_> = self.rules_back().map(|rule| rule.tier_in(&names)).collect();
        for (position, (tier, entry)) in self.list("[[tier]]", &self.config.tiers).enumerate() {
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

/// Returns true if a seed (`host:port`) names this machine.
fn is_on_loopback(seed: &str) -> bool {
    let address = seed.parse::<std::net::SocketAddr>();
    address.map_or_else(
        |_| seed.starts_with("localhost:"),
        |address| address.ip().is_loopback(),
    )
}
