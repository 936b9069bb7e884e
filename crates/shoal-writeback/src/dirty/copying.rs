//! Copies dirty objects within their tier: the store copies the bytes to new keys, and a new entry names
//! them.
//!
//! A copy keeps the parts of its source, as if the source had been uploaded again, so it has the ETag and
//! checksums of the source. (At S3 a copy has one part.)

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderName, HeaderValue};
use shoal_cache::lake::Write;
use shoal_cache::write::Uncached;
use shoal_net::clock;
use shoal_registry::Content;
use shoal_s3::identity::Caller;
use shoal_s3::object::Version;
use shoal_s3::operation::COPY_SOURCE;
use shoal_s3::range::ByteRange;

use super::objects::{DirtyObjects, NewBytes, NewObject};
use super::record::keys::new_key;
use super::record::manifest::{Manifest, Record};
use super::record::writing::{PendingWrite, WriteError, is_metadata, of_flush};
use super::tiers::Tier;
use super::tiers::entries::Lookup;
use crate::headers::those;
use crate::tier::{Piece, StoreError};

/// Number of pieces of one object that the store copies in parallel.
const PARALLEL: usize = 4;

const DIRECTIVE: HeaderName = HeaderName::from_static("x-amz-metadata-directive");

/// Prefix of the headers that are conditions on the source. The front evaluates them.
const SOURCE_CONDITION: &str = "x-amz-copy-source-if-";

/// The headers of a copy, all of which the node understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRequest {
    /// True if the copy gets the metadata of the request instead of the source's.
    pub replaces_metadata: bool,
    /// The headers of the request that apply to a write.
    headers: HeaderMap,
}

/// The reason why a tier did not make a copy.
#[derive(Debug, thiserror::Error)]
pub enum NotCopied {
    /// The lake must make the copy.
    #[error("the copy is made at the lake: {}", .0.as_str())]
    AtLake(Uncached),
    /// The bytes of the source have been removed, because it was overwritten, deleted or flushed.
    #[error("the source has changed")]
    SourceGone,
    /// The copy could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl CopyRequest {
    /// Parses the headers of a copy.
    ///
    /// # Errors
    ///
    /// The node does not support one of them.
    pub fn parse(sent: &HeaderMap) -> Result<Self, Uncached> {
        let mut directives = sent.get_all(DIRECTIVE).iter().map(HeaderValue::as_bytes);
        let replaces_metadata = match (directives.next(), directives.next()) {
            (None | Some(b"COPY"), None) => false,
            (Some(b"REPLACE"), None) => true,
            _ => return Err(Uncached::Dialect),
        };
        let is_of_copies = |name: &HeaderName| {
            [&COPY_SOURCE, &DIRECTIVE].contains(&name) || name.as_str().starts_with(SOURCE_CONDITION)
        };
        let rest = those(sent, |name| !is_of_copies(name));
        if rest.keys().any(is_of_bytes) {
            return Err(Uncached::Dialect);
        }
        Ok(Self {
            replaces_metadata,
            headers: of_flush(&rest)?,
        })
    }

    /// Returns the headers to flush the copy with, given those that the `source` object was written with.
    fn headers_of_copy(&self, source: &HeaderMap) -> HeaderMap {
        let replaces = self.replaces_metadata;
        let mut headers = those(source, |name| is_of_bytes(name) || is_metadata(name) && !replaces);
        headers.extend(those(&self.headers, |name| replaces || !is_metadata(name)));
        headers
    }
}

impl DirtyObjects {
    /// Copies the dirty object in `source` to another name of its tier, or to its own name, on behalf of
    /// `caller`, who may read the source and becomes the writer of the copy. The lake is asked if it may
    /// write.
    ///
    /// # Errors
    ///
    /// No copy was made, or the outcome is unknown.
    pub async fn copy(
        &self,
        source: &Lookup,
        request: &CopyRequest,
        Write { name, lifetime, .. }: Write<'_>,
        caller: &Caller,
    ) -> Result<Arc<Version>, NotCopied> {
        let Some(manifest) = source.object() else {
            return Err(NotCopied::SourceGone);
        };
        let rule = self.entries.rule(name);
        let copies = |tier: &Tier| manifest.is_inline || tier.store.copies();
        let rule = rule.filter(|(rule, tier)| rule.tier == source.tier && copies(tier));
        let Some((_, tier)) = rule else {
            return Err(NotCopied::AtLake(Uncached::Copy));
        };
        let size_bytes = manifest.version.size_bytes;
        let headers = request.headers_of_copy(&manifest.record.headers);
        let write = PendingWrite::from_headers(name, size_bytes, headers, caller);
        let write = write.map_err(NotCopied::AtLake)?;
        self.clearances
            .permit(&write, caller)
            .await
            .map_err(NotCopied::AtLake)?;
        let record = Record {
            writer: write.writer,
            modified: clock::utc_now(),
            headers: write.headers,
            ..manifest.record.clone()
        };
        let bytes = if manifest.is_inline {
            NewBytes::Entry(content_of(manifest)?)
        } else {
            NewBytes::Store(copy_pieces(tier, &manifest.pieces).await?)
        };
        let entered = self.enter(NewObject {
            name,
            size_bytes,
            lifetime,
            record: &record,
            bytes,
        });
        Ok(entered.await?)
    }
}

