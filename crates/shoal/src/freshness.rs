//! How long an answer of the lake about permission and currency may be reused, by prefix.

use std::time::Duration;

use crate::config::{Freshness, FreshnessMode};
use crate::object::ObjectName;

/// The rules of `[freshness]`, longest prefix first.
#[derive(Clone, Debug)]
pub struct FreshnessRules {
    rules: Vec<(Vec<u8>, FreshnessMode)>,
    default: FreshnessMode,
}

impl FreshnessRules {
    /// Orders the configured rules so that the first match is the longest.
    pub fn new(config: &Freshness) -> Self {
        let mut rules: Vec<_> = config
            .rules
            .iter()
            .map(|rule| {
                (
                    rule.prefix.trim_start_matches("s3://").as_bytes().to_vec(),
                    rule.mode,
                )
            })
            .collect();
        rules.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self {
            rules,
            default: config.default,
        }
    }

    /// How long a yes of the lake holds for this object: zero asks on every read.
    pub fn reuse(&self, name: &ObjectName) -> Duration {
        match self.mode(name) {
            FreshnessMode::Revalidate => Duration::ZERO,
            FreshnessMode::Immutable => Duration::MAX,
            FreshnessMode::Ttl(ttl) => ttl,
        }
    }

    fn mode(&self, name: &ObjectName) -> FreshnessMode {
        let matching = self.rules.iter().find(|(prefix, _)| starts_with(name, prefix));
        matching.map_or(self.default, |(_, mode)| *mode)
    }
}

/// Whether `bucket/key` starts with `prefix`, without joining the two.
fn starts_with(name: &ObjectName, prefix: &[u8]) -> bool {
    let mut path = name.bucket.bytes().chain([b'/']).chain(name.key.iter().copied());
    prefix.iter().all(|byte| path.next() == Some(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FreshnessRule;

    #[test]
    fn the_longest_matching_prefix_decides() {
        let rule = |prefix: &str, mode| FreshnessRule {
            prefix: prefix.into(),
            mode,
        };
        let rules = FreshnessRules::new(&Freshness {
            default: FreshnessMode::Revalidate,
            rules: vec![
                rule("s3://data/", FreshnessMode::Ttl(Duration::from_secs(30))),
                rule("s3://data/raw/", FreshnessMode::Immutable),
                rule("s3://logs", FreshnessMode::Immutable),
            ],
        });
        let reuse = |bucket: &str, key: &str| {
            rules.reuse(&ObjectName {
                bucket: bucket.into(),
                key: key.as_bytes().into(),
                version: None,
            })
        };
        assert_eq!(reuse("data", "raw/x"), Duration::MAX);
        assert_eq!(reuse("data", "rawx"), Duration::from_secs(30));
        assert_eq!(reuse("other", "raw/x"), Duration::ZERO);
        assert_eq!(reuse("logs-2026", "x"), Duration::MAX);
        assert_eq!(reuse("dat", "a/raw"), Duration::ZERO);
    }
}
