//! Interned strings.

use std::collections::HashMap;
use std::sync::Arc;

/// A set of strings, numbered from 0 in order of first appearance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interned {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Interned {
    /// Returns the number of `text`, adding it if necessary.
    pub(crate) fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = u32::try_from(self.texts.len()).expect("limits keep a history below four billion texts");
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// Returns the number of `text`; `None` if it is not in the set.
    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.numbers.get(text).copied()
    }

    /// Returns the string with this number.
    pub(crate) fn text(&self, number: u32) -> &str {
        &self.texts[number as usize]
    }

    /// Returns the number of strings.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
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
