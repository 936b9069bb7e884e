//! A read of a dirty object: every byte from the nodes that hold it, for there is no lake to ask.

use std::sync::Arc;

use super::{Dirty, Manifest};
use crate::blocks::{BlockStream, FetchPlan, Shelf};
use crate::read::{Answer, Ask, Known, ReadError, Reading, Residency};

impl Dirty {
    /// Answers a GET by the writer of an object.
    pub async fn read(&self, ask: &Ask, manifest: &Manifest) -> Result<Answer, ReadError> {
        let version = Arc::clone(&manifest.version);
        let range = match ask.locate(&version) {
            Ok(range) => range,
            Err(answer) => return Ok(answer),
        };
        let residency = Residency::of(&version, range, |block| self.fetcher.holds(block));
        if ask.only_if_cached && residency != Residency::All {
            return Ok(Known::NotCached.into());
        }
        let shelf = Shelf {
            store: Arc::clone(&self.store),
            fetcher: Arc::clone(&self.fetcher),
            version: Arc::clone(&version),
            context: Arc::clone(&ask.context),
            plan: FetchPlan::Placed(Arc::clone(&manifest.placement)),
        };
        let window = ask.window(self.ahead);
        let mut blocks = Box::new(BlockStream::new(Arc::new(shelf), range, window, None));
        blocks.first_piece().await.map_err(ReadError::Fetch)?;
        let reading = Reading {
            version,
            range,
            blocks,
            residency,
        };
        Ok(Known::Object(reading).into())
    }
}
