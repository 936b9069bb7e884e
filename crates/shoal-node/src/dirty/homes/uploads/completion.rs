//! An object is made of the parts that came: their bytes are cut anew, and it is committed as every write
//! back is.

use std::future::poll_fn;
use std::sync::Arc;

use http::HeaderMap;
use shoal_base::encoding::{Malformed, Reader, write_bytes, write_headers};
use shoal_s3::payload::Digests;

use crate::clock;
use crate::dirty::checksums::{ChecksumSpec, ChecksumType};
use crate::dirty::homes::Homes;
use crate::dirty::homes::committing::Parted;
use crate::dirty::homes::intake::{Blocks, Intake};
use crate::dirty::lake_writer::LakeWriteError;
use crate::dirty::multipart::{self, Completed, CompletionError, Part, Upload};
use crate::dirty::writing::{PendingWrite, WriteError};
use crate::dirty::{FlushFailed, ReceiveError};
use crate::single_flight::FetchError;

/// How a completion ended.
pub(super) type Ended = Result<Arc<Completed>, CompletionError>;

/// The bytes of all parts, on this disk.
struct Assembled {
    blocks: Blocks,
    checksums: HeaderMap,
}

impl Homes {
    /// Makes an object of `parts`. With conditions it goes to the lake at once, which alone can tell whether
    /// they hold.
    pub(super) async fn complete_of(
        &self,
        upload: &Upload,
        parts: &[Arc<Part>],
        conditions: &HeaderMap,
    ) -> Ended {
        let ended = self.try_to_complete(upload, parts, conditions).await;
        match &ended {
            Ok(completed) => {
                tracing::debug!(object = ?upload.name, parts = parts.len(), through = &*completed.through, "an upload is complete");
            }
            Err(error) => tracing::warn!(object = ?upload.name, %error, "an upload was not completed"),
        }
        ended
    }

    async fn try_to_complete(&self, upload: &Upload, parts: &[Arc<Part>], asked: &HeaderMap) -> Ended {
        let _yielded = self.uploads.yield_room(parts);
        let Assembled { blocks, checksums } = self.assemble(upload, parts).await?;
        let differs = |(name, value): (&http::HeaderName, _)| {
            let computed = checksums.get(name);
            computed.is_some_and(|computed| computed != value)
        };
        if asked.iter().any(differs) {
            return Err(CompletionError::Checksum);
        }
        let order = PendingWrite {
            name: upload.name.clone(),
            writer: Arc::clone(&upload.writer),
            size_bytes: parts.iter().map(|part| part.size_bytes()).sum(),
            target: upload.target.clone(),
            headers: upload.headers.clone(),
        };
        let parted = Parted {
            part_layout: multipart::part_layout(parts),
            of_reads: checksums.clone(),
        };
        let etag = multipart::etag(parts);
        let manifest = self.describe(order, &etag, parted, clock::utc_now());
        let conditions = conditions_in(asked);
        if !conditions.is_empty() {
            self.directory.settle(&upload.name).await.map_err(unsettled)?;
        }
        let through = self
            .finish(&manifest, blocks, &conditions)
            .await
            .map_err(|error| unwritten(&error))?;
        Ok(Arc::new(Completed {
            etag: etag.into(),
            checksums,
            through: through.map_or("", crate::write::Uncached::as_str).into(),
        }))
    }

    /// Cuts the bytes of all parts into blocks.
    async fn assemble(&self, upload: &Upload, parts: &[Arc<Part>]) -> Result<Assembled, CompletionError> {
        let checksum_spec = ChecksumSpec::of(&upload.headers).ok().flatten();
        let mut whole = Digests::default();
        if let Some(ChecksumSpec {
            algorithm,
            kind: ChecksumType::FullObject,
        }) = checksum_spec
        {
            whole.add(algorithm);
        }
        let size_bytes = parts.iter().map(|part| part.size_bytes()).sum();
        let mut intake = Intake::new(
            Arc::clone(&self.store),
            Arc::clone(&self.fetcher),
            size_bytes,
            self.block_bytes,
            self.way_ahead(&upload.name, size_bytes),
        );
        for part in parts {
            let placed = (&part.version, part.holder);
            let blocks = self.home.lake_writer.blocks_of_part(upload, placed);
            let mut blocks = blocks.map_err(|_unknown_writer| CompletionError::Later)?;
            while let Some(piece) = poll_fn(|cx| blocks.poll_next(cx)).await {
                let piece = piece.map_err(|error| self.unread(upload, part, &error))?;
                whole.update(&piece);
                intake.add(piece).await.map_err(|error| not_taken(&error))?;
            }
        }
        let blocks = intake.finish().await.map_err(|error| not_taken(&error))?;
        let digests: Option<Vec<_>> = parts.iter().map(|part| Some(part.checksum()?.digest)).collect();
        let checksums = checksum_spec.zip(digests);
        let checksums = checksums.map(|(of, digests)| of.headers_of_object(&digests, &whole));
        Ok(Assembled {
            blocks,
            checksums: checksums.unwrap_or_default(),
        })
    }

