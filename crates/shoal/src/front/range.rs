//! Byte ranges as S3 understands them: one range, or the whole object.

/// What a `Range` header asks for.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl ByteRange {
    /// Length in bytes.
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// Whether there is nothing in it (an empty object, read whole).
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// The range lies past the end of the object: `416`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsatisfiable;

impl RangeRequest {
    /// Reads a `Range` header. `None`: several ranges, no bytes, or not well-formed. AWS then answers with the whole
    /// object, others with `416`.
    pub fn parse(header: Option<&str>) -> Option<Self> {
        header.map_or(Some(Self::Whole), Self::parse_one)
    }

    fn parse_one(header: &str) -> Option<Self> {
        let (unit, set) = header.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") || set.contains(',') {
            return None;
        }
        let (first, last) = set.trim().split_once('-')?;
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Some(Self::FirstLast(first, last)),
            (Some(first), None) if last.is_empty() => Some(Self::From(first)),
            (None, Some(length)) if first.is_empty() && length > 0 => Some(Self::Suffix(length)),
            _ => None,
        }
    }

    /// The bytes meant, of an object of `size_bytes`; the whole of an empty object is an empty range.
    pub fn resolve(self, size_bytes: u64) -> Result<ByteRange, Unsatisfiable> {
        let (start, end) = match self {
            Self::Whole => {
                return Ok(ByteRange {
                    start: 0,
                    end: size_bytes,
                });
            }
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

/// Digits only; a number too large for 64 bits means "to the end".
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
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
            ("bytes=5-99999999999999999999999", 10, Ok((5, 10))),
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
    fn what_stores_read_in_their_own_ways_is_not_read_here() {
        for header in [
            "bytes=-0",
            "bytes=5-2",
            "bytes=0-1,4-5",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=+1-2",
            "lines=0-3",
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
