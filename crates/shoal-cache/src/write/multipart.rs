//! Multipart uploads through the cache: the bytes of parts are kept, and cut into blocks when the lake has
//! completed the object.
//!
//! A part that the lake has accepted is stored as a version of its own, in blocks like any other: they can be
//! evicted, and so leave the disk in time if the upload is never completed. On completion they become blocks
//! of the version that the lake has made of exactly these parts in this order, which its ETag proves.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use shoal_base::chance;
use shoal_base::hex;
use shoal_net::clock;
use shoal_s3::etag;
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::operation::Classified;
use shoal_s3::range::ByteRange;
use shoal_store::{Storing, Urgency};

use super::Uncached;
use super::body_copy::{BodyCopy, CopiedBody};
use super::parts::{Part, Upload, UploadPart};
use super::through::{WriteThrough, size_of_body};

impl WriteThrough {
    /// Prepares to copy the bytes of a part.
    ///
    /// # Errors
    ///
    /// The reason why the part is not cached. The write itself continues.
    pub fn gather_part(
        &self,
        classified: &Classified,
        headers: &HeaderMap,
        caller: &Caller,
        name: &ObjectName,
    ) -> Result<(UploadPart, BodyCopy), Uncached> {
        let object = name.id(self.fetcher.parts.lake.url());
        let upload = Upload::named(object, classified).ok_or(Uncached::Dialect)?;
        let number = classified
            .query
            .get("partNumber")
            .and_then(|number| number.parse().ok());
        let number = number.ok_or(Uncached::Dialect)?;
        let size_bytes = size_of_body(headers)?;
        let copy = self.copy(size_bytes, caller, name)?;
        Ok((UploadPart { upload, number }, copy))
    }

    /// Keeps the bytes of a part that the lake has accepted.
    ///
    /// # Errors
    ///
    /// The reason why the part is not cached. The lake has it all the same.
    pub fn keep_part(
        self: &Arc<Self>,
        part: UploadPart,
        copy: &BodyCopy,
        etag: Option<&HeaderValue>,
    ) -> Result<(), Uncached> {
        let copied = copy.finish()?;
        let (etag, md5) = etag.and_then(digest_in).ok_or(Uncached::NoEtag)?;
        let version = Arc::new(self.version_of_part(&part, etag, copied.size_bytes)?);
        let quotas = copied.quotas;
        let landed = tokio::spawn(Arc::clone(self).land_part(copied, Arc::clone(&version)));
        let kept = Part {
            md5,
            version,
            quotas,
            landed,
        };
        let forgotten = self
            .aside
            .keep(part, kept, self.object_bytes_max, clock::instant());
        self.forget_parts(forgotten);
        Ok(())
    }

    /// Returns a unique version: if the same part is sent again, it gets another one.
    fn version_of_part(
        &self,
        part: &UploadPart,
        etag: HeaderValue,
        size_bytes: u64,
    ) -> Result<Version, Uncached> {
        let UploadPart { upload, number } = part;
        let object = URL_SAFE_NO_PAD.encode(upload.object.0);
        let key = format!("{object}/{}/{number}/{:016x}", upload.id, chance::bits());
        let name = ObjectName {
            bucket: "part".into(),
            key: key.into_bytes().into(),
            version: None,
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::ETAG, etag);
        let version =
            Version::from_response(name.id(""), &headers, size_bytes, self.fetcher.parts.block_bytes);
        version.map_err(|_| Uncached::TooLarge)
    }

    async fn land_part(self: Arc<Self>, copied: CopiedBody, version: Arc<Version>) {
        // On completion, blocks of the object are cut from the bytes on disk.
        let landing = self.finish(copied, &version, Urgency::Now).await;
        landing.await;
    }

    /// Forgets an upload that was completed or aborted.
    pub fn forget_upload(self: &Arc<Self>, upload: &Upload) {
        self.forget_parts(self.aside.remove(upload).unwrap_or_default());
    }

