//! Uploads in parts that go through the cache: their bytes are kept aside, and cut into blocks when the lake
//! has completed the object.
//!
//! A part that the lake has taken is a separate version here, made of blocks like all others: they can be
//! evicted, and so leave the disk in time if the upload is never completed. On completion they become blocks
//! of the version that the lake makes of exactly these parts in this order: its ETag proves it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use parking_lot::Mutex;
use shoal_base::chance;
use shoal_policy::ObjectId;
use shoal_s3::etag;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::operation::Classified;
use shoal_s3::range::ByteRange;
use shoal_store::Urgency;
use tokio::task::JoinHandle;

use super::Uncached;
use super::body_copy::{BodyCopy, CopiedBody};
use super::through::{WriteThrough, size_of_body};
use crate::clock;

/// The number of uploads whose parts are kept aside at a time; beyond that the upload that has waited longest
/// is forgotten.
const UPLOADS_MAX: usize = 1024;

/// How long an upload without new parts is remembered.
const IDLE_MAX: Duration = Duration::from_hours(1);

/// One part of an upload that the lake keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UploadPart {
    upload: Upload,
    number: u16,
}

/// An upload that the lake keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Upload {
    object: ObjectId,
    id: Arc<str>,
}

/// The parts that passed here, of every upload.
#[derive(Default)]
pub(super) struct PartTable(Mutex<HashMap<Upload, UploadedParts>>);

struct UploadedParts {
    by_number: BTreeMap<u16, Part>,
    touched: Instant,
}

/// The bytes of a part that are here.
struct Part {
    md5: [u8; 16],
    version: Arc<Version>,
    /// Ends when the part's blocks are on the disk.
    landed: JoinHandle<()>,
}

impl Upload {
    /// The upload of an object that a request names.
    pub fn named(object: ObjectId, classified: &Classified) -> Option<Self> {
        let id = classified.query.get("uploadId")?.into();
        Some(Self { object, id })
    }
}

impl WriteThrough {
    /// Prepares for the bytes of a part.
    ///
    /// # Errors
    ///
    /// Fails with the reason why the part is not cached. The write itself goes on.
    pub fn gather_part(
        &self,
        object: ObjectId,
        classified: &Classified,
        headers: &HeaderMap,
    ) -> Result<(UploadPart, BodyCopy), Uncached> {
        let upload = Upload::named(object, classified).ok_or(Uncached::Dialect)?;
        let number = classified
            .query
            .get("partNumber")
            .and_then(|number| number.parse().ok());
        let number = number.ok_or(Uncached::Dialect)?;
        let size_bytes = size_of_body(headers)?;
        Ok((UploadPart { upload, number }, self.copy(size_bytes)?))
    }

    /// Keeps the bytes of a part aside, now that the lake has taken it.
    ///
    /// # Errors
    ///
    /// Fails with the reason why the part is not cached. The lake has it all the same.
    pub fn keep_part(
        self: &Arc<Self>,
        part: UploadPart,
        copy: &BodyCopy,
        etag: Option<&HeaderValue>,
    ) -> Result<(), Uncached> {
        let copied = copy.finish()?;
        let (etag, md5) = etag.and_then(digest_in).ok_or(Uncached::NoEtag)?;
        let version = Arc::new(self.version_of_part(&part, etag, copied.size_bytes)?);
        let landed = tokio::spawn(Arc::clone(self).land_part(copied, Arc::clone(&version)));
        let kept = Part { md5, version, landed };
        let forgotten = self
            .aside
            .keep(part, kept, self.object_bytes_max, clock::instant());
        self.forget_parts(forgotten);
        Ok(())
    }

    /// A version like no other: the same part sent again gets another one.
    fn version_of_part(
        &self,
        part: &UploadPart,
        etag: HeaderValue,
        size_bytes: u64,
    ) -> Result<Version, Uncached> {
        let object = URL_SAFE_NO_PAD.encode(part.upload.object.0);
        let name = ObjectName {
            bucket: "part".into(),
            key: format!(
                "{object}/{}/{}/{:016x}",
                part.upload.id,
                part.number,
                chance::bits()
            )
            .into_bytes()
            .into(),
            version: None,
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::ETAG, etag);
        let version = Version::from_response(name.id(""), &headers, size_bytes, self.block_bytes);
        version.map_err(|_| Uncached::TooLarge)
    }

