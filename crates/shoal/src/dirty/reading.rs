//! A read of a dirty object: every byte from the nodes that hold it, for there is no lake to ask.

use std::sync::Arc;

use super::{Dirty, Manifest};
use crate::blocks::{BlockReader, BlockStream, FetchPlan};
use crate::read::{GetAnswer, KnownAnswer, ReadError, ReadRequest, Reading, Residency};

impl Dirty {
    /// Answers a GET by the writer of an object.
    pub async fn read(&self, request: &ReadRequest, manifest: &Manifest) -> Result<GetAnswer, ReadError> {
        let version = Arc::clone(&manifest.version);
        let range = match request.locate(&version) {
            Ok(range) => range,
            Err(answer) => return Ok(answer),
        };
        let residency = Residency::of(&version, range, |block| self.fetcher.holds(block));
        if request.only_if_cached && residency != Residency::All {
            return Ok(KnownAnswer::NotCached.into());
        }
        let reader = BlockReader {
            store: Arc::clone(&self.store),
            fetcher: Arc::clone(&self.fetcher),
            version: Arc::clone(&version),
            context: Arc::clone(&request.context),
            plan: FetchPlan::Placed(Arc::clone(&manifest.placement)),
        };
        let window = request.window(self.ahead);
        let mut blocks = Box::new(BlockStream::new(Arc::new(reader), range, window, None));
        blocks.first_piece().await.map_err(ReadError::Fetch)?;
        let reading = Reading {
            version,
            range,
            blocks,
            residency,
        };
        Ok(KnownAnswer::Object(reading).into())
    }
}
