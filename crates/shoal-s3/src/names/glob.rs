//! Shell-style patterns of keys: `t/dt=2026-11-*/*.parquet`.
//!
//! | in a pattern | matches |
//! |---|---|
//! | `*` | any bytes but `/` |
//! | `**` | any bytes |
//! | `?` | one byte but `/`, or one character of UTF-8 |
//! | `[abc]`, `[a-z]`, `[!a-z]` | one byte of a set, or none of it; never `/` |
//! | `\x` | `x` itself |
//!
//! A pattern without any of these matches all keys that begin with it. Matching takes time proportional at
//! most to the length of the key times the number of stars.

use std::fmt;

/// A pattern of keys.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPattern {
    /// The bytes before the first wildcard: every key that matches begins with them.
    prefix: Vec<u8>,
    /// `None` for all keys that begin with the prefix.
    tokens: Option<Vec<Token>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// One character except `/`.
    One,
    Set {
        ranges: Vec<(u8, u8)>,
        is_negated: bool,
    },
    /// Any bytes, with slashes or without.
    Any {
        slashes: bool,
    },
}

/// Why a [`KeyPattern`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyPatternError(&'static str);

const OPEN_SET: KeyPatternError = KeyPatternError("a [ has no ]\nhint: write \\[ for the character itself");
const BAD_SET: KeyPatternError = KeyPatternError(
    "a set [...] is empty, or a range in it ends before it begins\nhint: write \\[ for the character itself",
);
const LONE_BACKSLASH: KeyPatternError =
    KeyPatternError("it ends in a backslash\nhint: write \\\\ for the character itself");

impl KeyPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// Fails if a set is not well-formed, or if the pattern ends in a backslash.
    pub fn parse(text: &[u8]) -> Result<Self, KeyPatternError> {
        let (mut tokens, mut rest) = (Vec::new(), text);
        while let [byte, tail @ ..] = rest {
            rest = tail;
            let token = match byte {
                b'*' => {
                    let slashes = rest.first() == Some(&b'*');
                    while let [b'*', tail @ ..] = rest {
                        rest = tail;
                    }
                    Token::Any { slashes }
                }
                b'?' => Token::One,
                b'[' => {
                    let (set, tail) = set(rest)?;
                    rest = tail;
                    set
                }
                b'\\' => {
                    let [byte, tail @ ..] = rest else {
                        return Err(LONE_BACKSLASH);
                    };
                    rest = tail;
                    Token::Byte(*byte)
                }
                byte => Token::Byte(*byte),
            };
            tokens.push(token);
        }
        let bytes = tokens.iter().map_while(|token| match token {
            Token::Byte(byte) => Some(*byte),
            _ => None,
        });
        let prefix: Vec<u8> = bytes.collect();
        let is_prefix = prefix.len() == tokens.len();
        Ok(Self {
            tokens: (!is_prefix).then(|| tokens.split_off(prefix.len())),
            prefix,
        })
    }

    /// The bytes with which every matching key begins.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Returns true if a key matches.
    pub fn matches(&self, key: &[u8]) -> bool {
        let Some(rest) = key.strip_prefix(&*self.prefix) else {
            return false;
        };
        self.tokens.as_ref().is_none_or(|tokens| matches(tokens, rest))
    }

    /// Returns true if every key that `other` matches certainly matches this pattern too.
    pub fn covers(&self, other: &Self) -> bool {
        match &self.tokens {
            None => other.prefix.starts_with(&self.prefix),
            Some(_) => self == other,
        }
    }
}

impl fmt::Debug for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.prefix.escape_ascii(), self.tokens)
    }
}

