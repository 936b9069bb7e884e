//! A write back at the node that its client asked, from its first byte to its acknowledgement.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use shoal_policy::NodeId;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::payload::CheckedBody;

use super::ahead::{Ahead, OFFERS, Sent, SentTo};
use super::intake::{Blocks, Intake, Taken};
use super::request::Request;
use super::view::View;
use super::{Answer, Homes};
use crate::blocks::placement::Placement;
use crate::clock;
use crate::dirty::lake_writer::{Cancel, Uploaded};
use crate::dirty::part_layout::PartLayout;
use crate::dirty::writing::{PendingWrite, WriteError, Written};
use crate::dirty::{AuthorityUnreachable, Manifest};
use crate::http::connection::ClientBody;
use crate::write::Uncached;

/// The attributes of an object that was uploaded in parts.
#[derive(Debug, Default)]
pub(super) struct Parted {
    pub(super) part_layout: PartLayout,
    /// Headers that reads return and that the lake derives itself.
    pub(super) of_reads: HeaderMap,
}

impl Homes {
    /// Receives the bytes and commits the object. An object that cannot be kept dirty goes to the lake first.
    pub async fn write(
        &self,
        mut order: PendingWrite,
        body: CheckedBody<ClientBody>,
    ) -> Result<Written, WriteError> {
        let intake = Intake::new(
            Arc::clone(&self.store),
            Arc::clone(&self.fetcher),
            order.size_bytes,
            self.block_bytes,
            self.way_ahead(&order.name, order.size_bytes),
        );
        let Taken {
            blocks,
            etag,
            trailer,
        } = intake.take(body).await?;
        order.headers.extend(trailer);
        let manifest = self.describe(order, &etag, Parted::default(), clock::utc_now());
        let through = self.finish(&manifest, blocks, &HeaderMap::new()).await?;
        Ok(Written {
            version: manifest.version,
            through,
        })
    }

    /// The way of the blocks of an object to their holders, before it is complete.
    pub(super) fn way_ahead(&self, name: &ObjectName, size_bytes: u64) -> Option<Arc<Ahead>> {
        let object = name.id(self.lake.url());
        Ahead::of(
            &self.store,
            &self.home.cooperation,
            object,
            size_bytes,
            self.block_bytes,
        )
    }

    /// Lets an object exist whose blocks are here. With conditions, or when it cannot be kept dirty, it is
    /// brought to the lake first; why.
    pub(super) async fn finish(
        &self,
        manifest: &Manifest,
        Blocks { drafts, sent }: Blocks,
        conditions: &HeaderMap,
    ) -> Result<Option<Uncached>, WriteError> {
        let version = &manifest.version;
        // Until the manifest does it.
        let _protection = self.store.protect(version.id);
        for (index, draft) in (0..).zip(drafts) {
            let named = draft.name(Arc::clone(version), index).await;
            named.map_err(WriteError::Disk)?;
        }
        let committed = if conditions.is_empty() {
            self.commit(manifest, &sent).await
        } else {
            Err(Uncached::Condition)
        };
        if committed.is_err() {
            self.write_through(manifest, conditions).await?;
        }
        self.home.grants.invalidate_object(&manifest.name);
        Ok(committed.err())
    }

    /// The object as it will be read, with every block here.
    pub(super) fn describe(
        &self,
        order: PendingWrite,
        etag: &str,
        parted: Parted,
        now: SystemTime,
    ) -> Manifest {
        let version = order.version(etag, &parted.of_reads, self.lake.url(), self.block_bytes, now);
        let me = self.home.cooperation.me();
        let here = (0..version.block_count()).map(|_| me);
        Manifest {
            name: order.name,
            sequence: 0,
            writer: order.writer,
            target: order.target,
            headers: order.headers,
            part_layout: Arc::new(parted.part_layout),
            placement: Arc::new(Placement::new(here).expect("one node can be told")),
            version: Arc::new(version),
        }
    }

