//! `[write]`

use std::time::Duration;

use shoal_net::words;
use shoal_registry::Lifetime;

/// How long an object of [`Lifetime::Short`] stays dirty before it is flushed: most are removed before, and
/// one that is not delays no more than its own flush.
const SHORT_AGE: Duration = Duration::from_mins(10);

words! {
    /// The path of a write to the lake, by its word in headers and settings.
    pub enum WriteMode {
        /// Straight to the lake; the cache is bypassed.
        Around = "around",
        /// To the lake, and into the cache once the lake has committed the object.
        Through = "through",
        /// To a tier, and from there to the lake later.
        Back = "back",
    }
}

words! {
    /// The response to a write that should be written back, when its tier has no room or its store does not
    /// answer.
    #[derive(Default)]
    pub enum Fallback {
        /// The object is written to the lake while the client waits.
        #[default]
        Through = "through",
        /// `503 SlowDown`: nothing is sent to the lake, and the client retries later.
        Refuse = "refuse",
    }
}

/// The default mode, and exceptions by prefix. The longest matching prefix applies; a request's header
/// overrides both.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteConfig {
    /// The mode if no rule matches.
    pub default: WriteMode,
    /// How long an object stays dirty before it is flushed.
    pub age: Duration,
    /// How long the lake's permission to write below a bucket or prefix is reused.
    pub permission: Duration,
    /// `[[write.rule]]`
    pub rules: Vec<WriteRule>,
}

/// An exception for a prefix.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteRule {
    /// `s3://bucket/prefix`
    pub prefix: String,
    /// The mode of objects below the prefix.
    pub mode: WriteMode,
    /// The tier of objects that are written back; optional if there is only one tier.
    pub tier: Option<String>,
    /// The expected lifetime of objects that are written back.
    pub lifetime: Lifetime,
    /// The response to such writes when the tier cannot accept them.
    pub fallback: Fallback,
    /// The access keys of the identities, and the ARNs of the roles, that may read what others wrote below
    /// the prefix while it is dirty.
    pub readers: Vec<String>,
    /// The access key of the identity that brings objects to the lake whose writers the nodes no longer know;
    /// `None` if they stay dirty.
    pub flush_as: Option<String>,
    /// How small objects are packed on their way to the lake; `None` if each is written under its own name.
    pub pack: Option<PackConfig>,
}

/// How the small objects of a rule are packed (dissertation 4.5.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackConfig {
    /// Objects of fewer bytes are packed.
    pub below_bytes: u64,
    /// The size of a pack in bytes, at most.
    pub pack_bytes: u64,
    /// How long objects that are due wait for others that join their packs.
    pub idle: Duration,
    /// The access key of the identity that keeps the map, and removes garbage.
    pub keeper: String,
}

impl PackConfig {
    /// `pack_below`
    pub const BELOW_BYTES: u64 = 4 << 20;
    /// `pack_bytes` (dissertation 6.7)
    pub const PACK_BYTES: u64 = 32 << 20;
    /// `pack_idle`
    pub const IDLE: Duration = Duration::from_secs(10);
}

impl WriteRule {
    /// Creates a rule that only sets the mode of a prefix.
    pub fn new(prefix: impl Into<String>, mode: WriteMode) -> Self {
        Self {
            prefix: prefix.into(),
            mode,
            tier: None,
            lifetime: Lifetime::default(),
            fallback: Fallback::default(),
            readers: Vec::new(),
            flush_as: None,
            pack: None,
        }
    }

    /// Returns the position of the tier that this rule writes back to among `tiers`, given by their names.
    /// `None` if the rule names an unknown tier, or names none although there are several.
    pub fn tier_in(&self, tiers: &[&str]) -> Option<usize> {
        match &self.tier {
            Some(name) => tiers.iter().position(|tier| tier == name),
            None => (tiers.len() == 1).then_some(0),
        }
    }
}

impl WriteConfig {
    /// Returns how long an object of [`Lifetime::Short`] stays dirty before it is flushed.
    pub fn short_age(&self) -> Duration {
        self.age.max(SHORT_AGE)
    }
}

impl Default for WriteConfig {
    fn default() -> Self {
        Self {
            default: WriteMode::Around,
            age: Duration::from_mins(1),
            permission: Duration::from_mins(1),
            rules: Vec::new(),
        }
    }
}
