//! Texts, each held once and named by a number.

use std::collections::HashMap;
use std::sync::Arc;

/// A set of texts, numbered from 0 in the order of their first appearance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interned {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Interned {
    /// The number of `text`, which is new if it was not there.
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

    /// The number of `text`, if it is there.
    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.numbers.get(text).copied()
    }

    /// The text with this number.
    pub(crate) fn text(&self, number: u32) -> &str {
        &self.texts[number as usize]
    }

    /// The number of texts.
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
