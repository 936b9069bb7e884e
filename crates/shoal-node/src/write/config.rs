//! `[write]`

use std::time::Duration;

use shoal_registry::Lifetime;

use crate::tier::TierConfig;

/// Where the bytes of a write go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Nowhere.
    Around,
    /// Into the cache, once the lake has committed them.
    Through,
    /// Into a tier, and to the lake later.
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

/// The answer to a write below a back rule whose tier has no room, or whose store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// The object goes to the lake while its writer waits.
    #[default]
    Through,
    /// `503 SlowDown`: nothing is sent to the lake, and the client tries again later.
    Refuse,
}

impl Fallback {
    /// Every fallback.
    pub const ALL: [Self; 2] = [Self::Through, Self::Refuse];

    /// The word in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Through => "through",
            Self::Refuse => "refuse",
        }
    }
}

/// Default and exceptions by prefix. The longest matching prefix wins, and the header of a request overrides
/// both.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteConfig {
    /// Where no rule matches.
    pub default: WriteMode,
    /// How long a dirty object stays before it is brought to the lake.
    pub age: Duration,
    /// The same for objects of rules with [`Lifetime::Short`].
    pub short_age: Duration,
    /// How long the node relies on the lake's permission to write below a bucket or prefix.
    pub permission: Duration,
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
    /// The tier of those that are written back; not needed if there is only one.
    pub tier: Option<String>,
    /// How long those that are written back are expected to live.
    pub lifetime: Lifetime,
    /// The answer to writes back that the tier cannot take now.
    pub fallback: Fallback,
}

impl WriteRule {
    /// A rule that says nothing but the mode of a prefix.
    pub fn new(prefix: impl Into<String>, mode: WriteMode) -> Self {
        Self {
            prefix: prefix.into(),
            mode,
            tier: None,
            lifetime: Lifetime::default(),
            fallback: Fallback::default(),
        }
    }

    /// The position of the tier of objects that this rule writes back. `None` if it names no tier of these,
    /// or names none at all and there are several.
    pub fn tier_in(&self, tiers: &[TierConfig]) -> Option<usize> {
        match &self.tier {
            Some(name) => tiers.iter().position(|tier| tier.name == *name),
            None => (tiers.len() == 1).then_some(0),
        }
    }
}

impl Default for WriteConfig {
    fn default() -> Self {
        Self {
            default: WriteMode::Around,
            age: Duration::from_mins(1),
            short_age: Duration::from_mins(10),
            permission: Duration::from_mins(1),
            rules: Vec::new(),
        }
    }
}
