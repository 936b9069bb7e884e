//! Dense numbers for the names in a trace.

use std::hash::{DefaultHasher, Hash, Hasher};

use shoal_policy::hash::KeyMap;

/// Numbers names from 0 in the order of their first appearance.
///
/// A name is remembered by a digest of 64 bits, 16 bytes per name. Among ten million names, two share a
/// digest once in 370,000 traces, and then count as one.
#[derive(Clone, Debug, Default)]
pub struct Names {
    numbers: KeyMap<u64, u32>,
}

impl Names {
    /// The number of `name`.
    pub fn number(&mut self, name: &(impl Hash + ?Sized)) -> u32 {
        // The standard hasher with its fixed keys, since names are arbitrary text.
        let mut digest = DefaultHasher::new();
        name.hash(&mut digest);
        self.number_of_digest(digest.finish())
    }

    /// The number of a name that is itself a number.
    pub fn number_of_digest(&mut self, digest: u64) -> u32 {
        let next = u32::try_from(self.numbers.len()).expect("a trace has fewer than four billion names");
        *self.numbers.entry(digest).or_insert(next)
    }

    /// A new number, for an object without a name.
    pub fn nameless(&mut self) -> u32 {
        self.number(&("nameless", self.numbers.len()))
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn names_are_numbered_in_order_of_appearance() {
        let mut names = Names::default();
        let numbers = ["a", "b", "a", "c"].map(|name| names.number(name));
        assert_eq!(numbers, [0, 1, 0, 2]);
        assert_eq!((names.nameless(), names.nameless(), names.number("b")), (3, 4, 1));
    }
}
