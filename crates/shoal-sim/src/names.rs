//! Names: dense numbers for the names in a trace, and the nearest known name for an unknown one.

use std::hash::{DefaultHasher, Hash, Hasher};

use shoal_base::spelling::suggestion;

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

/// A message that `given` is not a `kind`, with the name that was probably meant.
pub(crate) fn unknown<'a>(kind: &str, given: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.collect();
    let meant = suggestion(given, known.iter().copied())
        .map(|name| format!("did you mean `{name}`? "))
        .unwrap_or_default();
    format!(
        "unknown {kind} `{given}`\nhint: {meant}known: {}",
        known.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::{Names, unknown};

    #[test]
    fn names_are_numbered_in_order_of_appearance() {
        let mut names = Names::default();
        let numbers = ["a", "b", "a", "c"].map(|name| names.number(name));
        assert_eq!(numbers, [0, 1, 0, 2]);
        assert_eq!((names.nameless(), names.nameless(), names.number("b")), (3, 4, 1));
    }

    #[test]
    fn an_unknown_name_is_told_with_the_one_that_was_probably_meant() {
        let told = unknown("policy", "lruu", ["lru", "lfu"].into_iter());
        assert_eq!(
            told,
            "unknown policy `lruu`\nhint: did you mean `lru`? known: lru, lfu"
        );
    }
}
