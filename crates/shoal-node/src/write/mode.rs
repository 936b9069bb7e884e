//! Chooses the mode of a write: its header decides, or else the rules. Pure.

use http::HeaderMap;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::hop_by_hop::MODE_HEADER;
use shoal_s3::object::ObjectName;
use shoal_s3::prefix::ByPrefix;

use super::config::{WriteConfig, WriteMode};

/// Why a write has no mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    /// 400
    #[error("The header x-shoal-write must be one of: around, through, back.")]
    Unknown,
    /// 400
    #[error(
        "The write mode back is only for objects that a [[write.rule]] with mode = \"back\" covers. Use around or through, or another prefix."
    )]
    NotVolatile,
}

impl From<ModeError> for S3Error {
    fn from(error: ModeError) -> Self {
        Self::new(ErrorCode::InvalidArgument, error.to_string())
    }
}

/// The rules of `[write]`.
#[derive(Clone, Debug)]
pub struct WriteRules(ByPrefix<WriteMode>);

impl WriteRules {
    /// The rules as configured.
    pub fn new(config: &WriteConfig) -> Self {
        let rules = config.rules.iter().map(|rule| (rule.prefix.as_str(), rule.mode));
        Self(ByPrefix::new(config.default, rules))
    }

    /// The mode in which a request with these headers writes `name`.
    ///
    /// # Errors
    ///
    /// Fails if the header names no mode, or a mode that the rules do not allow for `name`.
    pub fn mode(&self, name: &ObjectName, headers: &HeaderMap) -> Result<WriteMode, ModeError> {
        let mut words = headers.get_all(MODE_HEADER).iter();
        let mode = match (words.next(), words.next()) {
            (None, _) => self.0.of(name),
            (Some(word), None) => word
                .to_str()
                .ok()
                .and_then(WriteMode::of_word)
                .ok_or(ModeError::Unknown)?,
            (Some(_), Some(_)) => return Err(ModeError::Unknown),
        };
        match mode {
            // Reads look for dirty objects only where the rules allow them.
            WriteMode::Back if !self.allow_back(name) => Err(ModeError::NotVolatile),
            mode => Ok(mode),
        }
    }

    /// Whether an object of this name may be dirty.
    pub fn allow_back(&self, name: &ObjectName) -> bool {
        self.0.of(name) == WriteMode::Back
    }

    /// The buckets, with prefixes of keys in them, below which objects may be dirty.
    pub fn back_prefixes(&self) -> Vec<(String, Vec<u8>)> {
        self.0.prefixes(|mode| mode == WriteMode::Back)
    }

    /// Whether any object may be dirty.
    pub fn allow_back_anywhere(&self) -> bool {
        self.0.any(|mode| mode == WriteMode::Back)
    }

    /// Whether any object of a bucket whose key begins with `prefix` may be dirty.
    pub fn allow_back_below(&self, bucket: &str, prefix: &[u8]) -> bool {
        self.0.any_below(bucket, prefix, |mode| mode == WriteMode::Back)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use shoal_s3::object::ObjectName;

    use super::{MODE_HEADER, ModeError, WriteRules};
    use crate::write::{WriteConfig, WriteMode, WriteRule};

    fn rule(prefix: &str, mode: WriteMode) -> WriteRule {
        WriteRule {
            prefix: prefix.into(),
            mode,
        }
    }

    fn rules() -> WriteRules {
        WriteRules::new(&WriteConfig {
            allow_volatile: true,
            rules: vec![
                rule("s3://b/x/", WriteMode::Through),
                rule("s3://b/tmp/", WriteMode::Back),
            ],
            ..WriteConfig::default()
        })
    }

    fn mode(key: &str, words: &[&'static str]) -> Result<WriteMode, ModeError> {
        let rules = rules();
        let mut headers = HeaderMap::new();
        for word in words {
            headers.append(MODE_HEADER, word.parse().unwrap());
        }
        let name = ObjectName {
            bucket: "b".into(),
            key: key.as_bytes().into(),
            version: None,
        };
        rules.mode(&name, &headers)
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
    fn only_what_a_rule_covers_is_written_back() {
        assert_eq!(mode("tmp/y", &[]), Ok(WriteMode::Back));
        assert_eq!(mode("tmp/y", &["back"]), Ok(WriteMode::Back));
        assert_eq!(mode("tmp/y", &["around"]), Ok(WriteMode::Around));
        for key in ["y", "x/y", "tm"] {
            assert_eq!(mode(key, &["back"]), Err(ModeError::NotVolatile), "{key}");
        }
    }

    #[test]
    fn a_listing_may_show_dirty_objects_where_it_meets_a_rule() {
        let meets = |bucket, prefix: &str| rules().allow_back_below(bucket, prefix.as_bytes());
        for prefix in ["", "t", "tmp/", "tmp/a/"] {
            assert!(meets("b", prefix), "{prefix}");
        }
        assert!(!meets("b", "x/") && !meets("b", "tmpa") && !meets("c", ""));
    }
}
