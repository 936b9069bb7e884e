//! Warnings about settings that a node can run with although few operators mean them, each with advice.

use super::Check;
use crate::config::problem::{Problem, Provenance};
use crate::config::{CooperationMode, WriteMode};

impl Check<'_> {
    pub(super) fn advice(&mut self) {
        self.advise_on_admin();
        self.advise_on_identities();
        self.advise_on_seeds();
        self.advise_on_writing_back();
    }

    fn warn(&mut self, provenance: &Provenance, what: impl Into<String>, hint: &str) {
        self.warnings.push(Problem::new(provenance, what).hint(hint));
    }

    fn advise_on_admin(&mut self) {
        let listen = self.config.admin.listen;
        if listen.ip().is_loopback() {
            return;
        }
        let provenance = self.located.draft.provenance("admin", "listen");
        self.warn(
            provenance,
            format!(
                "[admin] listen ({listen}) is not on loopback: every machine that reaches it may order this node to \
                 drain and to flush"
            ),
            "let a firewall restrict access to it, or write 127.0.0.1 as its address",
        );
    }

    fn advise_on_identities(&mut self) {
        if !self.located.identities.is_empty() || !self.config.identities.is_empty() {
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
            let provenance = self.located.draft.provenance("cooperation", "mode");
            self.warn(
                provenance,
                "[cooperation] seeds is empty: this node finds no other node by itself",
                "write host:port of the listen of one or two other nodes, or mode = \"solo\" for a node that \
                 caches alone",
            );
        }
        if address.ip().is_loopback() && !others_are_here {
            let provenance = self.located.draft.provenance("cooperation", "listen");
            self.warn(
                provenance,
                format!("[cooperation] listen ({address}) is on loopback: no node on another machine reaches this one"),
                "write an address of this machine that the other nodes reach, and the same secret_key_file on \
                 all of them",
            );
        }
    }

    fn advise_on_writing_back(&mut self) {
        let rules = self.located.write_rules;
        let back = rules.iter().find(|rule| rule.mode == WriteMode::Back);
        let (provenance, what) = match back {
            Some(rule) => (&rule.mode_origin, "[[write.rule]] mode = \"back\""),
            None if self.config.write.allow_volatile => (
                self.located.draft.provenance("write", "allow_volatile"),
                "[write] allow_volatile",
            ),
            None => return,
        };
        self.warn(
            provenance,
            format!(
                "{what} is an experiment: it can lose acknowledged objects, and bring back objects that were \
                 overwritten or removed, even when nothing fails"
            ),
            "do not use it for data you need; mode = \"through\" acknowledges only what the lake has. A durable \
             tier is to replace it",
        );
    }
}

/// Whether a seed (`host:port`) names this machine.
fn is_on_loopback(seed: &str) -> bool {
    let address = seed.parse::<std::net::SocketAddr>();
    address.map_or_else(
        |_| seed.starts_with("localhost:"),
        |address| address.ip().is_loopback(),
    )
}
