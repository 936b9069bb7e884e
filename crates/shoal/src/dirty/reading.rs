//! A read of a dirty object: every byte from the nodes that hold it, for there is no lake to ask.

use std::sync::Arc;

use super::{Dirty, Manifest};
use crate::blocks::{BlockStream, Shelf, Ways, Window};
use crate::front::conditions::Verdict;
use crate::front::range::{ByteRange, RangeRequest};
use crate::object::Uncacheable;
use crate::read::{Answer, Ask, ReadError, Reading, Residency};

/// Blocks read ahead of one reader.
const AHEAD: usize = 4;

impl Dirty {
    /// Answers a GET by the writer of an object.
    pub async fn read(&self, ask: &Ask, manifest: &Manifest) -> Result<Answer, ReadError> {
        let version = Arc::clone(&manifest.version);
        match ask.conditions.judge(&version.etag, version.last_modified) {
            Verdict::Proceed => {}
            Verdict::NotModified => return Ok(Answer::NotModified(version)),
            Verdict::Failed => return Ok(Answer::PreconditionFailed),
        }
        if version.size_bytes == 0 && ask.range != RangeRequest::Whole {
            return Ok(Answer::Bypass(Uncacheable::Dialect));
        }
        let Ok(range) = ask.range.resolve(version.size_bytes) else {
            return Ok(Answer::Unsatisfiable(version.size_bytes));
        };
        let residency = self.residency(manifest, range);
        if ask.only_if_cached && residency != Residency::All {
            return Ok(Answer::NotCached);
        }
        let shelf = Shelf {
            store: Arc::clone(&self.store),
            fetcher: Arc::clone(&self.fetcher),
            version: Arc::clone(&version),
            origin: Arc::clone(&ask.origin),
            ways: Ways::Placed(Arc::clone(&manifest.placement)),
        };
        let window = Window { now: 1, max: AHEAD };
        let mut blocks = Box::new(BlockStream::new(Arc::new(shelf), range, window, None));
        blocks.first_piece().await.map_err(ReadError::Flight)?;
        Ok(Answer::Object(Reading {
            version,
            range,
            blocks,
            asked: false,
            residency,
        }))
    }

    fn residency(&self, manifest: &Manifest, range: ByteRange) -> Residency {
        let version = &manifest.version;
        let first = (range.start / version.block_bytes) as u32;
        let end = range.end.div_ceil(version.block_bytes) as u32;
        let here = (first..end).filter(|index| self.fetcher.holds(version.block(*index)));
        match here.count() {
            here if here == (end - first) as usize => Residency::All,
            0 => Residency::None,
            _ => Residency::Some,
        }
    }
}
