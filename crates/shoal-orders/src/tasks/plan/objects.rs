//! The objects of a file of a plan, as the lake has them now, and which of their blocks a transfer fetches.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use shoal_cache::lake::LakeRefusal;
use shoal_plan::document::{ExpectedFile, Extent};
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::target;

use super::document::place_of;
use crate::tasks::parts::fill::NotFilled;
use crate::tasks::parts::lake_view::LakeView;
use crate::tasks::parts::placer::Block;

/// The most objects of one file.
const OBJECTS_MAX: usize = 100_000;

/// The number of objects about which the lake is asked at a time.
const ASKED_AT_ONCE: usize = 16;

/// Why a file cannot be fetched now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoFile {
    /// The lake does not have it, or does not show it to the identity.
    Missing(String),
    /// Another reason, which may pass.
    Failed(String),
}

impl From<NotFilled> for NoFile {
    fn from(error: NotFilled) -> Self {
        let why = error.to_string();
        match error {
            NotFilled::Denied(_) => Self::Missing(why),
            _ => Self::Failed(why),
        }
    }
}

/// An object, and where its bytes begin in the file.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) name: ObjectName,
    pub(super) first_byte: u64,
    pub(super) bytes: u64,
}

/// The objects of a file in the order of their keys.
pub(super) async fn parts(lake: &LakeView, file: &ExpectedFile) -> Result<Vec<Part>, NoFile> {
    let uri = place_of(file).map_err(NoFile::Failed)?;
    let name = |key: &[u8]| ObjectName {
        bucket: uri.bucket.as_str().into(),
        key: key.into(),
        version: None,
    };
    if file.extent == Extent::Object {
        let name = name(uri.key.as_bytes());
        let version = current(lake, &name).await?;
        return Ok(vec![Part {
            name,
            first_byte: 0,
            bytes: version.size_bytes,
        }]);
    }
    let (mut parts, mut first_byte, mut after) = (Vec::new(), 0, Vec::new());
    loop {
        let page = lake.list(&uri.bucket, uri.key.as_bytes(), &after).await;
        let page = page.map_err(|refusal| no_file(&refusal))?;
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
            return Err(NoFile::Failed(format!(
                "more than {OBJECTS_MAX} objects are below it"
            )));
        }
    }
    if parts.is_empty() {
        return Err(NoFile::Missing("the lake has no objects below it".to_owned()));
    }
    Ok(parts)
}

/// The blocks that begin within `bytes` bytes of a file from `first_byte` on, in their order.
pub(super) async fn blocks(
    lake: &LakeView,
    parts: &[Part],
    (first_byte, bytes): (u64, u64),
) -> Result<Vec<Block>, NoFile> {
    let end = first_byte.saturating_add(bytes);
    let wanted = parts
        .iter()
        .filter(|part| part.first_byte < end && part.first_byte + part.bytes > first_byte);
    let wanted: Vec<Part> = wanted.cloned().collect();
    let wanted = stream::iter(wanted).map(|part| async move {
        let version = current(lake, &part.name).await?;
        let begins = |index: u32| part.first_byte + u64::from(index) * version.block_bytes;
        let indexes = (0..version.block_count()).filter(|index| (first_byte..end).contains(&begins(*index)));
        let blocks = indexes.map(|index| Block {
            name: part.name.clone(),
            version: Arc::clone(&version),
            index,
        });
        Ok::<_, NoFile>(blocks.collect::<Vec<_>>())
    });
    let blocks: Vec<Vec<Block>> = wanted.buffered(ASKED_AT_ONCE).try_collect().await?;
    Ok(blocks.into_iter().flatten().collect())
}

/// The current version of an object, as the lake tells it.
async fn current(lake: &LakeView, name: &ObjectName) -> Result<Arc<Version>, NoFile> {
    if !target::fits(name) {
        return Err(NoFile::Failed("its name is too long".to_owned()));
    }
    lake.version(name).await.map_err(|refusal| no_file(&refusal))
}

fn no_file(refusal: &LakeRefusal) -> NoFile {
    match refusal {
        LakeRefusal::Refused(_) => NoFile::Missing(refusal.to_string()),
        LakeRefusal::Trouble(_) | LakeRefusal::Uncacheable(_) => NoFile::Failed(refusal.to_string()),
    }
}
