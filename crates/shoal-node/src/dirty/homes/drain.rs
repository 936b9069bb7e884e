//! A node that is to go brings to the lake what it keeps for it.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};

use super::Homes;
use super::home::takes_part;
use super::view::View;
use crate::dirty::{Found, Manifest};

/// Objects asked to be flushed at a time.
const PARALLEL: usize = 8;

impl Homes {
    /// Lets everything be flushed of which this node keeps a part, once; how many objects it keeps yet that
    /// are not lost, and uploads that somebody is busy with. Their homes do it.
    pub async fn drain_round(&self) -> u64 {
        let busy = self.uploads.busy();
        let kept = self.home.records.all(None);
        let left = stream::iter(kept).map(|manifest| self.part_with(manifest));
        left.buffer_unordered(PARALLEL)
            .fold(busy, |sum, left| std::future::ready(sum + u64::from(left)))
            .await
    }

    /// Whether this node keeps the object yet, for somebody who could have it.
    async fn part_with(&self, manifest: Arc<Manifest>) -> bool {
        match self.directory.find(&manifest.name).await {
            Ok(Found::Lost(_)) => false,
            Ok(Found::Nothing) => {
                // It was flushed by a home that does not count on this node any more.
                if !takes_part(&View::of(&self.home.cooperation), &manifest) {
                    self.home.let_go(&manifest).await;
                }
                false
            }
            Ok(Found::Dirty(_)) => self.directory.flush(&manifest.name).await.is_err(),
            Err(_) => true,
        }
    }
}
