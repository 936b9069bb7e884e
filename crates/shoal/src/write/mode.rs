//! Which mode a write has: its header says so, or else the rules. Pure.

use http::{HeaderMap, HeaderName};

use crate::config::{Write, WriteMode};
use crate::front::error::{ErrorCode, S3Error};
use crate::object::ObjectName;
use crate::prefix::ByPrefix;

/// Names the mode of one write; this node's alone, the lake never sees it.
pub const MODE_HEADER: HeaderName = HeaderName::from_static("x-shoal-write");

/// Why a write has no mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    /// 400
    #[error("The header x-shoal-write must be one of: around, through, back.")]
    Unknown,
    /// 501
    #[error(
        "The write mode back is not available yet: writes are acknowledged once the lake has them. Use around or through."
    )]
    Unavailable,
}

impl From<ModeError> for S3Error {
    fn from(error: ModeError) -> Self {
        let code = match error {
            ModeError::Unknown => ErrorCode::InvalidArgument,
            ModeError::Unavailable => ErrorCode::NotImplemented,
        };
        Self::new(code, error.to_string())
    }
}

/// The rules of `[write]`.
#[derive(Clone, Debug)]
pub struct WriteRules(ByPrefix<WriteMode>);

impl WriteRules {
    /// The rules as configured.
    pub fn new(config: &Write) -> Self {
        let rules = config.rules.iter().map(|rule| (rule.prefix.as_str(), rule.mode));
        Self(ByPrefix::new(config.default, rules))
    }

    /// How `name` is written by a request with these headers.
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
            WriteMode::Back => Err(ModeError::Unavailable),
            mode => Ok(mode),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::{MODE_HEADER, ModeError, WriteRules};
    use crate::config::{Write, WriteMode, WriteRule};
    use crate::object::ObjectName;

    fn mode(key: &str, words: &[&'static str]) -> Result<WriteMode, ModeError> {
        let rules = WriteRules::new(&Write {
            rules: vec![WriteRule {
                prefix: "s3://b/x/".into(),
                mode: WriteMode::Through,
            }],
            ..Write::default()
        });
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
    fn what_is_no_mode_is_refused() {
        for words in [&["beside"][..], &[""], &["Through"], &["around", "around"]] {
            assert_eq!(mode("y", words), Err(ModeError::Unknown), "{words:?}");
        }
        assert_eq!(mode("y", &["back"]), Err(ModeError::Unavailable));
    }
}
