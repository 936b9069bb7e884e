//! Annotations of blocks, such as that an object is short-lived: the extensible state of a directory
//! (dissertation 4.5.1), beside the holders.
//!
//! An extension belongs to a [`Group`](crate::Group) of blocks, has a name and a value, and expires after its
//! own lifetime. Like all entries it is soft: features must work without extensions that a directory has
//! lost.

/// The maximum number of extensions of a group. Further ones are rejected.
pub const EXTENSIONS_MAX: usize = 16;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 32;

/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 256;

/// Marks blocks of an object that its writer expects to be removed soon.
pub const SHORT: &str = "short";

/// An annotation of a group: a name and a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extension {
    name: String,
    value: Vec<u8>,
}

impl Extension {
    /// Creates an extension. Returns `None` if the value is too long, or the name is empty, too long, or
    /// contains other characters than `a-z`, `0-9`, `.` and `-`.
    pub fn new(name: &str, value: &[u8]) -> Option<Self> {
        let is_of_names = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-');
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_of_names);
        (is_name && value.len() <= VALUE_BYTES_MAX).then(|| Self {
            name: name.into(),
            value: value.into(),
        })
    }

    /// The name. A group has one extension of each name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_bounded() {
        assert_eq!(Extension::new("pin.a1-b", b"\0\xff").unwrap().value(), b"\0\xff");
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "A", "a b", "a\n", "ä", &long] {
            assert_eq!(Extension::new(name, b""), None, "{name}");
        }
        Extension::new(&long[1..], &[0; VALUE_BYTES_MAX]).unwrap();
        assert_eq!(Extension::new("a", &[0; VALUE_BYTES_MAX + 1]), None);
    }
}
