//! A packed object: how a manifest becomes a member of a pack, and how a row of the map is read.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::ready;
use futures_util::stream::{self, BoxStream};
use http::HeaderMap;
use shoal_base::encoding::Malformed;
use shoal_cache::obtain::{InPack, KeptBytes};
use shoal_net::endpoint::s3::{CallError, S3Client, SendOptions};
use shoal_net::endpoint::{BoxError, OnContradiction};
use shoal_net::link::Transfer;
use shoal_pack::table::Packed;
use shoal_pack::{Description, Part};
use shoal_policy::Source;
use shoal_registry::{DirtyVersion, Lifetime};
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::range::ByteRange;
use tokio::sync::OnceCell;
use ulid::Ulid;

use super::at_lake::{NotRead, PacksAtLake, SentRange, open_range};
use crate::dirty::record::acknowledged::Acknowledged;
use crate::dirty::record::checksums::ChecksumSpec;
use crate::dirty::record::format::{Unreadable, encoded};
use crate::dirty::record::manifest::{Manifest, Naming, Record, location, version_of};
use crate::dirty::record::part_layout::PartLayout;
use crate::tier::{ChunkDigester, Damages};

/// Describes a dirty object for its pack. `id` is that of its write; among the versions of its name, the
/// greatest `sequence` is the newest.
pub(crate) fn description(manifest: &Manifest, id: Ulid, sequence: u64) -> Description {
    let record = &manifest.record;
    let length = checksum_bytes(&record.headers);
    let md5s = record.acknowledged.parts();
    let parts = record.part_layout.parts().zip(md5s).enumerate();
    let parts = parts.map(|(at, (part, md5))| Part {
        number: part.number,
        size_bytes: part.range.len(),
        md5: *md5,
        checksum: length
            .and_then(|length| record.acknowledged.checksum(at, length))
            .unwrap_or_default()
            .to_vec(),
    });
    Description {
        sequence,
        id,
        writer: record.writer.to_string(),
        modified: record.modified,
        etag: record.etag.to_string(),
        headers: record.headers.clone(),
        of_reads: record.of_reads.clone(),
        parts: parts.collect(),
    }
}

/// Returns the length of the checksum of each part of an upload that was created with these headers.
fn checksum_bytes(headers: &HeaderMap) -> Option<usize> {
    let spec = ChecksumSpec::from_headers(headers).ok().flatten();
    spec.map(|spec| spec.algorithm.len_bytes())
}

/// An object in a pack, as its row of the map describes it.
#[derive(Clone, Debug)]
pub(crate) struct PackedObject {
    /// The name of the object, without a `versionId`.
    pub(crate) name: ObjectName,
    /// The version that reads return: the one that they returned while the object was dirty.
    pub(crate) version: Arc<Version>,
    pub(crate) pack: Ulid,
    /// The name of the pack, about which the lake is asked.
    pub(crate) pack_name: ObjectName,
    /// The bytes of the pack that are those of the object.
    pub(crate) range: Range<u64>,
    /// The bytes that it takes there, its headers included.
    pub(crate) bytes_in_pack: u64,
    /// The CRC-32 of the object's bytes, as ZIP defines it.
    pub(crate) crc32: u32,
    /// All but the digests of its bytes.
    record: Record,
    parts: Vec<Part>,
    /// The id of its write.
    id: Ulid,
}

impl PackedObject {
    /// Reads the row of an object.
    ///
    /// # Errors
    ///
    /// The row describes no object.
    pub(crate) fn new(
        name: ObjectName,
        row: &Packed,
        packs: &PacksAtLake,
        naming: &Naming,
    ) -> Result<Self, Malformed> {
        let description = row.description()?;
        let parts = description.parts;
        let record = Record {
            writer: description.writer.into(),
            etag: description.etag.into(),
            modified: description.modified,
            headers: description.headers,
            of_reads: description.of_reads,
            part_layout: PartLayout::from_parts(parts.iter().map(|part| (part.number, part.size_bytes))),
            acknowledged: Acknowledged::default(),
        };
        let size_bytes = row.range.end - row.range.start;
        let version = version_of(&name, &record, size_bytes, naming).ok_or(Malformed)?;
        Ok(Self {
            bytes_in_pack: row.bytes_in_pack(&name.key),
            name,
            version: Arc::new(version),
            pack: row.pack,
            pack_name: packs.pack(row.pack),
            range: row.range.clone(),
            crc32: row.crc32,
            record,
            parts,
            id: description.id,
        })
    }

