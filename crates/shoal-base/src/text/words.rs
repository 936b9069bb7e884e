//! Closed sets of words, such as the outcomes of a request or the names of policies, and counts of them.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// Declares an enum whose values are words in metrics, in headers, in settings or on pages. `ALL` has every
/// value in the order of declaration, and `as_str` returns the word.
#[macro_export]
macro_rules! words {
    ($(#[$of_enum:meta])* $visible:vis enum $name:ident {
        $($(#[$of_value:meta])* $value:ident = $word:literal,)+
    }) => {
        $(#[$of_enum])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visible enum $name { $($(#[$of_value])* $value,)+ }

        impl $name {
            /// Every value, in the order of declaration.
            $visible const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];

            /// Returns the word.
            $visible const fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word),+ }
            }
        }

        impl $crate::words::Word for $name {
            const VALUES: &'static [Self] = &Self::ALL;

            fn word(self) -> &'static str {
                self.as_str()
            }

            fn place(self) -> usize {
                self as usize
            }
        }
    };
}

/// A value of an enum that [`words!`](crate::words!) declares.
pub trait Word: Copy + 'static {
    /// Every value, in the order of declaration.
    const VALUES: &'static [Self];

    /// Returns its word.
    fn word(self) -> &'static str;

    /// Returns its place in the order of declaration.
    fn place(self) -> usize;

    /// Returns the value of a word, in letters of either case.
    fn named(word: &str) -> Option<Self> {
        let is_meant = |value: &&Self| value.word().eq_ignore_ascii_case(word);
        Self::VALUES.iter().find(is_meant).copied()
    }
}

/// Counts by the word for what is counted, as pages show them.
pub type WordCounts = BTreeMap<String, u64>;

/// A number that threads share.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to the number.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Replaces the number.
    pub fn set(&self, amount: u64) {
        self.0.store(amount, Ordering::Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of events since the start, by word. Counting takes no lock.
#[derive(Debug)]
pub struct Counts<W>(Box<[Count]>, PhantomData<W>);

impl<W: Word> Default for Counts<W> {
    fn default() -> Self {
        let zeros = W::VALUES.iter().map(|_| Count::default());
        Self(zeros.collect(), PhantomData)
    }
}

impl<W: Word> Counts<W> {
    /// Counts an event.
    pub fn count(&self, word: W) {
        self.add(word, 1);
    }

    /// Counts this number of events.
    pub fn add(&self, word: W, events: u64) {
        debug_assert_eq!(
            W::VALUES[word.place()].word(),
            word.word(),
            "a word has its own place"
        );
        self.0[word.place()].add(events);
    }

    /// Returns the number of events with this word.
    pub fn get(&self, word: W) -> u64 {
        self.0[word.place()].get()
    }

    /// Returns the counts of all words, zeros included.
    pub fn by_word(&self) -> WordCounts {
        let counts = W::VALUES.iter().zip(&self.0);
        counts
            .map(|(value, count)| (value.word().to_owned(), count.get()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Word as _};

    words! {
        enum Colour {
            Red = "red",
            Green = "light-green",
        }
    }

    #[test]
    fn every_value_has_a_word_and_a_place() {
        assert_eq!(Colour::ALL.map(Colour::as_str), ["red", "light-green"]);
        assert_eq!((Colour::Green.place(), Colour::Green.word()), (1, "light-green"));
        assert_eq!(Colour::named("Light-Green"), Some(Colour::Green));
        assert_eq!(Colour::named("green"), None);
    }

    #[test]
    fn every_word_has_a_count() {
        let counts = Counts::default();
        counts.count(Colour::Green);
        counts.add(Colour::Green, 2);
        assert_eq!((counts.get(Colour::Red), counts.get(Colour::Green)), (0, 3));
        let by_word = counts.by_word().into_iter().collect::<Vec<_>>();
        assert_eq!(by_word, [("light-green".to_owned(), 3), ("red".to_owned(), 0)]);
    }
}