    /// Gives the blocks to their holders and lets the object exist. Should a holder not keep what it has
    /// taken, everything stays here.
    async fn commit(&self, manifest: &Manifest, sent: &Sent) -> Result<(), Uncached> {
        let placed = self.place(manifest, sent).await;
        if self.commit_as(&placed).await? {
            return Ok(());
        }
        let stays = placed.placement != manifest.placement;
        if stays && self.commit_as(manifest).await? {
            return Ok(());
        }
        Err(Uncached::NotKept)
    }

    async fn commit_as(&self, manifest: &Manifest) -> Result<bool, Uncached> {
        let commit = |view| Request::Commit {
            view,
            manifest: Box::new(manifest.clone()),
        };
        match self.directory.decide(&manifest.name, commit).await {
            Ok(answer) => Ok(matches!(answer, Answer::Done(_))),
            Err(AuthorityUnreachable) => Err(Uncached::Unsettled),
        }
    }

    /// Gives each block to its home in the last layer, unless it went there ahead; those that it does not
    /// take stay here.
    async fn place(&self, manifest: &Manifest, sent: &Sent) -> Manifest {
        let cooperation = &self.home.cooperation;
        let view = View::of(cooperation);
        let version = &manifest.version;
        let there = self.name_ahead(version, sent).await;
        let offers = (0..version.block_count()).map(|index| {
            let holder = view.holder(version.block(index), |node| cooperation.can_be_asked(node));
            // Members may have changed since it went: who drains is to keep nothing new.
            let is_there = holder == view.me || there.get(&index) == Some(&holder);
            async move {
                let taken = is_there || cooperation.offer(version, index, holder).await;
                if taken { holder } else { view.me }
            }
        });
        let holders: Vec<NodeId> = stream::iter(offers).buffered(OFFERS).collect().await;
        let placement = Placement::new(holders).map(Arc::new);
        Manifest {
            placement: placement.unwrap_or_else(|| Arc::clone(&manifest.placement)),
            ..manifest.clone()
        }
    }

    /// Tells the nodes to which blocks went ahead by which name these are to be found now; which node has
    /// which block.
    async fn name_ahead(&self, version: &Version, sent: &Sent) -> HashMap<u32, NodeId> {
        let told = sent.0.iter().map(async |(node, SentTo { stand_in, indexes })| {
            let request = Request::Name {
                stand_in: *stand_in,
                blocks: indexes.len() as u32,
                version: Box::new(version.clone()),
            };
            let here = match self.home.messenger.say(*node, &request).await {
                Ok(answer) => read_indexes(&answer.into_body()),
                Err(error) => {
                    tracing::debug!(%error, "blocks that went ahead are not given their name");
                    Vec::new()
                }
            };
            let named = indexes.iter().filter(|index| here.contains(index));
            named.map(|index| (*index, *node)).collect::<Vec<_>>()
        });
        join_all(told).await.into_iter().flatten().collect()
    }

    /// Writes an object to the lake that no other node knows of. It overwrites the dirty object of its
    /// name.
    async fn write_through(&self, manifest: &Manifest, conditions: &HeaderMap) -> Result<(), WriteError> {
        let held = self.directory.hold(&manifest.name).await?;
        let lake_writer = &self.home.lake_writer;
        let uploaded = lake_writer
            .write_if(manifest, conditions, &Cancel::default())
            .await;
        match (uploaded, held) {
            (Ok(Uploaded::Same | Uploaded::OtherEtag(_)), Some(held)) => {
                held.remove().await?;
                Ok(())
            }
            (Ok(_), None) => Ok(()),
            (Err(error), held) => {
                if let Some(held) = held {
                    held.release().await;
                }
                Err(error.into())
            }
        }
    }
}

/// Indexes of blocks as a node tells them.
fn read_indexes(body: &[u8]) -> Vec<u32> {
    body.as_chunks()
        .0
        .iter()
        .copied()
        .map(u32::from_le_bytes)
        .collect()
}
