//! The id of an upload.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use shoal_base::encoding::Malformed;
use ulid::Ulid;

/// A prefix that no lake's ids have.
const PREFIX: &str = "shoal-";

/// Identifies an upload. Not a secret: only the identity that began an upload may use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UploadId(pub(in crate::dirty) Ulid);

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.0)
    }
}

/// Accepts only the form that [`UploadId`] displays. Any other text may be an upload id of the lake.
impl FromStr for UploadId {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let id = text.strip_prefix(PREFIX).ok_or(Malformed)?;
        let id = Self(Ulid::from_string(id).map_err(|_| Malformed)?);
        (id.to_string() == text).then_some(id).ok_or(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;
    use ulid::Ulid;

    use super::UploadId;

    #[test]
    fn an_id_has_one_spelling() {
        let id = UploadId(Ulid::from_parts(1, u128::MAX));
        let text = id.to_string();
        assert_eq!(text.parse(), Ok(id));
        for other in [
            text.to_lowercase(),
            format!("{text}0"),
            text.replace("shoal-", ""),
            text[..text.len() - 1].into(),
            "2~lake".into(),
        ] {
            assert!(other.parse::<UploadId>().is_err(), "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_id_or_refused(text in "(shoal-)?[0-9A-Z+-]{0,60}\\PC{0,3}") {
            let _ = text.parse::<UploadId>();
        }
    }
}
