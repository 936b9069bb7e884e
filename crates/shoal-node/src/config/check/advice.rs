//! Warnings about settings that are valid but rarely intended, each with advice.

use super::Check;
use crate::config::problem::Provenance;
use crate::config::{Config, CooperationMode, FreshnessMode, WriteMode};

impl Check<'_> {
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
        if !self.lists.identities.is_empty() || !self.config.identities.is_empty() {
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
        let tiers = self.all_tiers();
        let of_file = self.lists.write_rules.iter().map(|(rule, _)| rule);
        let rules = self.config.write.rules.iter().chain(of_file);
        let back = rules.filter(|rule| rule.mode == WriteMode::Back);
        let names: Vec<&str> = tiers.iter().map(|tier| &*tier.name).collect();
        let used: Vec<usize> = back.filter_map(|rule| rule.tier_in(&names)).collect();
        let below_file = self.config.tiers.len();
        for (position, (tier, entry)) in self.lists.tiers.iter().enumerate() {
            if !used.contains(&(below_file + position)) {
                let name = &tier.name;
                let what = format!("[[tier]] {name} is not used: no [[write.rule]] writes back into it");
                let hint = format!("write a [[write.rule]] with mode = \"back\" and tier = \"{name}\"");
                self.warn(entry.origin("name"), what, &hint);
            }
        }
    }

    fn advise_on_coherent_objects(&mut self) {
        let coherent = self.lists.freshness_rules.iter();
        for (rule, entry) in coherent.filter(|(rule, _)| rule.mode == FreshnessMode::Coherent) {
            let mut written_back = self.lists.write_rules.iter().map(|(rule, _)| rule);
            let below = written_back
                .find(|back| back.mode == WriteMode::Back && rule.prefix.starts_with(&back.prefix));
            if let Some(back) = below {
                let what = format!(
                    "objects below {} are written back, so their freshness is revalidate and not coherent",
                    back.prefix
                );
                let hint = "leave the rule out, or write these objects through";
                self.warn(entry.origin("prefix"), what, hint);
            }
        }
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