/// Parses a set after its `[`. Returns it and the bytes after the `]`.
fn set(text: &[u8]) -> Result<(Token, &[u8]), KeyPatternError> {
    let (is_negated, mut rest) = match text {
        [b'!' | b'^', tail @ ..] => (true, tail),
        _ => (false, text),
    };
    let mut ranges = Vec::new();
    loop {
        let (from, tail) = match rest {
            // A `]` that comes first is a member.
            [b']', tail @ ..] if !ranges.is_empty() => return Ok((Token::Set { ranges, is_negated }, tail)),
            [b'\\', byte, tail @ ..] | [byte, tail @ ..] => (*byte, tail),
            [] => return Err(OPEN_SET),
        };
        let (to, tail) = match tail {
            [b'-', b']', ..] => (from, tail),
            [b'-', b'\\', to, tail @ ..] | [b'-', to, tail @ ..] => (*to, tail),
            _ => (from, tail),
        };
        if from > to {
            return Err(BAD_SET);
        }
        ranges.push((from, to));
        rest = tail;
    }
}

/// The token after a star, and the first byte of the key that the star has not taken.
type Star = (usize, usize);

/// Matches with one backtracking position per kind of star, the last one of its kind. A later `**` makes all
/// earlier stars final, and a later `*` the earlier `*`.
fn matches(tokens: &[Token], key: &[u8]) -> bool {
    let (mut token, mut at) = (0, 0);
    let (mut within, mut across): (Option<Star>, Option<Star>) = (None, None);
    loop {
        match tokens.get(token) {
            None if at == key.len() => return true,
            Some(Token::Any { slashes: true }) => {
                token += 1;
                (within, across) = (None, Some((token, at)));
                continue;
            }
            Some(Token::Any { slashes: false }) => {
                token += 1;
                within = Some((token, at));
                continue;
            }
            Some(one) => {
                if let Some(taken) = one.take(&key[at..]) {
                    (token, at) = (token + 1, at + taken);
                    continue;
                }
            }
            None => {}
        }
        // Backtrack: the innermost star that can take one more byte does.
        if let Some((after, taken)) =
            within.filter(|(_, taken)| key.get(*taken).is_some_and(|byte| *byte != b'/'))
        {
            within = Some((after, taken + 1));
            (token, at) = (after, taken + 1);
        } else if let Some((after, taken)) = across.filter(|(_, taken)| *taken < key.len()) {
            (within, across) = (None, Some((after, taken + 1)));
            (token, at) = (after, taken + 1);
        } else {
            return false;
        }
    }
}

impl Token {
    /// The number of bytes that one character of `key` has, if it matches.
    fn take(&self, key: &[u8]) -> Option<usize> {
        let first = *key.first()?;
        match self {
            Self::Byte(byte) => (*byte == first).then_some(1),
            Self::One => (first != b'/').then(|| character_bytes(key)),
            Self::Set { ranges, is_negated } => {
                let is_member = ranges.iter().any(|(from, to)| (*from..=*to).contains(&first));
                (first != b'/' && is_member != *is_negated).then_some(1)
            }
            Self::Any { .. } => None,
        }
    }
}

