//! Interned strings.

use std::sync::Arc;

use indexmap::IndexSet;

/// A set of strings, numbered from 0 in order of first appearance. Clones share the strings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interned(IndexSet<Arc<str>>);

impl Interned {
    /// Returns the number of `text`, adding it if necessary.
    pub(crate) fn number(&mut self, text: &str) -> u32 {
        let known = self.0.get_index_of(text);
        let number = known.unwrap_or_else(|| self.0.insert_full(text.into()).0);
        u32::try_from(number).expect("limits keep a history below four billion texts")
    }

    /// Returns the number of `text`; `None` if it is not in the set.
    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.0.get_index_of(text).map(|number| number as u32)
    }

    /// Returns the string with this number.
    pub(crate) fn text(&self, number: u32) -> &str {
        &self.0[number as usize]
    }

    /// Returns the number of strings.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Interned;

    #[test]
    fn a_text_has_one_number() {
        let mut texts = Interned::default();
        assert_eq!(["a", "b", "a"].map(|text| texts.number(text)), [0, 1, 0]);
        assert_eq!(
            (texts.text(1), texts.find("b"), texts.find("c"), texts.len()),
            ("b", Some(1), None, 2)
        );
    }
}