    /// Takes note, for operators, of the reason why the pack does not have the object that the map still
    /// finds in it. A refusal is none.
    pub(crate) fn note_damage(&self, damages: &Damages, error: &NotRead) {
        if let NotRead::Gone | NotRead::Wrong(_) = error {
            note_damage(damages, &self.pack_name, error);
        }
    }

    /// Returns the access key of the identity that wrote the object.
    pub(crate) fn writer(&self) -> &Arc<str> {
        &self.record.writer
    }

    /// Returns a reader of the object's bytes. The lake is asked for them by `client`, with `headers`. A pack
    /// that does not have them is reported to `damages`.
    pub(crate) fn bytes(&self, client: S3Client, headers: HeaderMap, damages: &Arc<Damages>) -> MemberBytes {
        MemberBytes {
            id: format!("{}:{}", self.pack, self.range.start).into(),
            client,
            headers,
            pack: self.pack_name.clone(),
            range: ByteRange::new(self.range.start, self.range.end),
            crc32: self.crc32,
            damages: Arc::clone(damages),
            contradicted: None,
            transfer: None,
            in_pack: None,
            read: Arc::default(),
        }
    }

    /// Returns the object as it was while it was dirty, so that it can be written under its own name. `bytes`
    /// are all of its bytes.
    ///
    /// # Errors
    ///
    /// The row contradicts itself.
    pub(crate) fn manifest(&self, bytes: &Bytes, naming: &Naming) -> Result<Manifest, Unreadable> {
        debug_assert_eq!(
            bytes.len() as u64,
            self.version.size_bytes,
            "a member was read whole"
        );
        let mut start = 0;
        let whole = [bytes.len() as u64];
        let sizes = self.parts.iter().map(|part| part.size_bytes);
        let sizes = sizes.chain(whole.into_iter().filter(|_| self.parts.is_empty()));
        let pieces: Vec<_> = sizes
            .filter(|size_bytes| *size_bytes > 0)
            .map(|size_bytes| {
                let end = start + size_bytes as usize;
                let mut digester = ChunkDigester::default();
                digester.update(&bytes[start..end]);
                start = end;
                digester.finish()
            })
            .collect();
        let parts: Vec<_> = self
            .parts
            .iter()
            .map(|part| (part.md5, &*part.checksum))
            .collect();
        let keys = (0..pieces.len()).map(|piece| format!("packed-{}-{piece}", self.id).into());
        let dirty = DirtyVersion {
            id: self.id,
            node: 0,
            size_bytes: self.version.size_bytes,
            lifetime: Lifetime::Normal,
            data: keys.collect(),
            is_tombstone: false,
            content: None,
            record: encoded(&Record {
                acknowledged: Acknowledged::new(pieces, &parts),
                ..self.record.clone()
            }),
        };
        Manifest::new(&self.name, &dirty, naming)
    }
}

fn note_damage(damages: &Damages, pack: &ObjectName, error: &NotRead) {
    damages.note(&location(pack).into(), error.to_string(), MEND_PACK);
}

/// The remedy for a pack that is not as it was written.
pub(super) const MEND_PACK: &str = "restore the pack at the lake, where a lifecycle rule or a person may have removed it, or \
                         write or delete the object";

/// Reads a member of a pack from the lake, always as a whole, so that each byte is proven by the CRC-32.
#[derive(Clone)]
pub(crate) struct MemberBytes {
    id: Arc<str>,
    client: S3Client,
    headers: HeaderMap,
    pack: ObjectName,
    range: ByteRange,
    crc32: u32,
    damages: Arc<Damages>,
    contradicted: Option<OnContradiction>,
    /// The background transfer that is charged for the bytes.
    transfer: Option<Transfer>,
    /// Where other nodes may read the bytes.
    in_pack: Option<Arc<InPack>>,
    /// All bytes, once they are read.
    read: Arc<OnceCell<Bytes>>,
}

