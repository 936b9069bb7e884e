//! The zone of the name server: the meaning of each name.

use hickory_proto::ProtoError;
use hickory_proto::rr::Name;

/// The labels before the service name in SRV questions (RFC 2782).
const SERVICE: [&str; 2] = ["_s3", "_tcp"];

/// The service name and the names below it.
#[derive(Clone, Debug)]
pub struct Zone {
    name: Name,
}

/// The meaning of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The service name: the nearest nodes.
    Service,
    /// `_s3._tcp` below it, which has only SRV records.
    ServiceRecords,
    /// `_tcp` below it, which has no records itself but a name below it.
    Empty,
    /// A name that a node could have, in lower case.
    Node(String),
    /// A name that is not below the service name and belongs to another server.
    Outside,
}

impl Zone {
    /// Creates the zone of a service name.
    ///
    /// # Errors
    ///
    /// Fails if `name` is not a domain name.
    pub fn new(name: &str) -> Result<Self, ProtoError> {
        let mut name = Name::from_ascii(name)?;
        name.set_fqdn(true);
        Ok(Self { name })
    }

    /// The service name.
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the meaning of `name`.
    pub fn subject(&self, name: &Name) -> Subject {
        if !self.name.zone_of(name) {
            return Subject::Outside;
        }
        // Counted here because the library does not count a `*`.
        let below = name.iter().len() - self.name.iter().len();
        let labels: Vec<String> = name
            .iter()
            .take(below)
            .map(|label| String::from_utf8_lossy(label).to_lowercase())
            .collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        match labels.as_slice() {
            [] => Subject::Service,
            labels if *labels == SERVICE => Subject::ServiceRecords,
            labels if *labels == SERVICE[1..] => Subject::Empty,
            labels => Subject::Node(labels.join(".")),
        }
    }

    /// The domain name of a node; `None` if the node's name cannot be part of a domain name, such as `a..b`.
    pub fn node(&self, name: &str) -> Option<Name> {
        let relative = Name::from_labels(name.split('.').map(|label| label.to_lowercase().into_bytes()));
        relative.ok()?.append_domain(&self.name).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use hickory_proto::rr::Name;

    use super::{Subject, Zone};

    fn subject(name: &str) -> Subject {
        let zone = Zone::new("s3.Example.org").unwrap();
        zone.subject(&Name::from_str(name).unwrap())
    }

    #[test]
    fn a_name_is_the_service_a_node_or_foreign() {
        let cases = [
            ("s3.example.org.", Subject::Service),
            ("S3.EXAMPLE.ORG.", Subject::Service),
            ("_s3._tcp.s3.example.org.", Subject::ServiceRecords),
            ("_S3._TCP.s3.example.org.", Subject::ServiceRecords),
            ("_tcp.s3.example.org.", Subject::Empty),
            ("_s3.s3.example.org.", Subject::Node("_s3".into())),
            ("A1.s3.example.org.", Subject::Node("a1".into())),
            ("a.1.s3.example.org.", Subject::Node("a.1".into())),
            ("*.s3.example.org.", Subject::Node("*".into())),
            ("example.org.", Subject::Outside),
            ("xs3.example.org.", Subject::Outside),
            ("s3.example.com.", Subject::Outside),
            (".", Subject::Outside),
        ];
        for (name, expected) in cases {
            assert_eq!(subject(name), expected, "{name}");
        }
    }

    #[test]
    fn a_nodes_domain_name_leads_back_to_it() {
        let zone = Zone::new("s3.example.org").unwrap();
        for name in ["a1", "A1", "rack-1_a", "a.b", &"x".repeat(63)] {
            let domain = zone.node(name).unwrap();
            assert_eq!(zone.subject(&domain), Subject::Node(name.to_lowercase()));
        }
        for name in ["a..b", ".", "", ".a"] {
            assert_eq!(zone.node(name), None, "{name:?}");
        }
    }
}
