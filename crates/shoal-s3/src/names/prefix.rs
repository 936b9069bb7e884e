//! Values by prefix; the longest matching prefix wins.

use crate::object::ObjectName;

/// A default, and exceptions by prefix.
#[derive(Clone, Debug)]
pub struct ByPrefix<T> {
    /// Longest first, so that the first match wins.
    rules: Vec<(Vec<u8>, T)>,
    default: T,
}

impl<T> ByPrefix<T> {
    /// The values of the `rules` for `s3://bucket/prefix`, and `default` elsewhere.
    pub fn new<'a>(default: T, rules: impl Iterator<Item = (&'a str, T)>) -> Self {
        let path = |prefix: &str| prefix.trim_start_matches("s3://").as_bytes().to_vec();
        let mut rules: Vec<_> = rules.map(|(prefix, value)| (path(prefix), value)).collect();
        rules.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self { rules, default }
    }

    /// The value for this object.
    pub fn get(&self, name: &ObjectName) -> &T {
        let matching = self.rules.iter().find(|(prefix, _)| starts_with(name, prefix));
        matching.map_or(&self.default, |(_, value)| value)
    }

    /// The values of all rules, and the default.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        let rules = self.rules.iter().map(|(_, value)| value);
        rules.chain([&self.default])
    }

    /// Returns true if any object may have a value that `is_wanted` accepts.
    pub fn any(&self, is_wanted: impl Fn(&T) -> bool) -> bool {
        self.values().any(is_wanted)
    }

    /// Bucket and key prefix of every rule whose value is wanted and whose bucket ends with a slash.
    pub fn prefixes(&self, is_wanted: impl Fn(&T) -> bool) -> Vec<(String, Vec<u8>)> {
        let wanted = self.rules.iter().filter(|(_, value)| is_wanted(value));
        let split = |rule: &[u8]| {
            let slash = rule.iter().position(|byte| *byte == b'/')?;
            let bucket = String::from_utf8_lossy(&rule[..slash]).into_owned();
            Some((bucket, rule[slash + 1..].to_vec()))
        };
        wanted.filter_map(|(rule, _)| split(rule)).collect()
    }

    /// The values that objects of `bucket` whose keys begin with `prefix` may have: that of the rule which
    /// covers all of them, or the default, and those of the rules for some of them.
    pub fn below(&self, bucket: &str, prefix: &[u8]) -> impl Iterator<Item = &T> {
        let path = [bucket.as_bytes(), b"/", prefix].concat();
        let covering = self.rules.iter().find(|(rule, _)| path.starts_with(rule));
        let of_all = covering.map_or(&self.default, |(_, value)| value);
        let of_some = self
            .rules
            .iter()
            .filter(move |(rule, _)| rule.len() > path.len() && rule.starts_with(&path));
        std::iter::once(of_all).chain(of_some.map(|(_, value)| value))
    }
}

/// Returns true if `bucket/key` starts with `prefix`, without joining the two.
fn starts_with(name: &ObjectName, prefix: &[u8]) -> bool {
    let mut path = name.bucket.bytes().chain([b'/']).chain(name.key.iter().copied());
    prefix.iter().all(|byte| path.next() == Some(*byte))
}
