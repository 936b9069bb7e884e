//! `[write]`

use std::time::Duration;

/// Where the bytes of a write go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Nowhere.
    Around,
    /// Into the cache, once the lake has committed them.
    Through,
    /// Into the cache first, and to the lake later.
    Back,
}

impl WriteMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Around, Self::Through, Self::Back];

    /// The word for the mode in headers and settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Around => "around",
            Self::Through => "through",
            Self::Back => "back",
        }
    }

    /// The mode that a word stands for.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}

/// Default and exceptions by prefix. The longest matching prefix wins, and the header of a request overrides
/// both.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteConfig {
    /// Where no rule matches.
    pub default: WriteMode,
    /// Whether writes may be acknowledged before the lake has them.
    pub allow_volatile: bool,
    /// How long an acknowledged write may wait for the lake.
    pub flush_interval: Duration,
    /// `[[write.rule]]`
    pub rules: Vec<WriteRule>,
}

/// One exception.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteRule {
    /// `s3://bucket/prefix`
    pub prefix: String,
    /// The mode of objects below it.
    pub mode: WriteMode,
}

impl Default for WriteConfig {
    fn default() -> Self {
        Self {
            default: WriteMode::Around,
            allow_volatile: false,
            flush_interval: Duration::from_mins(1),
            rules: Vec::new(),
        }
    }
}
