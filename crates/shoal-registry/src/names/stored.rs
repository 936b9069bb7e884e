//! The values of a registry's keys, as bytes.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::engine::EngineError;
use crate::entry::Entry;
use crate::receipts::Receipts;
use crate::version::DirtyVersion;

/// The first byte of each value: its format version.
pub(super) const FORMAT: u8 = 2;

/// The first byte of an entry that is followed by receipts. Builds before receipts do not read it.
const FORMAT_WITH_RECEIPTS: u8 = 3;

/// The value of an entry's key: the entry, and the receipts of its versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredEntry {
    pub(crate) entry: Entry<DirtyVersion>,
    pub(crate) receipts: Receipts,
}

impl StoredEntry {
    pub(crate) fn encoded(&self) -> Bytes {
        let Self { entry, receipts } = self;
        if receipts.is_empty() {
            return encoded(entry);
        }
        let bytes = postcard::to_extend(&(entry, receipts), vec![FORMAT_WITH_RECEIPTS]);
        bytes.expect("memory takes any value").into()
    }

    /// Inverse of [`encoded`](Self::encoded).
    pub(crate) fn decoded(bytes: &Bytes) -> Result<Self, EngineError> {
        let Some((&FORMAT_WITH_RECEIPTS, rest)) = bytes.split_first() else {
            let receipts = Receipts::default();
            return decoded(bytes).map(|entry| Self { entry, receipts });
        };
        let value = postcard::from_bytes(rest);
        let (entry, receipts) = value.map_err(|_| EngineError::Refused("an entry cannot be read".into()))?;
        Ok(Self { entry, receipts })
    }
}

pub(crate) fn encoded(value: &impl Serialize) -> Bytes {
    let bytes = postcard::to_extend(value, vec![FORMAT]);
    bytes.expect("memory takes any value").into()
}

pub(crate) fn decoded<'a, T: Deserialize<'a>>(bytes: &'a Bytes) -> Result<T, EngineError> {
    let (format, rest) = bytes.split_first().unwrap_or((&0, &[]));
    if *format != FORMAT {
        let message = format!("an entry has format {format}; this node understands {FORMAT}");
        return Err(EngineError::Refused(message));
    }
    postcard::from_bytes(rest).map_err(|_| EngineError::Refused("an entry cannot be read".into()))
}
