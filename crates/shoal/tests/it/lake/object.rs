//! Objects of the lake. Their bytes are stored, or generated when they are read.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use md5::{Digest, Md5};
use shoal_net::clock;

/// Bytes of an object.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Bytes(Bytes),
    /// Any size costs nothing: each byte follows from the seed and its position.
    Synthetic {
        size: u64,
        seed: u64,
    },
}

impl Content {
    pub(crate) fn synthetic(size: u64, seed: u64) -> Self {
        Self::Synthetic { size, seed }
    }

    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Synthetic { size, .. } => *size,
        }
    }

    /// The bytes at `range`, which must lie within the content.
    pub(crate) fn read(&self, range: Range<u64>) -> Bytes {
        assert!(range.end <= self.size(), "{range:?} of {}", self.size());
        match self {
            Self::Bytes(bytes) => bytes.slice(range.start as usize..range.end as usize),
            Self::Synthetic { seed, .. } => {
                let first_word = range.start / 8;
                let words = first_word..range.end.div_ceil(8);
                let mut bytes = Vec::with_capacity((words.end - words.start) as usize * 8);
                for word in words {
                    bytes.extend_from_slice(&scramble(seed.rotate_left(32) ^ word).to_le_bytes());
                }
                let skip = (range.start - first_word * 8) as usize;
                Bytes::from(bytes).slice(skip..skip + (range.end - range.start) as usize)
            }
        }
    }

    pub(crate) fn all(&self) -> Bytes {
        self.read(0..self.size())
    }

    fn etag(&self) -> String {
        let digest = match self {
            Self::Bytes(bytes) => Md5::digest(bytes),
            // Nothing made up is as large and read whole.
            Self::Synthetic { size, seed } if *size > 1 << 20 => Md5::digest(format!("{size} {seed}")),
            Self::Synthetic { .. } => Md5::digest(self.all()),
        };
        format!("\"{}\"", hex(&digest))
    }
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Bytes(Bytes::copy_from_slice(text.as_bytes()))
    }
}

/// One version of an object.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) content: Content,
    /// With its quotes.
    pub(crate) etag: String,
    /// Whole seconds, as HTTP dates are.
    pub(crate) last_modified: SystemTime,
    /// System headers, user metadata and checksums, as a GET gives them.
    pub(crate) headers: HeaderMap,
    /// Sizes of its parts, if it was uploaded in parts.
    pub(crate) parts: Vec<u64>,
    pub(crate) version_id: String,
}

impl Object {
    /// An object that has been in the lake for an hour.
    pub(crate) fn new(content: impl Into<Content>) -> Self {
        let content = content.into();
        Self {
            etag: content.etag(),
            content,
            last_modified: this_second() - Duration::from_hours(1),
            headers: HeaderMap::new(),
            parts: Vec::new(),
            version_id: "null".into(),
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.append(
            HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        );
        self
    }

    pub(crate) fn etag(mut self, etag: &str) -> Self {
        self.etag = etag.into();
        self
    }

    pub(crate) fn parts(mut self, sizes: impl Into<Vec<u64>>) -> Self {
        self.parts = sizes.into();
        assert_eq!(self.parts.iter().sum::<u64>(), self.content.size());
        self
    }

    pub(crate) fn modified_at(mut self, last_modified: SystemTime) -> Self {
        self.last_modified = last_modified;
        self
    }
}

/// The time in whole seconds.
pub(super) fn this_second() -> SystemTime {
    let now = clock::utc_now().duration_since(UNIX_EPOCH).unwrap();
    UNIX_EPOCH + Duration::from_secs(now.as_secs())
}

impl<C: Into<Content>> From<C> for Object {
    fn from(content: C) -> Self {
        Self::new(content)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

/// The finisher of `SplitMix64`: one word in, one word out, and no two neighbours alike.
fn scramble(word: u64) -> u64 {
    let mixed = word.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