/// Returns the bytes of an inline object, compared with their digest.
fn content_of(manifest: &Manifest) -> Result<Content, NotCopied> {
    let content = manifest.content.clone().ok_or(NotCopied::SourceGone)?;
    let size_bytes = manifest.version.size_bytes;
    let mut proof = manifest.proof_of(ByteRange::new(0, size_bytes));
    let taken = proof.take(content.0.clone(), &mut VecDeque::new());
    let is_proven = taken.is_ok() && proof.proven_end() == size_bytes;
    is_proven
        .then_some(content)
        .ok_or(NotCopied::AtLake(Uncached::TierUnavailable))
}

/// Copies pieces to new keys. If one fails, all copies are removed.
async fn copy_pieces(tier: &Tier, pieces: &[Piece]) -> Result<Vec<Arc<str>>, NotCopied> {
    let keys: Vec<_> = pieces.iter().map(|piece| new_key(piece.size_bytes)).collect();
    let copies: Vec<_> = pieces
        .iter()
        .zip(&keys)
        .map(|(from, to)| tier.store.copy(from, to))
        .collect();
    let copied: Result<(), StoreError> = stream::iter(copies)
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await;
    let Err(error) = copied else {
        return Ok(keys);
    };
    tier.store.discard(&keys).await;
    Err(match error {
        StoreError::Missing => NotCopied::SourceGone,
        StoreError::Full(_) => NotCopied::AtLake(Uncached::TooDirty),
        _ => NotCopied::AtLake(Uncached::TierUnavailable),
    })
}

/// Returns true if a header of a write describes the bytes sent with it. A copy has the bytes of its source,
/// so a request for a copy cannot carry such headers.
fn is_of_bytes(name: &HeaderName) -> bool {
    let name = name.as_str();
    let of_body = [
        "content-md5",
        "x-amz-decoded-content-length",
        "x-amz-sdk-checksum-algorithm",
        "x-amz-trailer",
    ];
    of_body.contains(&name) || name.starts_with("x-amz-checksum-")
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::CopyRequest;
    use shoal_cache::write::Uncached;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        pairs.collect()
    }

    fn copied(sent: &[(&'static str, &'static str)]) -> HeaderMap {
        let source = headers(&[
            ("content-type", "text/plain"),
            ("content-md5", "md5"),
            ("x-amz-meta-colour", "blue"),
            ("x-amz-checksum-crc32", "crc"),
            ("x-amz-request-payer", "requester"),
        ]);
        CopyRequest::parse(&headers(sent))
            .unwrap()
            .headers_of_copy(&source)
    }

    #[test]
    fn a_copy_says_of_its_bytes_what_its_source_does() {
        let kept = [
            ("content-md5", "md5"),
            ("x-amz-checksum-crc32", "crc"),
            ("content-type", "text/plain"),
            ("x-amz-meta-colour", "blue"),
        ];
        let plain = [("x-amz-copy-source", "b/k"), ("user-agent", "spark")];
        let own = [("user-agent", "spark")];
        assert_eq!(copied(&plain), headers(&[&kept[..], &own].concat()));
        let ignored = [
            ("x-amz-metadata-directive", "COPY"),
            ("x-amz-copy-source-if-match", "e"),
        ];
        let meta = [("x-amz-meta-size", "xl"), ("content-type", "text/html")];
        let sent = [&plain[..], &ignored, &meta].concat();
        assert_eq!(copied(&sent), headers(&[&kept[..], &own].concat()));
        let replace = [("x-amz-metadata-directive", "REPLACE")];
        let sent = [&plain[..], &replace, &meta].concat();
        assert_eq!(copied(&sent), headers(&[&kept[..2], &own, &meta].concat()));
        let bare = copied(&replace);
        assert_eq!(bare["content-type"], "binary/octet-stream");
        assert!(!bare.contains_key("x-amz-meta-colour"));
    }

    #[test]
    fn a_copy_with_a_header_that_the_node_does_not_understand_is_the_lakes() {
        for (name, value, why) in [
            ("x-amz-metadata-directive", "replace", Uncached::Dialect),
            ("x-amz-tagging-directive", "COPY", Uncached::Dialect),
            ("x-amz-acl", "private", Uncached::Dialect),
            ("x-amz-checksum-algorithm", "CRC32", Uncached::Dialect),
            ("content-md5", "x", Uncached::Dialect),
            ("x-amz-source-expected-bucket-owner", "x", Uncached::Dialect),
            (
                "x-amz-copy-source-server-side-encryption-customer-key",
                "x",
                Uncached::Dialect,
            ),
            ("if-none-match", "*", Uncached::Condition),
        ] {
            assert_eq!(CopyRequest::parse(&headers(&[(name, value)])), Err(why), "{name}");
        }
        let mut two = headers(&[("x-amz-metadata-directive", "COPY")]);
        two.append("x-amz-metadata-directive", HeaderValue::from_static("REPLACE"));
        assert_eq!(CopyRequest::parse(&two), Err(Uncached::Dialect));
    }
}
