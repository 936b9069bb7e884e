//! How long an answer of the lake about permission and currency may be reused, by prefix.

use std::time::Duration;

use shoal_s3::object::ObjectName;
use shoal_s3::prefix::ByPrefix;

/// How long an answer about permission and currency may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreshnessMode {
    /// Ask the lake on every read.
    Revalidate,
    /// Objects never change under their name.
    Immutable,
    /// Reuse the answer for this long.
    Ttl(Duration),
}

/// Default and exceptions by prefix; the longest matching prefix wins.
#[derive(Clone, Debug, PartialEq)]
pub struct FreshnessConfig {
    /// Where no rule matches.
    pub default: FreshnessMode,
    /// `[[freshness.rule]]`
    pub rules: Vec<FreshnessRule>,
}

/// One exception.
#[derive(Clone, Debug, PartialEq)]
pub struct FreshnessRule {
    /// `s3://bucket/prefix`
    pub prefix: String,
    /// The mode of objects below it.
    pub mode: FreshnessMode,
}

impl Default for FreshnessConfig {
    fn default() -> Self {
        Self {
            default: FreshnessMode::Revalidate,
            rules: Vec::new(),
        }
    }
}

/// The rules of `[freshness]`.
#[derive(Clone, Debug)]
pub struct FreshnessRules(ByPrefix<FreshnessMode>);

impl FreshnessRules {
    /// The rules as configured.
    pub fn new(config: &FreshnessConfig) -> Self {
        let rules = config.rules.iter().map(|rule| (rule.prefix.as_str(), rule.mode));
        Self(ByPrefix::new(config.default, rules))
    }

    /// How long a yes of the lake holds for this object: with zero, every read asks.
    pub fn reuse(&self, name: &ObjectName) -> Duration {
        match self.0.of(name) {
            FreshnessMode::Revalidate => Duration::ZERO,
            FreshnessMode::Immutable => Duration::MAX,
            FreshnessMode::Ttl(ttl) => ttl,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_matching_prefix_decides() {
        let rule = |prefix: &str, mode| FreshnessRule {
            prefix: prefix.into(),
            mode,
        };
        let rules = FreshnessRules::new(&FreshnessConfig {
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
