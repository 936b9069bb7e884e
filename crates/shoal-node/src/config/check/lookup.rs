//! Checks of the name server's settings.

use std::collections::HashMap;

use super::{Check, PLACE_HINT, Problem, check_endpoint, is_domain, is_place, overlap};
use crate::config::problem::Provenance;

/// A node's name, of at least one label, is prepended to this name; together they must fit in the 253
/// characters of a domain name.
const NAME_LENGTH_MAX: usize = 189;
/// A datagram small enough for every client has no room for more addresses.
const ANSWERS_MAX: usize = 32;

impl Check<'_> {
    pub(super) fn lookup_settings(&mut self) {
        self.lookup_listen();
        self.lookup_name();
        self.lookup_nodes();
        self.lookup_access();
        self.lookup_answers();
        self.lookup_places();
    }

    fn lookup_listen(&mut self) {
        let listen = &self.config.lookup.listen;
        if listen.is_empty() {
            let hint = "write an address and a port, such as [\"10.0.0.53:53\"]";
            self.refuse("lookup", "listen", "names no address", hint);
        }
        let pairs = (0..listen.len()).flat_map(|b| (0..b).map(move |a| (listen[a], listen[b])));
        if let Some((a, b)) = pairs.into_iter().find(|(a, b)| overlap(*a, *b)) {
            let what = format!("names {b}, which collides with {a}");
            self.refuse("lookup", "listen", &what, "keep one of the two");
        }
        let admin = self.config.lookup.admin;
        let taken = admin.and_then(|admin| listen.iter().find(|listen| overlap(**listen, admin)));
        if let Some(taken) = taken {
            let what = format!("collides with listen, which names {taken}");
            self.refuse("lookup", "admin", &what, "choose another port");
        }
    }

    fn lookup_name(&mut self) {
        match &self.config.lookup.name {
            None => {
                let hint = "write the name that clients use as their endpoint, such as s3.example.org";
                self.refuse("lookup", "name", "is not set", hint);
            }
            Some(name) if !is_domain(name) || name.len() > NAME_LENGTH_MAX => {
                let hint = format!(
                    "write a DNS name of at most {NAME_LENGTH_MAX} characters without scheme or port, such as s3.example.org"
                );
                self.refuse("lookup", "name", "is not a domain", &hint);
            }
            Some(_) => {}
        }
    }

    fn lookup_nodes(&mut self) {
        const HINT: &str = "write admin addresses of nodes, such as [\"http://10.0.0.1:9100\"]";
        let nodes = &self.config.lookup.nodes;
        if nodes.is_empty() {
            self.refuse("lookup", "nodes", "names no node to ask for the members", HINT);
        }
        for (index, url) in nodes.iter().enumerate() {
            let problem = match check_endpoint(url) {
                Err(why) => Some(format!("names {url:?}, which {why}")),
                Ok(()) if nodes[..index].contains(url) => Some(format!("names {url:?} twice")),
                Ok(()) => None,
            };
            if let Some(what) = problem {
                self.refuse("lookup", "nodes", &what, HINT);
            }
        }
    }

    fn lookup_access(&mut self) {
        let lookup = &self.config.lookup;
        for (key, path) in [
            ("nodes_token_file", &lookup.nodes_token_file),
            ("nodes_ca_file", &lookup.nodes_ca_file),
        ] {
            self.can_be_read("lookup", key, path.as_deref(), "name a file that shoal may read");
        }
    }

    fn lookup_answers(&mut self) {
        let lookup = &self.config.lookup;
        if !(1..=ANSWERS_MAX).contains(&lookup.answers) {
            let hint = format!("write a number from 1 to {ANSWERS_MAX}");
            self.refuse("lookup", "answers", "is not a number of addresses", &hint);
        }
    }

    fn lookup_places(&mut self) {
        let mut seen = HashMap::new();
        for (place, entry) in self.located.places {
            let provenance = entry.origin("network");
            if !is_place(&place.topology) {
                let what = format!("[[lookup.place]] topology cannot be {:?}", place.topology);
                self.problems
                    .push(Problem::new(provenance, what).hint(PLACE_HINT));
            }
            if let Some(first) = seen.insert(place.network, provenance) {
                let what = format!("[[lookup.place]] network {} is written twice", place.network);
                let hint = format!("the first stands at {first}");
                self.problems.push(Problem::new(provenance, what).hint(hint));
            }
        }
        if self.located.places.is_empty() {
            let what = "no [[lookup.place]] says where clients are";
            let hint =
                "all nodes are equally far from every client; write the places of the networks of your racks";
            self.warnings
                .push(Problem::new(&Provenance::Default, what).hint(hint));
        }
    }
}
