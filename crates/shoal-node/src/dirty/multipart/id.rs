//! The id of an upload. It names the node that keeps the upload, so every node knows which one to ask.

use std::fmt;
use std::str::FromStr;

use shoal_base::encoding::{Malformed, Reader};
use shoal_policy::NodeId;

/// No lake's ids begin with this.
const PREFIX: &str = "shoal-";

/// Names an upload. It is no secret: only the identity that began an upload may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId {
    /// The node that keeps the upload.
    pub keeper: NodeId,
    /// Random, so that every upload has an id of its own.
    chance: [u64; 2],
}

impl UploadId {
    /// An id of an upload that `keeper` keeps.
    pub(in crate::dirty) const fn new(keeper: NodeId, chance: [u64; 2]) -> Self {
        Self { keeper, chance }
    }

    /// Encodes the id, for a record or another node.
    pub(in crate::dirty) fn write(&self, out: &mut Vec<u8>) {
        for word in [self.keeper.0, self.chance[0], self.chance[1]] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Inverse of [`UploadId::write`].
    pub(in crate::dirty) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            keeper: NodeId(reader.u64()?),
            chance: [reader.u64()?, reader.u64()?],
        })
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [high, low] = self.chance;
        write!(f, "{PREFIX}{:016x}-{high:016x}{low:016x}", self.keeper.0)
    }
}

/// Accepts only the spelling that [`UploadId`] displays. Any other text may be the id of an upload at the
/// lake.
impl FromStr for UploadId {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let (keeper, chance) = text
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('-'))
            .ok_or(Malformed)?;
        let (high, low) = chance.split_at_checked(16).ok_or(Malformed)?;
        let word = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| Malformed);
        let id = Self {
            keeper: NodeId(word(keeper)?),
            chance: [word(high)?, word(low)?],
        };
        (id.to_string() == text).then_some(id).ok_or(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;
    use shoal_policy::NodeId;

    use super::UploadId;

    #[test]
    fn an_id_names_its_keeper_and_has_one_spelling() {
        let id = UploadId::new(NodeId(7), [1, u64::MAX]);
        let text = id.to_string();
        assert_eq!(text.parse(), Ok(id));
        for other in [
            text.to_uppercase(),
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
        fn any_text_is_an_id_or_refused(text in "(shoal-)?[0-9a-f+-]{0,60}\\PC{0,3}") {
            let _ = text.parse::<UploadId>();
        }
    }
}
