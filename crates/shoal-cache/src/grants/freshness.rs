//! How long an answer of the lake about permission and the current version may be reused, by prefix.

use std::time::Duration;

use shoal_directory::attachment::ANSWER_LIFE;
use shoal_s3::object::ObjectName;
use shoal_s3::prefix::ByPrefix;

/// How long such an answer may be reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreshnessMode {
    /// Ask the lake on every read.
    #[default]
    Revalidate,
    /// Objects never change under their name.
    Immutable,
    /// Reuse the answer for this long.
    Ttl(Duration),
    /// Reuse the answer until an object changes through some node ([`crate::nodes::coherence`]).
    Coherent,
}

/// How long a grant of the lake may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    /// Maximum age of the grant; zero if every read asks the lake.
    pub within: Duration,
    /// True if the grant also requires that the directory knows of no change of the object.
    pub coherent: bool,
}

impl Reuse {
    /// Every read asks the lake.
    pub const NEVER: Self = Self::within(Duration::ZERO);

    const fn within(within: Duration) -> Self {
        Self {
            within,
            coherent: false,
        }
    }
}

/// Default mode and exceptions by prefix; the longest matching prefix wins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FreshnessConfig {
    /// Mode of objects that match no rule.
    pub default: FreshnessMode,
    /// `[[freshness.rule]]`
    pub rules: Vec<FreshnessRule>,
}

/// An exception for a prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct FreshnessRule {
    /// `s3://bucket/prefix`
    pub prefix: String,
    /// Mode of objects with this prefix.
    pub mode: FreshnessMode,
}

impl FreshnessConfig {
    /// Returns true if any object may be coherent.
    pub fn has_coherent(&self) -> bool {
        let mut modes = self.rules.iter().map(|rule| rule.mode).chain([self.default]);
        modes.any(|mode| mode == FreshnessMode::Coherent)
    }
}

/// The rules of `[freshness]`.
#[derive(Clone, Debug)]
pub struct FreshnessRules(ByPrefix<FreshnessMode>);

impl FreshnessRules {
    /// Compiles the configured rules.
    pub fn new(config: &FreshnessConfig) -> Self {
        let rules = config.rules.iter().map(|rule| (rule.prefix.as_str(), rule.mode));
        Self(ByPrefix::new(config.default, rules))
    }

    /// Returns how long a grant for this object may be reused.
    pub fn reuse(&self, name: &ObjectName) -> Reuse {
        match self.0.get(name) {
            FreshnessMode::Revalidate => Reuse::NEVER,
            FreshnessMode::Immutable => Reuse::within(Duration::MAX),
            FreshnessMode::Ttl(ttl) => Reuse::within(*ttl),
            FreshnessMode::Coherent => Reuse {
                within: ANSWER_LIFE,
                coherent: true,
            },
        }
    }

    /// Returns true if this object is coherent.
    pub fn is_coherent(&self, name: &ObjectName) -> bool {
        *self.0.get(name) == FreshnessMode::Coherent
    }

    /// Returns true if any object of a bucket may be coherent.
    pub fn has_coherent_in(&self, bucket: &str) -> bool {
        self.0
            .below(bucket, b"")
            .any(|mode| *mode == FreshnessMode::Coherent)
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
            let name = ObjectName {
                bucket: bucket.into(),
                key: key.as_bytes().into(),
                version: None,
            };
            rules.reuse(&name).within
        };
        assert_eq!(reuse("data", "raw/x"), Duration::MAX);
        assert_eq!(reuse("data", "rawx"), Duration::from_secs(30));
        assert_eq!(reuse("other", "raw/x"), Duration::ZERO);
        assert_eq!(reuse("logs-2026", "x"), Duration::MAX);
        assert_eq!(reuse("dat", "a/raw"), Duration::ZERO);
    }
}
