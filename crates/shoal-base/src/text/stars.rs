//! Patterns in which a star stands for any characters, or for none.

/// Returns true if all of `text` is like `pattern`. The time is at most proportional to the length of the
/// text times the number of stars.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
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

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_text_matches_if_all_of_it_is_like_the_pattern() {
        let role = "arn:aws:iam::1:role/etl";
        for pattern in [
            "arn:aws:iam::1:role/etl",
            "arn:aws:iam::1:role/*",
            "*",
            "arn:*:role/e*",
            "*/etl*",
        ] {
            assert!(matches(pattern, role), "{pattern}");
        }
        for pattern in [
            "",
            "arn:aws:iam::1:role/et",
            "role/*",
            "arn:aws:iam::2:*",
            "*/et",
            "arn:*:user/*",
        ] {
            assert!(!matches(pattern, role), "{pattern}");
        }
        assert!(!matches("a*a", "a") && matches("a*a", "aa"));
        assert!(matches("", "") && matches("*", "") && !matches("", "x"));
    }
}