impl MemberBytes {
    /// Returns a reader that calls `contradicted` if the lake refuses the bytes, or does not have them.
    pub(crate) fn contradicting(self, contradicted: OnContradiction) -> Self {
        Self {
            contradicted: Some(contradicted),
            ..self
        }
    }

    /// Returns a reader of the same bytes that `transfer` carries from the lake.
    pub(crate) fn within(self, transfer: Option<Transfer>) -> Self {
        Self { transfer, ..self }
    }

    /// Returns a reader of bytes that are one block, which other nodes may obtain, too.
    pub(crate) fn shared(self) -> Self {
        let in_pack = InPack {
            pack: self.pack.clone(),
            range: self.range,
            crc32: self.crc32,
        };
        Self {
            in_pack: Some(Arc::new(in_pack)),
            ..self
        }
    }

    /// Reads all bytes of the object. An empty one is not asked for.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub(crate) async fn whole(&self) -> Result<Bytes, NotRead> {
        if self.range.is_empty() {
            return Ok(Bytes::new());
        }
        Ok(self.open().await?.bytes)
    }

    /// Reads all bytes of the object, of which there are some, with the head of the response. If they are
    /// wrong or break off, they are read once more, because the error may have occurred on the way.
    ///
    /// # Errors
    ///
    /// The lake does not send them.
    pub(crate) async fn open(&self) -> Result<SentRange, NotRead> {
        let got = match self.get().await {
            Err(error @ (NotRead::Wrong(_) | NotRead::Unanswered(CallError::BrokenOff(_)))) => {
                tracing::warn!(pack = ?self.pack, %error, "an object in a pack is read again");
                self.get().await
            }
            got => got,
        };
        if let (Some(contradicted), Err(error)) = (&self.contradicted, &got)
            && error.is_definite()
        {
            contradicted();
        }
        // One that is gone may have been rewritten: then the object is in another pack by now.
        if let Err(error @ NotRead::Wrong(_)) = &got {
            note_damage(&self.damages, &self.pack, error);
        }
        got
    }

    async fn get(&self) -> Result<SentRange, NotRead> {
        let options = SendOptions::within(self.transfer.as_ref());
        let headers = self.headers.clone();
        let sent = open_range(&self.client, &self.pack, self.range, headers, options).await?;
        let is_right = shoal_pack::crc32(&sent.bytes) == self.crc32;
        let wrong = || NotRead::Wrong("bytes that do not match the CRC-32 of the object".into());
        is_right.then_some(sent).ok_or_else(wrong)
    }
}

/// The first read is a request for all bytes, which also serve the others.
impl KeptBytes for MemberBytes {
    /// The pack, and where the object begins in it.
    fn id(&self) -> &str {
        &self.id
    }

    fn read(&self, range: ByteRange) -> BoxStream<'static, Result<Bytes, BoxError>> {
        let of = self.clone();
        let read = async move {
            let whole = of.read.get_or_try_init(|| of.whole()).await.map_err(|error| {
                let pack = location(&of.pack);
                format!("an object in the pack {pack} cannot be read: {error}")
            })?;
            Ok(whole.slice(range.start as usize..range.end as usize))
        };
        stream::once(read).boxed()
    }

    fn source(&self) -> Source {
        Source::Lake
    }

    fn in_pack(&self) -> Option<&Arc<InPack>> {
        self.in_pack.as_ref()
    }
}

impl fmt::Debug for MemberBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemberBytes({:?} of {:?})", self.range, self.pack)
    }
}

/// The bytes of an object in a pack, in memory, so that it is read once and written under its own name.
#[derive(Debug)]
pub(crate) struct BytesInMemory {
    /// Identifies them, see [`KeptBytes::id`].
    pub(crate) id: Box<str>,
    /// All bytes of the object.
    pub(crate) bytes: Bytes,
}

impl KeptBytes for BytesInMemory {
    fn id(&self) -> &str {
        &self.id
    }

    fn read(&self, range: ByteRange) -> BoxStream<'static, Result<Bytes, BoxError>> {
        let part = self.bytes.slice(range.start as usize..range.end as usize);
        stream::once(ready(Ok(part))).boxed()
    }

    fn source(&self) -> Source {
        Source::Lake
    }
}
