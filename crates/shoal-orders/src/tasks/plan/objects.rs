//! The objects of a file of a plan that the lake has now, and the blocks of them that a transfer fetches.

use std::ops::Range;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use shoal_plan::document::{ExpectedFile, Extent};
use shoal_s3::object::ObjectName;

use super::document::place_of;
use crate::tasks::parts::lake_view::{LakeView, ObjectFailure};
use crate::tasks::parts::placer::Block;

/// Maximum number of objects of one file.
const OBJECTS_MAX: usize = 100_000;

/// The number of objects about which the lake is asked at a time.
const ASKED_AT_ONCE: usize = 16;

/// An object, and where its bytes begin in the file.
#[derive(Clone, Debug)]
pub(in crate::tasks) struct Part {
    pub(super) name: ObjectName,
    pub(super) first_byte: u64,
    pub(super) bytes: u64,
}

/// Lists the objects of a file in the order of their keys.
pub(super) async fn parts(lake: &LakeView, file: &ExpectedFile) -> Result<Vec<Part>, ObjectFailure> {
    let uri = place_of(file).map_err(ObjectFailure::Failed)?;
    let name = |key: &[u8]| ObjectName {
        bucket: uri.bucket.as_str().into(),
        key: key.into(),
        version: None,
    };
    if file.extent == Extent::Object {
        let name = name(uri.key.as_bytes());
        let bytes = lake.version(&name, 1).await?.size_bytes;
        return Ok(vec![Part {
            name,
            first_byte: 0,
            bytes,
        }]);
    }
    let (mut parts, mut first_byte, mut after) = (Vec::new(), 0, Vec::new());
    loop {
        let page = lake.list(&uri.bucket, uri.key.as_bytes(), &after).await?;
        let Some(last) = page.last() else { break };
        after.clone_from(&last.key);
        for listed in page.into_iter().filter(|listed| listed.size_bytes > 0) {
            parts.push(Part {
                name: name(&listed.key),
                first_byte,
                bytes: listed.size_bytes,
            });
            first_byte += listed.size_bytes;
        }
        if parts.len() > OBJECTS_MAX {
            let why = format!("more than {OBJECTS_MAX} objects are below it");
            return Err(ObjectFailure::Failed(why));
        }
    }
    if parts.is_empty() {
        return Err(ObjectFailure::Refused("the lake has no objects below it".into()));
    }
    Ok(parts)
}

/// Returns the blocks that begin within these bytes of a file, in their order.
pub(super) async fn blocks(
    lake: &LakeView,
    parts: &[Part],
    bytes: Range<u64>,
) -> Result<Vec<Block>, ObjectFailure> {
    let bytes = &bytes;
    let overlaps = |part: &&Part| part.first_byte < bytes.end && part.first_byte + part.bytes > bytes.start;
    let wanted: Vec<Part> = parts.iter().filter(overlaps).cloned().collect();
    let wanted = stream::iter(wanted).map(|part| async move {
        let version = lake.version(&part.name, 1).await?;
        let begins = |index: u32| part.first_byte + u64::from(index) * version.block_bytes;
        let indexes = (0..version.block_count()).filter(|index| bytes.contains(&begins(*index)));
        let blocks = indexes.map(|index| Block {
            name: part.name.clone(),
            version: Arc::clone(&version),
            index,
            pack: None,
        });
        Ok::<_, ObjectFailure>(blocks.collect::<Vec<_>>())
    });
    let blocks: Vec<Vec<Block>> = wanted.buffered(ASKED_AT_ONCE).try_collect().await?;
    Ok(blocks.into_iter().flatten().collect())
}