    fn forget_parts(self: &Arc<Self>, parts: Vec<Part>) {
        if parts.is_empty() {
            return;
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            for part in parts {
                // Blocks of a part that are still being written would arrive after the removal.
                let _ = part.landed.await;
                this.fetcher.parts.store.removal.remove_version(part.version.id);
            }
        });
    }

    /// Starts a task that caches the object of an upload that the lake has completed. If the lake used other
    /// parts, the object has another ETag, and no read finds these blocks.
    ///
    /// # Errors
    ///
    /// The reason why the object is not cached. The lake has it all the same.
    pub fn commit_upload(self: &Arc<Self>, upload: &Upload) -> Result<(), Uncached> {
        let parts = self.aside.remove(upload).ok_or(Uncached::Multipart)?;
        let size_bytes = parts.iter().map(|part| part.version.size_bytes).sum();
        let mut named = HeaderMap::new();
        named.insert(header::ETAG, etag_of(&parts));
        let version = Version::from_write(upload.object, &named, size_bytes, self.fetcher.parts.block_bytes);
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
            // A block that failed to reach the disk is not found below.
            let _ = (&mut part.landed).await;
        }
        // The object counts for the sender of its last part.
        let storing = Storing {
            urgency: Urgency::Now,
            quotas: parts.last().map(|part| part.quotas).unwrap_or_default(),
        };
        let parts: Vec<Arc<Version>> = parts.into_iter().map(|part| part.version).collect();
        for index in 0..version.block_count() {
            if let Some(pieces) = self.cut(&parts, version, index).await {
                let block = version.block(index);
                // A missing block costs a request to the lake; the store has counted the reason.
                let _refused = self
                    .fetcher
                    .parts
                    .store
                    .publisher
                    .put(block, Arc::clone(version), pieces, storing)
                    .await;
            }
        }
        for part in parts {
            self.fetcher.parts.store.removal.remove_version(part.id);
        }
    }

    /// Cuts a block of the object out of its parts' blocks. Returns `None` if some of those were evicted.
    async fn cut(&self, parts: &[Arc<Version>], version: &Version, index: u32) -> Option<Vec<Bytes>> {
        let start = u64::from(index) * version.block_bytes;
        let range = ByteRange::new(start, start + version.block_len(index));
        let sizes: Vec<u64> = parts.iter().map(|part| part.size_bytes).collect();
        let mut pieces = Vec::new();
        for (at, within) in overlaps(&sizes, range) {
            let part = &parts[at];
            let blocks = vec![part.block_bytes; part.block_count() as usize];
            for (block, inner) in overlaps(&blocks, within) {
                let bytes = self
                    .fetcher
                    .parts
                    .store
                    .load(part.block(block as u32), true)
                    .await?;
                pieces.push(bytes.slice(inner.start as usize..inner.end as usize));
            }
        }
        let length: u64 = pieces.iter().map(|piece: &Bytes| piece.len() as u64).sum();
        assert_eq!(length, range.len(), "the parts cover the block");
        Some(pieces)
    }
}

/// Returns the pieces of a concatenation that overlap a range, each with the overlap within it.
fn overlaps(sizes: &[u64], range: ByteRange) -> Vec<(usize, ByteRange)> {
    let mut met = Vec::new();
    let mut start = 0;
    for (at, size) in sizes.iter().enumerate() {
        let end = start + size;
        let (first, behind) = (range.start.max(start), range.end.min(end));
        if first < behind {
            let within = ByteRange::new(first - start, behind - start);
            met.push((at, within));
        }
        start = end;
    }
    met
}

/// Returns the ETag and its MD5, if the ETag is one.
fn digest_in(etag: &HeaderValue) -> Option<(HeaderValue, [u8; 16])> {
    let digits = etag.to_str().ok()?.strip_prefix('"')?.strip_suffix('"')?;
    Some((etag.clone(), hex::decode(digits.as_bytes())?))
}

/// Returns the ETag that a lake gives an object of these parts: the MD5 of their MD5s, and the number of
/// parts.
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
