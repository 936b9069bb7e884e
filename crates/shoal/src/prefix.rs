//! What holds below which prefix; the longest one that fits wins.

use crate::object::ObjectName;

/// A default, and exceptions by prefix.
#[derive(Clone, Debug)]
pub struct ByPrefix<T> {
    /// Longest first, so that the first match is the right one.
    rules: Vec<(Vec<u8>, T)>,
    default: T,
}

impl<T: Copy> ByPrefix<T> {
    /// What the `rules` say of `s3://bucket/prefix`, and `default` elsewhere.
    pub fn new<'a>(default: T, rules: impl Iterator<Item = (&'a str, T)>) -> Self {
        let path = |prefix: &str| prefix.trim_start_matches("s3://").as_bytes().to_vec();
        let mut rules: Vec<_> = rules.map(|(prefix, value)| (path(prefix), value)).collect();
        rules.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self { rules, default }
    }

    /// What holds for this object.
    pub fn of(&self, name: &ObjectName) -> T {
        let matching = self.rules.iter().find(|(prefix, _)| starts_with(name, prefix));
        matching.map_or(self.default, |(_, value)| *value)
    }
}

/// Whether `bucket/key` starts with `prefix`, without joining the two.
fn starts_with(name: &ObjectName, prefix: &[u8]) -> bool {
    let mut path = name.bucket.bytes().chain([b'/']).chain(name.key.iter().copied());
    prefix.iter().all(|byte| path.next() == Some(*byte))
}
