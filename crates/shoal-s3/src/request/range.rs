//! Byte ranges of S3: one range, or the whole object.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The bytes requested by a `Range` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeRequest {
    /// No range.
    Whole,
    /// `bytes=first-last`, both inclusive.
    FirstLast(u64, u64),
    /// `bytes=first-`
    From(u64),
    /// `bytes=-length`
    Suffix(u64),
}

/// A non-empty run of bytes of an object; `end` is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl ByteRange {
    /// The bytes from `start`, up to and without `end`.
    pub const fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    /// Length in bytes.
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// Returns true if the range has no bytes (an empty object, read whole).
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// The range lies past the end of the object: `416`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsatisfiable;

impl fmt::Display for RangeRequest {
    /// Formats the range as a header value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("bytes=0-"),
            Self::FirstLast(first, last) => write!(f, "bytes={first}-{last}"),
            Self::From(first) => write!(f, "bytes={first}-"),
            Self::Suffix(length) => write!(f, "bytes=-{length}"),
        }
    }
}

impl RangeRequest {
    /// Parses a `Range` header. Returns `None` for several ranges, other units, blanks, numbers beyond 63
    /// bits, and malformed headers, to which AWS answers with the whole object, other stores with `416`.
    pub fn parse(header: Option<&str>) -> Option<Self> {
        header.map_or(Some(Self::Whole), Self::parse_one)
    }

    fn parse_one(header: &str) -> Option<Self> {
        let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Some(Self::FirstLast(first, last)),
            (Some(first), None) if last.is_empty() => Some(Self::From(first)),
            (None, Some(length)) if first.is_empty() && length > 0 => Some(Self::Suffix(length)),
            _ => None,
        }
    }

    /// The bytes of the range in an object of `size_bytes`; the whole of an empty object is an empty range.
    ///
    /// # Errors
    ///
    /// Fails with [`Unsatisfiable`] if no byte of the object is in the range.
    pub fn resolve(self, size_bytes: u64) -> Result<ByteRange, Unsatisfiable> {
        let (start, end) = match self {
            Self::Whole => return Ok(ByteRange::new(0, size_bytes)),
            Self::FirstLast(first, last) => (first, last.saturating_add(1).min(size_bytes)),
            Self::From(first) => (first, size_bytes),
            Self::Suffix(length) => (size_bytes.saturating_sub(length), size_bytes),
        };
        if start < end {
            Ok(ByteRange { start, end })
        } else {
            Err(Unsatisfiable)
        }
    }
}

/// Accepts only digits, and only numbers that fit a signed 64-bit integer, because stores ignore larger ones.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse::<i64>().ok()).flatten()?;
    u64::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    #[test]
    fn ranges_mean_what_s3_makes_of_them() {
        let table = [
            ("bytes=0-3", 10, Ok((0, 4))),
            ("bytes=3-", 10, Ok((3, 10))),
            ("bytes=-3", 10, Ok((7, 10))),
            ("bytes=-30", 10, Ok((0, 10))),
            ("bytes=5-99", 10, Ok((5, 10))),
            ("bytes=5-9223372036854775807", 10, Ok((5, 10))),
            ("bytes=007-08", 10, Ok((7, 9))),
            ("bytes=10-", 10, Err(Unsatisfiable)),
            ("bytes=10-12", 10, Err(Unsatisfiable)),
            ("bytes=0-", 0, Err(Unsatisfiable)),
            ("bytes=-5", 0, Err(Unsatisfiable)),
        ];
        for (header, size, expected) in table {
            let range = RangeRequest::parse(Some(header)).unwrap();
            let resolved = range.resolve(size).map(|range| (range.start, range.end));
            assert_eq!(resolved, expected, "{header:?} of {size} bytes");
        }
        assert_eq!(RangeRequest::parse(None), Some(RangeRequest::Whole));
    }

    #[test]
    fn ranges_that_stores_read_differently_are_left_to_the_lake() {
        for header in [
            "bytes=-0",
            "bytes=5-2",
            "bytes=0-1,4-5",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=+1-2",
            "lines=0-3",
            "bytes= 0-9",
            "bytes= -1",
            "bytes=0- 9",
            "bytes =0-9",
            " bytes=0-9",
            "bytes=0-9 ",
            "Bytes=0-9",
            "bytes=9223372036854775808-",
            "bytes=0-18446744073709551615",
            "",
        ] {
            assert_eq!(RangeRequest::parse(Some(header)), None, "{header:?}");
        }
    }

    proptest! {
        #[test]
        fn a_resolved_range_lies_inside_the_object(header in "bytes=[0-9]{0,20}-[0-9]{0,20}", size in any::<u64>()) {
            if let Some(Ok(range)) = RangeRequest::parse(Some(&header)).map(|range| range.resolve(size)) {
                assert!(range.start < range.end && range.end <= size);
            }
        }

        #[test]
        fn no_header_makes_it_panic(header in ".*") {
            let _ = RangeRequest::parse(Some(&header)).map(|range| range.resolve(1000));
        }
    }
}
