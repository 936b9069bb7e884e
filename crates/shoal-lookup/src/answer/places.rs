//! Maps client networks to places, by the longest prefix that contains the whole network.

use std::cmp::Reverse;

use ipnet::IpNet;
use shoal_node::config::{Lookup, LookupPlace};

/// Networks with known places.
#[derive(Clone, Debug)]
pub struct Places {
    /// Longest prefixes first.
    known: Vec<LookupPlace>,
}

impl Places {
    /// Creates the map from the configuration.
    pub fn new(lookup: &Lookup) -> Self {
        let mut known = lookup.places.clone();
        known.sort_by_key(|place| Reverse(place.network.prefix_len()));
        Self { known }
    }

    /// The place of a network's clients; `None` if it is unknown.
    pub fn locate(&self, clients: IpNet) -> Option<&LookupPlace> {
        self.known.iter().find(|place| place.network.contains(&clients))
    }

    /// The number of leading address bits for which the place is valid, at least those of `clients`. If
    /// `clients` contains a configured network, its clients may be in several places, and a resolver has to
    /// ask with more bits.
    pub fn scope(&self, clients: IpNet) -> u8 {
        let inside = self
            .known
            .iter()
            .find(|place| clients.contains(&place.network))
            .map(|place| place.network.prefix_len());
        inside.map_or(clients.prefix_len(), |inside| inside.max(clients.prefix_len()))
    }
}

#[cfg(test)]
mod tests {
    use shoal_node::config::{Lookup, LookupPlace};

    use super::Places;

    fn places() -> Places {
        let known = [
            ("10.0.0.0/8", "dc1"),
            ("10.1.0.0/16", "dc1/a/r1"),
            ("10.1.2.128/25", "dc1/a/r2"),
            ("fd00:1::/32", "dc1/a/r1"),
        ];
        let place = |(network, topology): (&str, &str)| LookupPlace {
            network: network.parse().unwrap(),
            topology: topology.into(),
        };
        Places::new(&Lookup {
            places: known.map(place).to_vec(),
            ..Lookup::default()
        })
    }

    #[test]
    fn the_longest_prefix_that_holds_all_of_the_network_wins() {
        let places = places();
        for (clients, expected) in [
            ("10.1.2.200/32", Some(("dc1/a/r2", "10.1.2.128/25"))),
            ("10.1.2.3/32", Some(("dc1/a/r1", "10.1.0.0/16"))),
            ("10.1.2.0/24", Some(("dc1/a/r1", "10.1.0.0/16"))),
            ("10.9.0.0/24", Some(("dc1", "10.0.0.0/8"))),
            ("10.0.0.0/7", None),
            ("192.0.2.1/32", None),
            ("fd00:1::7/128", Some(("dc1/a/r1", "fd00:1::/32"))),
            ("::/0", None),
        ] {
            let expected = expected.map(|(topology, network)| LookupPlace {
                network: network.parse().unwrap(),
                topology: topology.into(),
            });
            assert_eq!(
                places.locate(clients.parse().unwrap()),
                expected.as_ref(),
                "{clients}"
            );
        }
    }

    #[test]
    fn a_network_with_several_places_in_it_asks_for_more_bits() {
        let places = places();
        for (clients, scope) in [
            ("10.1.3.0/24", 24),
            ("10.1.2.0/24", 25),
            ("10.1.2.128/25", 25),
            ("10.1.0.0/16", 25),
            ("0.0.0.0/0", 25),
            ("10.1.2.200/32", 32),
            ("192.0.2.0/24", 24),
            ("fd00::/16", 32),
        ] {
            assert_eq!(places.scope(clients.parse().unwrap()), scope, "{clients}");
        }
    }
}
