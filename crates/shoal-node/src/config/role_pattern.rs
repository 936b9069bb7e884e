//! The roles for which clients may get temporary keys.

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
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = role.strip_prefix(first) else {
            return false;
        };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::RolePattern;

    fn matches(pattern: &str, role: &str) -> bool {
        RolePattern::from(pattern).matches(role)
    }

    #[test]
    fn a_role_is_listed_if_all_of_it_is_like_a_pattern() {
        let etl = "arn:aws:iam::1:role/etl";
        for pattern in [
            "arn:aws:iam::1:role/etl",
            "arn:aws:iam::1:role/*",
            "*",
            "arn:*:role/e*",
            "*/etl*",
        ] {
            assert!(matches(pattern, etl), "{pattern}");
        }
        for pattern in [
            "",
            "arn:aws:iam::1:role/et",
            "role/*",
            "arn:aws:iam::2:*",
            "*/et",
            "arn:*:user/*",
        ] {
            assert!(!matches(pattern, etl), "{pattern}");
        }
        assert!(!matches(
            "arn:aws:iam::1:role/etl",
            "arn:aws:iam::1:role/etl-admin"
        ));
        assert!(!matches("a*a", "a") && matches("a*a", "aa"));
        assert!(matches("", "") && matches("*", "") && !matches("", "x"));
    }
}