    /// A part that is nowhere any more must be uploaded again. One whose holder is only out of reach may be
    /// found later.
    fn unread(&self, upload: &Upload, part: &Part, error: &FetchError) -> CompletionError {
        let holder = self.home.cooperation.peer(part.holder);
        let is_silent = holder.is_some_and(|peer| !peer.is_reachable());
        let is_lost = matches!(error, FetchError::NotHeld) && !is_silent;
        if !is_lost {
            tracing::debug!(%error, part = part.number, "a part cannot be read now");
            return CompletionError::Later;
        }
        tracing::error!(object = ?upload.name, part = part.number, "a part of an upload is lost: the node that held it is gone, or has it no more");
        self.uploads.table.lock().lose(upload.id, part);
        CompletionError::PartLost(part.number)
    }
}

/// What of a request is about the object that is there.
fn conditions_in(asked: &HeaderMap) -> HeaderMap {
    let conditions = asked.iter().filter(|(name, _)| name.as_str().starts_with("if-"));
    conditions
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn not_taken(error: &ReceiveError) -> CompletionError {
    tracing::debug!(%error, "the parts of an upload are not put together");
    CompletionError::Later
}

fn unsettled(error: FlushFailed) -> CompletionError {
    tracing::debug!(%error, "what is dirty under the name of an upload is in its way");
    CompletionError::Later
}

fn unwritten(error: &WriteError) -> CompletionError {
    tracing::debug!(%error, "the object of an upload is not written");
    match error {
        WriteError::Upload(LakeWriteError::Refused(status)) if status.is_client_error() => {
            CompletionError::Refused(status.as_u16())
        }
        _ => CompletionError::Later,
    }
}

/// The bytes by which nodes tell each other why there is no object.
const fn code(error: CompletionError) -> (u8, u16) {
    match error {
        CompletionError::Refused(status) => (1, status),
        CompletionError::PartLost(number) => (2, number),
        CompletionError::Checksum => (3, 0),
        CompletionError::Later => (4, 0),
    }
}

pub(super) fn write_completed(completed: &Completed, out: &mut Vec<u8>) {
    write_bytes(out, completed.etag.as_bytes());
    write_headers(out, &completed.checksums);
    write_bytes(out, completed.through.as_bytes());
}

/// Inverse of [`write_completed`].
pub(super) fn read_completed(reader: &mut Reader<'_>) -> Result<Completed, Malformed> {
    Ok(Completed {
        etag: reader.text()?.into(),
        checksums: reader.headers()?,
        through: reader.text()?.into(),
    })
}

/// How a completion ended, for another node.
pub(super) fn to_bytes(how: &Ended) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let (code, value) = how.as_ref().err().map_or((0, 0), |error| code(*error));
    out.push(code);
    out.extend_from_slice(&value.to_le_bytes());
    if let Ok(completed) = how {
        write_completed(completed, &mut out);
    }
    out
}

/// Inverse of [`to_bytes`].
pub(super) fn of_bytes(bytes: &[u8]) -> Result<Ended, Malformed> {
    let mut reader = Reader::new(bytes);
    let ([code], value) = (reader.array()?, u16::from_le_bytes(reader.array()?));
    let ended = match code {
        0 => Ok(Arc::new(read_completed(&mut reader)?)),
        1 => Err(CompletionError::Refused(value)),
        2 => Err(CompletionError::PartLost(value)),
        3 => Err(CompletionError::Checksum),
        4 => Err(CompletionError::Later),
        _ => return Err(Malformed),
    };
    reader.rest().is_empty().then_some(ended).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{HeaderMap, HeaderValue};

    use super::{Completed, CompletionError, conditions_in, of_bytes, to_bytes};

    #[test]
    fn how_a_completion_ended_is_told_and_heard() {
        let mut checksums = HeaderMap::new();
        checksums.insert("x-amz-checksum-crc32", HeaderValue::from_static("AAAAAA==-2"));
        let completed = Completed {
            etag: "\"e-2\"".into(),
            checksums,
            through: "condition".into(),
        };
        for ended in [
            Ok(Arc::new(completed)),
            Err(CompletionError::Refused(412)),
            Err(CompletionError::PartLost(7)),
            Err(CompletionError::Checksum),
            Err(CompletionError::Later),
        ] {
            assert_eq!(of_bytes(&to_bytes(&ended)), Ok(ended));
        }
        assert!(of_bytes(&[9, 0, 0]).is_err() && of_bytes(&[]).is_err());
    }

    #[test]
    fn the_lake_hears_the_conditions_of_a_completion_and_nothing_else() {
        let mut asked = HeaderMap::new();
        asked.insert("if-none-match", HeaderValue::from_static("*"));
        asked.insert("x-amz-checksum-crc32", HeaderValue::from_static("AAAAAA=="));
        let conditions = conditions_in(&asked);
        assert!(conditions.len() == 1 && conditions.contains_key("if-none-match"));
    }
}