    async fn land_part(self: Arc<Self>, copied: CopiedBody, version: Arc<Version>) {
        // Once the upload is complete, blocks of the object are cut from the bytes on the disk.
        let landing = self.finish(copied, &version, Urgency::Now).await;
        landing.await;
    }

    /// Forgets an upload that has become an object or was aborted.
    pub fn forget_upload(self: &Arc<Self>, upload: &Upload) {
        if let Some(parts) = self.aside.0.lock().remove(upload) {
            self.forget_parts(parts.by_number.into_values().collect());
        }
    }

    fn forget_parts(self: &Arc<Self>, parts: Vec<Part>) {
        if parts.is_empty() {
            return;
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            for part in parts {
                // A part still on its way would arrive after its removal.
                let _ = part.landed.await;
                this.store.remove_version(part.version.id);
            }
        });
    }

    /// Goes on in a separate task when the lake says that it makes an object of an upload. If the lake makes
    /// it of other parts, it gives it another ETag, and no read finds these blocks.
    ///
    /// # Errors
    ///
    /// Fails with the reason why the object is not cached. The lake has it all the same.
    pub fn commit_upload(self: &Arc<Self>, upload: &Upload) -> Result<(), Uncached> {
        let parts = self.aside.0.lock().remove(upload).ok_or(Uncached::Multipart)?;
        let parts: Vec<Part> = parts.by_number.into_values().collect();
        let size_bytes = parts.iter().map(|part| part.version.size_bytes).sum();
        let mut named = HeaderMap::new();
        named.insert(header::ETAG, etag_of(&parts));
        let version = Version::from_write(upload.object, &named, size_bytes, self.block_bytes);
        let version = Arc::new(version.map_err(|_| Uncached::TooLarge)?);
        let pending = self.pending_commits.begin(upload.object);
        let (this, underway) = (Arc::clone(self), Arc::clone(&self.underway));
        tokio::spawn(async move {
            this.join_parts(parts, &version).await;
            drop(pending);
            this.hand_over(&version).await;
            drop(underway);
        });
        Ok(())
    }

    async fn join_parts(&self, mut parts: Vec<Part>, version: &Arc<Version>) {
        for part in &mut parts {
            // A block that did not land is not found.
            let _ = (&mut part.landed).await;
        }
        let parts: Vec<Arc<Version>> = parts.into_iter().map(|part| part.version).collect();
        for index in 0..version.block_count() {
            if let Some(pieces) = self.cut(&parts, version, index).await {
                let block = version.block(index);
                // A missing block costs a way to the lake; the store has counted the reason.
                let _refused = self
                    .store
                    .put(block, Arc::clone(version), pieces, Urgency::Now)
                    .await;
            }
        }
        for part in parts {
            self.store.remove_version(part.id);
        }
    }

    /// Cuts a block of the object out of its parts' blocks; `None` if some of these have left the disk.
    async fn cut(&self, parts: &[Arc<Version>], version: &Version, index: u32) -> Option<Vec<Bytes>> {
        let start = u64::from(index) * version.block_bytes;
        let range = ByteRange {
            start,
            end: start + version.block_len(index),
        };
        let sizes: Vec<u64> = parts.iter().map(|part| part.size_bytes).collect();
        let mut pieces = Vec::new();
        for (at, within) in overlaps(&sizes, range) {
            let part = &parts[at];
            let blocks = vec![part.block_bytes; part.block_count() as usize];
            for (block, inner) in overlaps(&blocks, within) {
                let bytes = self.store.load(part.block(block as u32)).await?;
                pieces.push(bytes.slice(inner.start as usize..inner.end as usize));
            }
        }
        Some(pieces)
    }
}

