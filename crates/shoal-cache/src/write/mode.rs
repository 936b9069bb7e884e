//! Chooses the mode of a write, by its header or else by the rules. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use shoal_registry::Lifetime;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::hop_by_hop::{LIFETIME_HEADER, MODE_HEADER};
use shoal_s3::identity::Caller;
use shoal_s3::object::ObjectName;
use shoal_s3::prefix::ByPrefix;
use shoal_s3::uri::S3Uri;

use super::config::{Fallback, PackConfig, WriteConfig, WriteMode, WriteRule};

/// The reason why a request's mode or lifetime is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    /// 400
    #[error("The header x-shoal-write must be one of: around, through, back.")]
    Unknown,
    /// 400
    #[error(
        "The write mode back is only for objects that a [[write.rule]] with mode = \"back\" covers. Use around or through, or another prefix."
    )]
    NotBelowBackRule,
    /// 400
    #[error("The header x-shoal-lifetime must be one of: normal, short.")]
    UnknownLifetime,
}

impl From<ModeError> for S3Error {
    fn from(error: ModeError) -> Self {
        Self::new(ErrorCode::InvalidArgument, error.to_string())
    }
}

/// Returns the lifetime that the writer expects of its object, or `None` if the request does not have the
/// header.
///
/// # Errors
///
/// The header names no known lifetime.
pub fn lifetime_in(headers: &HeaderMap) -> Result<Option<Lifetime>, ModeError> {
    let mut words = headers.get_all(LIFETIME_HEADER).iter();
    match (words.next().map(HeaderValue::as_bytes), words.next()) {
        (None, _) => Ok(None),
        (Some(b"normal"), None) => Ok(Some(Lifetime::Normal)),
        (Some(b"short"), None) => Ok(Some(Lifetime::Short)),
        _ => Err(ModeError::UnknownLifetime),
    }
}

/// A rule that writes objects back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackRule {
    /// The position of the rule in the configuration.
    pub number: usize,
    /// The position of the tier in the configuration.
    pub tier: usize,
    /// How long the objects are expected to live.
    pub lifetime: Lifetime,
    /// The response to writes when the tier cannot accept them.
    pub fallback: Fallback,
    /// The access keys of the identities, and the ARNs of the roles, that may read dirty objects of others.
    pub readers: Arc<[String]>,
    /// The access key of the identity that flushes for writers that are no longer known.
    pub flush_as: Option<Arc<str>>,
    /// How small objects are packed; `None` if they are not.
    pub pack: Option<Arc<PackSettings>>,
}

/// How the small objects of one rule are packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackSettings {
    /// The bucket of the rule.
    pub bucket: String,
    /// The prefix of the rule's keys: empty, or with a slash at the end.
    pub key_prefix: Vec<u8>,
    /// Sizes, times, and the keeper.
    pub config: PackConfig,
}

impl BackRule {
    /// Returns true if the caller may read dirty objects that others wrote.
    pub fn allows_reader(&self, caller: &Caller) -> bool {
        matches!(caller, Caller::Identity(identity) if self.readers.iter().any(|reader| identity.is_called(reader)))
    }
}

/// A rule as requests need it.
#[derive(Clone, Debug)]
struct Target {
    mode: WriteMode,
    /// `None` unless it writes back.
    back: Option<BackRule>,
}

fn target(number: usize, rule: &WriteRule, tiers: &[&str]) -> Target {
    let back = || BackRule {
        number,
        tier: rule
            .tier_in(tiers)
            .expect("the checks of the configuration find the tier of each rule"),
        lifetime: rule.lifetime,
        fallback: rule.fallback,
        readers: rule.readers.as_slice().into(),
        flush_as: rule.flush_as.as_deref().map(Arc::from),
        pack: pack_settings(rule).map(Arc::new),
    };
    Target {
        mode: rule.mode,
        back: (rule.mode == WriteMode::Back).then(back),
    }
}

fn pack_settings(rule: &WriteRule) -> Option<PackSettings> {
    let config = rule.pack.clone()?;
    let uri: S3Uri = rule.prefix.parse().ok()?;
    Some(PackSettings {
        bucket: uri.bucket,
        key_prefix: uri.key.into(),
        config,
    })
}

/// The rules of `[write]`.
#[derive(Clone, Debug)]
pub struct WriteRules(ByPrefix<Target>);

