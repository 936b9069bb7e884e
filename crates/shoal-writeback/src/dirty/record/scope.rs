//! The keys of a listing.

use shoal_s3::operation::Query;

/// Appended to a prefix, this sorts after every key with the prefix.
pub(crate) const BEHIND_PREFIX: &str = "\u{10ffff}";

/// The keys to list, and how they are grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The prefix of the keys.
    pub prefix: Vec<u8>,
    pub(crate) delimiter: Vec<u8>,
}

impl Scope {
    /// All keys with a prefix.
    pub fn all(prefix: &[u8]) -> Self {
        Self {
            prefix: prefix.into(),
            delimiter: Vec::new(),
        }
    }

    pub(crate) fn parse(query: &Query) -> Self {
        Self {
            prefix: bytes_in(query, "prefix"),
            delimiter: bytes_in(query, "delimiter"),
        }
    }

    /// Returns true if keys are grouped by common prefix.
    pub(crate) fn has_groups(&self) -> bool {
        !self.delimiter.is_empty()
    }

    /// Returns the common prefix that a key is listed under: up to the first delimiter after the listing's
    /// prefix.
    pub(crate) fn group<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        if self.delimiter.is_empty() {
            return None;
        }
        let rest = key.get(self.prefix.len()..)?;
        let mut places = rest.windows(self.delimiter.len());
        let place = places.position(|window| window == self.delimiter)?;
        Some(&key[..self.prefix.len() + place + self.delimiter.len()])
    }

    /// Returns the position after a name of the listing; after a common prefix, that is past all keys in its
    /// group.
    pub(crate) fn behind(&self, name: &[u8]) -> Vec<u8> {
        let is_group = self.group(name) == Some(name);
        let behind = if is_group { BEHIND_PREFIX } else { "" };
        [name, behind.as_bytes()].concat()
    }
}

/// Returns a parameter of a query; empty if it has none of this name.
pub(crate) fn bytes_in(query: &Query, name: &str) -> Vec<u8> {
    query.get(name).unwrap_or_default().as_bytes().to_vec()
}