impl PartTable {
    /// Keeps a part and returns the parts that are forgotten in return: the one of the same number, and those
    /// of uploads that are too long or idle.
    fn keep(&self, part: UploadPart, kept: Part, object_bytes_max: u64, now: Instant) -> Vec<Part> {
        let UploadPart { upload, number } = part;
        let mut uploads = self.0.lock();
        let idle = uploads.extract_if(|_, parts| now.saturating_duration_since(parts.touched) > IDLE_MAX);
        let mut forgotten: Vec<Part> = idle
            .flat_map(|(_, parts)| parts.by_number.into_values())
            .collect();
        if uploads.len() >= UPLOADS_MAX && !uploads.contains_key(&upload) {
            let oldest = uploads.iter().min_by_key(|(_, parts)| parts.touched);
            let oldest = oldest.map(|(upload, _)| upload.clone());
            let parts = oldest.and_then(|oldest| uploads.remove(&oldest));
            forgotten.extend(parts.into_iter().flat_map(|parts| parts.by_number.into_values()));
        }
        let parts = uploads.entry(upload.clone()).or_insert_with(|| UploadedParts {
            by_number: BTreeMap::new(),
            touched: now,
        });
        parts.touched = now;
        forgotten.extend(parts.by_number.insert(number, kept));
        let bytes: u64 = parts.by_number.values().map(|part| part.version.size_bytes).sum();
        if bytes > object_bytes_max {
            let parts = uploads.remove(&upload).expect("a part was just put there");
            forgotten.extend(parts.by_number.into_values());
        }
        forgotten
    }
}

/// The pieces, of some laid one behind the other, that a range meets, and where within each.
fn overlaps(sizes: &[u64], range: ByteRange) -> Vec<(usize, ByteRange)> {
    let mut met = Vec::new();
    let mut start = 0;
    for (at, size) in sizes.iter().enumerate() {
        let end = start + size;
        let (first, behind) = (range.start.max(start), range.end.min(end));
        if first < behind {
            let within = ByteRange {
                start: first - start,
                end: behind - start,
            };
            met.push((at, within));
        }
        start = end;
    }
    met
}

/// The ETag and its MD5, if the ETag is one.
fn digest_in(etag: &HeaderValue) -> Option<(HeaderValue, [u8; 16])> {
    let digits = etag.to_str().ok()?.strip_prefix('"')?.strip_suffix('"')?;
    let mut md5 = [0; 16];
    if digits.len() != 2 * md5.len() {
        return None;
    }
    for (at, byte) in md5.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some((etag.clone(), md5))
}

/// The ETag that a lake gives an object of these parts: the MD5 of their MD5s, and the number of parts.
fn etag_of(parts: &[Part]) -> HeaderValue {
    let etag = etag::of_parts(parts.iter().map(|part| part.md5));
    HeaderValue::try_from(etag).expect("an ETag is a header value")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::{ByteRange, digest_in, overlaps};

    #[test]
    fn a_block_is_cut_out_of_the_parts_that_it_meets() {
        let met = |start, end| {
            let met = overlaps(&[100, 0, 30, 100], ByteRange { start, end });
            met.into_iter()
                .map(|(at, range)| (at, range.start, range.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(met(0, 64), [(0, 0, 64)]);
        assert_eq!(met(64, 128), [(0, 64, 100), (2, 0, 28)]);
        assert_eq!(met(99, 131), [(0, 99, 100), (2, 0, 30), (3, 0, 1)]);
        assert_eq!(met(192, 230), [(3, 62, 100)]);
    }

    #[test]
    fn only_an_etag_that_is_a_digest_says_what_a_part_is() {
        let is_one = |text: &'static str| digest_in(&HeaderValue::from_static(text)).is_some();
        assert!(is_one("\"d41d8cd98f00b204e9800998ecf8427e\""));
        for text in [
            "d41d8cd98f00b204e9800998ecf8427e",
            "\"d41d8cd98f00b204e9800998ecf8427e-1\"",
            "\"zz\"",
            "",
        ] {
            assert!(!is_one(text), "{text}");
        }
    }
}
