//! The roles for which clients may get temporary keys.

use shoal_base::stars;

/// The ARNs of roles, in which a star stands for any characters. The empty one stands for keys without a
/// role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RolePattern(String);

impl From<&str> for RolePattern {
    fn from(pattern: &str) -> Self {
        Self(pattern.into())
    }
}

impl RolePattern {
    /// Returns the pattern as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if all of `role` is like the pattern.
    pub fn matches(&self, role: &str) -> bool {
        stars::matches(&self.0, role)
    }
}