impl WriteRules {
    /// Parses the configured rules, for these tiers.
    ///
    /// # Panics
    ///
    /// Panics if a rule writes back to a tier that does not exist, which the configuration checks reject.
    pub fn new(config: &WriteConfig, tiers: &[&str]) -> Self {
        let default = WriteRule::new("", config.default);
        let rules = (0..).zip(&config.rules);
        let rules = rules.map(|(number, rule)| (rule.prefix.as_str(), target(number, rule, tiers)));
        // The default is not one of the rules, and never writes back.
        Self(ByPrefix::new(target(0, &default, tiers), rules))
    }

    /// Returns the mode in which a request with these headers writes `name`.
    ///
    /// # Errors
    ///
    /// The header names no known mode, or one that the rules do not allow for `name`.
    pub fn mode(&self, name: &ObjectName, headers: &HeaderMap) -> Result<WriteMode, ModeError> {
        let mut words = headers.get_all(MODE_HEADER).iter();
        let mode = match (words.next(), words.next()) {
            (None, _) => Some(self.0.get(name).mode),
            (Some(word), None) => WriteMode::ALL.into_iter().find(|mode| word == mode.as_str()),
            (Some(_), Some(_)) => None,
        };
        match mode.ok_or(ModeError::Unknown)? {
            // Reads look for dirty objects only where the rules allow them.
            WriteMode::Back if !self.allow_back(name) => Err(ModeError::NotBelowBackRule),
            mode => Ok(mode),
        }
    }

    /// Returns the rule that writes objects of this name back; `None` if the object may not be dirty.
    pub fn back_rule(&self, name: &ObjectName) -> Option<&BackRule> {
        self.0.get(name).back.as_ref()
    }

    /// Returns the settings of each rule that packs, with the position of its tier.
    pub fn packing(&self) -> impl Iterator<Item = &BackRule> {
        let rules = self.0.values().filter_map(|target| target.back.as_ref());
        rules.filter(|rule| rule.pack.is_some())
    }

    /// Returns true if an object of this name may be dirty.
    pub fn allow_back(&self, name: &ObjectName) -> bool {
        self.back_rule(name).is_some()
    }

    /// Returns the buckets and key prefixes below which objects may be dirty.
    pub fn back_prefixes(&self) -> Vec<(String, Vec<u8>)> {
        self.0.prefixes(|target| target.back.is_some())
    }

    /// Returns true if an object of `bucket` whose key begins with `prefix` may be dirty.
    pub fn allow_back_below(&self, bucket: &str, prefix: &[u8]) -> bool {
        !self.tiers_below(bucket, prefix).is_empty()
    }

