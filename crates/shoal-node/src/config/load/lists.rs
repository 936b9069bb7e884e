//! The entries of the lists of a configuration.

use super::file::Entry;
use crate::config::{FreshnessRule, IdentityConfig, LookupPlace, TierConfig, WriteRule};

/// The entries of all lists, each with its text in the file. Invalid entries are left out.
pub(in crate::config) struct Lists<'f> {
    pub(in crate::config) freshness_rules: Vec<(FreshnessRule, &'f Entry)>,
    pub(in crate::config) write_rules: Vec<(WriteRule, &'f Entry)>,
    pub(in crate::config) tiers: Vec<(TierConfig, &'f Entry)>,
    pub(in crate::config) places: Vec<(LookupPlace, &'f Entry)>,
    pub(in crate::config) identities: Vec<(IdentityConfig, &'f Entry)>,
}