/// The length of the first character, or one byte where the key is not UTF-8.
fn character_bytes(key: &[u8]) -> usize {
    (1..=key.len().min(4))
        .find(|length| std::str::from_utf8(&key[..*length]).is_ok())
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{Just, any, prop_oneof, proptest};

    use super::{BAD_SET, KeyPattern, LONE_BACKSLASH, OPEN_SET, Token};

    fn matches(pattern: &str, key: &str) -> bool {
        KeyPattern::parse(pattern.as_bytes())
            .unwrap()
            .matches(key.as_bytes())
    }

    #[test]
    fn a_pattern_without_wildcards_is_a_prefix() {
        for (pattern, key, expected) in [
            ("", "anything/at all", true),
            ("a/", "a/b/c", true),
            ("a/b", "a/bc", true),
            ("a/b", "a/", false),
            (r"a\*b", "a*b/c", true),
            (r"a\*b", "axb", false),
        ] {
            assert_eq!(matches(pattern, key), expected, "{pattern} {key}");
        }
    }

    #[test]
    fn wildcards_match_as_in_a_shell() {
        for (pattern, key, expected) in [
            ("t/dt=2026-11-*/*.parquet", "t/dt=2026-11-07/part-0.parquet", true),
            (
                "t/dt=2026-11-*/*.parquet",
                "t/dt=2026-12-07/part-0.parquet",
                false,
            ),
            (
                "t/dt=2026-11-*/*.parquet",
                "t/dt=2026-11-07/a/part-0.parquet",
                false,
            ),
            (
                "t/dt=2026-11-*/*.parquet",
                "t/dt=2026-11-07/part-0.parquet.crc",
                false,
            ),
            ("t/**/*.parquet", "t/a/b/c.parquet", true),
            ("t/**.parquet", "t/a/b.parquet", true),
            ("t/**/x", "t/x", false),
            ("a?c", "abc", true),
            ("a?c", "aäc", true),
            ("a?c", "a/c", false),
            ("a*", "a", true),
            ("*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("[a-c]x[!0-9]", "bxz", true),
            ("[a-c]x[!0-9]", "bx7", false),
            ("[a-c]x[!0-9]", "bx/", false),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            (r"[\]]", "]", true),
            ("**b*c", "a/b/b/xc", false),
            ("**b*c", "a/b/bxc", true),
        ] {
            assert_eq!(matches(pattern, key), expected, "{pattern} {key}");
        }
    }

    #[test]
    fn every_key_that_matches_begins_with_the_prefix() {
        let pattern = KeyPattern::parse(br"t/dt\*=2026-*/x").unwrap();
        assert_eq!(pattern.prefix(), b"t/dt*=2026-");
    }

    #[test]
    fn a_pattern_covers_what_lies_below_it() {
        let parse = |text: &str| KeyPattern::parse(text.as_bytes()).unwrap();
        assert!(parse("a/").covers(&parse("a/b")) && parse("a/").covers(&parse("a/b*")));
        assert!(parse("").covers(&parse("**")));
        assert!(!parse("a/b").covers(&parse("a/")) && !parse("a/*").covers(&parse("a/b")));
        assert!(parse("a/*").covers(&parse("a/*")));
    }

    #[test]
    fn a_pattern_that_is_not_well_formed_is_refused_with_the_reason() {
        for (pattern, error) in [
            ("a[", OPEN_SET),
            ("a[]", OPEN_SET),
            ("a[!", OPEN_SET),
            ("a[b", OPEN_SET),
            ("a[z-a]", BAD_SET),
            ("a\\", LONE_BACKSLASH),
        ] {
            assert_eq!(KeyPattern::parse(pattern.as_bytes()), Err(error), "{pattern}");
        }
    }

    /// Returns true if the tokens match the whole key: the simplest matcher, and a slow one.
    fn plainly(tokens: &[Token], key: &[u8]) -> bool {
        match tokens {
            [] => key.is_empty(),
            [Token::Any { slashes }, rest @ ..] => {
                plainly(rest, key)
                    || key.first().is_some_and(|byte| *slashes || *byte != b'/') && plainly(tokens, &key[1..])
            }
            [one, rest @ ..] => one.take(key).is_some_and(|taken| plainly(rest, &key[taken..])),
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_what_it_means(
            pattern in vec(prop_oneof![Just("*"), Just("**"), Just("?"), Just("a"), Just("/"), Just("[ab]")], 0..8),
            key in "[ab/]{0,10}",
        ) {
            let pattern = KeyPattern::parse(pattern.concat().as_bytes()).unwrap();
            let expected = key.as_bytes().strip_prefix(&*pattern.prefix).is_some_and(|rest| {
                pattern.tokens.as_ref().is_none_or(|tokens| plainly(tokens, rest))
            });
            assert_eq!(pattern.matches(key.as_bytes()), expected, "{pattern:?}");
        }

        #[test]
        fn any_bytes_are_read_or_refused(pattern in vec(any::<u8>(), 0..40), key in vec(any::<u8>(), 0..40)) {
            if let Ok(pattern) = KeyPattern::parse(&pattern) {
                pattern.matches(&key);
            }
        }
    }
}