    /// Returns the positions of the tiers that may hold dirty objects of `bucket` with this prefix.
    pub fn tiers_below(&self, bucket: &str, prefix: &[u8]) -> BTreeSet<usize> {
        let targets = self.0.below(bucket, prefix);
        targets
            .filter_map(|target| Some(target.back.as_ref()?.tier))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderMap;
    use shoal_registry::Lifetime;
    use shoal_s3::identity::{Caller, Identity};
    use shoal_s3::object::ObjectName;

    use super::{BackRule, LIFETIME_HEADER, MODE_HEADER, ModeError, WriteRules, lifetime_in};
    use crate::write::{Fallback, WriteConfig, WriteMode, WriteRule};

    fn back(prefix: &str, tier: &str, lifetime: Lifetime) -> WriteRule {
        WriteRule {
            tier: Some(tier.into()),
            lifetime,
            ..WriteRule::new(prefix, WriteMode::Back)
        }
    }

    fn rules() -> WriteRules {
        let rules = vec![
            WriteRule::new("s3://b/x/", WriteMode::Through),
            back("s3://b/tmp/", "first", Lifetime::Normal),
            back("s3://b/tmp/short/", "second", Lifetime::Short),
            WriteRule::new("s3://b/tmp/kept/", WriteMode::Around),
        ];
        let config = WriteConfig {
            rules,
            ..WriteConfig::default()
        };
        WriteRules::new(&config, &["first", "second"])
    }

    fn name(key: &str) -> ObjectName {
        ObjectName {
            bucket: "b".into(),
            key: key.as_bytes().into(),
            version: None,
        }
    }

    fn mode(key: &str, words: &[&'static str]) -> Result<WriteMode, ModeError> {
        let mut headers = HeaderMap::new();
        for word in words {
            headers.append(MODE_HEADER, word.parse().unwrap());
        }
        rules().mode(&name(key), &headers)
    }

    #[test]
    fn the_header_wins_over_the_rule_and_the_rule_over_the_default() {
        assert_eq!(mode("y", &[]), Ok(WriteMode::Around));
        assert_eq!(mode("x/y", &[]), Ok(WriteMode::Through));
        assert_eq!(mode("x/y", &["around"]), Ok(WriteMode::Around));
        assert_eq!(mode("y", &["through"]), Ok(WriteMode::Through));
    }

    #[test]
    fn an_unknown_mode_is_refused() {
        for words in [&["beside"][..], &[""], &["Through"], &["around", "around"]] {
            assert_eq!(mode("y", words), Err(ModeError::Unknown), "{words:?}");
        }
    }

    #[test]
    fn a_writer_may_say_how_long_its_object_will_live_in_one_of_two_words() {
        let unknown = Err(ModeError::UnknownLifetime);
        for (words, expected) in [
            (&[][..], Ok(None)),
            (&["normal"], Ok(Some(Lifetime::Normal))),
            (&["short"], Ok(Some(Lifetime::Short))),
            (&["Short"], unknown),
            (&[""], unknown),
            (&["short", "short"], unknown),
        ] {
            let mut headers = HeaderMap::new();
            for word in words {
                headers.append(LIFETIME_HEADER, word.parse().unwrap());
            }
            assert_eq!(lifetime_in(&headers), expected, "{words:?}");
        }
    }

    #[test]
    fn only_what_a_rule_covers_is_written_back() {
        assert_eq!(mode("tmp/y", &[]), Ok(WriteMode::Back));
        assert_eq!(mode("tmp/y", &["back"]), Ok(WriteMode::Back));
        assert_eq!(mode("tmp/y", &["around"]), Ok(WriteMode::Around));
        for key in ["y", "x/y", "tm", "tmp/kept/y"] {
            assert_eq!(mode(key, &["back"]), Err(ModeError::NotBelowBackRule), "{key}");
        }
    }

    #[test]
    fn the_longest_rule_says_in_which_tier_a_dirty_object_is() {
        let found = |key| {
            rules()
                .back_rule(&name(key))
                .map(|rule| (rule.tier, rule.lifetime))
        };
        assert_eq!(found("tmp/y"), Some((0, Lifetime::Normal)));
        assert_eq!(found("tmp/short/y"), Some((1, Lifetime::Short)));
        assert_eq!(
            (found("tmp/kept/y"), found("x/y"), found("y")),
            (None, None, None)
        );
    }

    #[test]
    fn a_rule_without_a_tier_means_the_only_one() {
        let config = WriteConfig {
            rules: vec![WriteRule::new("s3://b/", WriteMode::Back)],
            ..WriteConfig::default()
        };
        let rules = WriteRules::new(&config, &["only"]);
        let lifetime = Lifetime::Normal;
        assert_eq!(
            rules.back_rule(&name("k")),
            Some(&BackRule {
                number: 0,
                tier: 0,
                lifetime,
                fallback: Fallback::Through,
                readers: Arc::new([]),
                flush_as: None,
                pack: None,
            })
        );
    }

    #[test]
    fn a_rule_allows_the_readers_that_it_names_and_no_anonymous_caller() {
        let named = WriteRule {
            readers: vec!["AK2".into(), "AK3".into()],
            ..WriteRule::new("s3://b/tmp/", WriteMode::Back)
        };
        let config = WriteConfig {
            rules: vec![named, WriteRule::new("s3://b/tmp/own/", WriteMode::Back)],
            ..WriteConfig::default()
        };
        let rules = WriteRules::new(&config, &["only"]);
        let allows = |key, caller: &Caller| rules.back_rule(&name(key)).unwrap().allows_reader(caller);
        let identity = |key| Caller::Identity(Arc::new(Identity::new(key, "secret")));
        assert!(allows("tmp/y", &identity("AK2")) && allows("tmp/y", &identity("AK3")));
        assert!(!allows("tmp/y", &identity("AK")) && !allows("tmp/y", &Caller::Anonymous));
        assert!(!allows("tmp/own/y", &identity("AK2")), "the longest rule applies");
    }

    #[test]
    fn a_listing_may_show_dirty_objects_of_the_tiers_whose_rules_it_meets() {
        let tiers = |bucket, prefix: &str| rules().tiers_below(bucket, prefix.as_bytes());
        for prefix in ["", "t", "tmp/"] {
            assert!(tiers("b", prefix).into_iter().eq([0, 1]), "{prefix}");
        }
        assert!(tiers("b", "tmp/a/").into_iter().eq([0]));
        assert!(tiers("b", "tmp/short/").into_iter().eq([1]));
        for (bucket, prefix) in [("b", "x/"), ("b", "tmpa"), ("b", "tmp/kept/"), ("c", "")] {
            assert!(tiers(bucket, prefix).is_empty(), "{prefix}");
            assert!(!rules().allow_back_below(bucket, prefix.as_bytes()), "{prefix}");
        }
    }
}
