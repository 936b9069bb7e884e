//! A write back, from its first byte to its acknowledgement.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use shoal_policy::NodeId;

use super::homes::ahead::{Ahead, OFFERS, Sent, SentTo};
use super::homes::intake::{Blocks, Intake, IntakeError, Taken};
use super::homes::messenger::Answer;
use super::homes::request::Request;
use super::homes::view::View;
use super::manifest::Manifest;
use super::permission::{self, Permission};
use super::structure::Structure;
use super::upload::{Cancel, UploadError, Uploaded};
use super::{Dirty, Unknown};
use crate::blocks::placement::Placement;
use crate::clock;
use crate::http::connection::ClientBody;
use crate::s3::hop_by_hop::end_to_end;
use crate::s3::identity::Caller;
use crate::s3::object::{ObjectName, Version};
use crate::s3::operation::Classified;
use crate::s3::payload::CheckedBody;
use crate::s3::target;
use crate::write::{Uncached, size_to_gather};

/// What S3 says of an object whose writer did not say what it is.
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("binary/octet-stream");

/// Headers of a write, among those that S3 might mean something by, that are understood here. A write with others is the lake's.
///
/// An ACL is none of them: it is there for others, who read at the lake, and Ceph RGW holds it against a bucket's policy only when
/// it is given the object, which would be too late to say no.
const UNDERSTOOD: [&str; 6] = [
    "x-amz-decoded-content-length",
    "x-amz-expected-bucket-owner",
    "x-amz-request-payer",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-trailer",
    "x-amz-user-agent",
];

/// Headers of a write that come back with every read of the object.
const OF_THE_OBJECT: [HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_DISPOSITION,
    header::CACHE_CONTROL,
    header::EXPIRES,
];

/// A write that may be acknowledged before the lake has it.
#[derive(Debug)]
pub struct Order {
    pub(super) name: ObjectName,
    pub(super) writer: Arc<str>,
    pub(super) size_bytes: u64,
    pub(super) target: PathAndQuery,
    /// What the lake will be told with the bytes.
    pub(super) headers: HeaderMap,
}

/// What an object has for having come in parts.
#[derive(Debug, Default)]
pub(super) struct Parted {
    pub(super) structure: Structure,
    /// What a read brings, and the lake finds out by itself.
    pub(super) of_reads: HeaderMap,
}

/// An object that was written.
#[derive(Debug)]
pub struct Written {
    /// As it is read from now on.
    pub version: Arc<Version>,
    /// Whether the lake has it already, and why.
    pub through: Option<Uncached>,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Its bytes.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// A block has no room.
    #[error("the disk does not take it: {0:?}")]
    Disk(shoal_policy::admission::Refusal),
    /// It could not stay dirty, and the lake did not take it either.
    #[error("the object could neither be kept nor brought to the lake: {0}")]
    Upload(#[from] UploadError),
    /// It could not stay dirty, and an earlier write of the name is in the way.
    #[error(transparent)]
    Unknown(#[from] Unknown),
}

impl Order {
    /// What is to be written, if it may be dirty.
    pub(super) fn of(
        name: &ObjectName,
        size_bytes: u64,
        parts: &Parts,
        caller: &Caller,
    ) -> Result<Self, Uncached> {
        let Caller::Identity(identity) = caller else {
            return Err(Uncached::Anonymous);
        };
        Ok(Self {
            name: name.clone(),
            writer: identity.access_key.as_str().into(),
            size_bytes,
            target: target::of_object(name).expect("a name that is too long was refused"),
            headers: of_flush(&parts.headers)?,
        })
    }
}

impl Dirty {
    /// Whether a write may be acknowledged before the lake has it, or why not.
    pub async fn accept(
        &self,
        name: &ObjectName,
        classified: &Classified,
        parts: &Parts,
        caller: &Caller,
    ) -> Result<Order, Uncached> {
        let size_bytes = size_to_gather(classified, parts)?;
        let order = Order::of(name, size_bytes, parts, caller)?;
        if size_bytes > self.object_bytes_max {
            return Err(Uncached::TooLarge);
        }
        self.permit(&order, caller).await?;
        Ok(order)
    }

    /// Whether there is room, and the lake would take it.
    pub(super) async fn permit(&self, order: &Order, caller: &Caller) -> Result<(), Uncached> {
        if self.home.records.is_full(order.size_bytes) {
            self.home.hurry.notify_one();
            return Err(Uncached::TooDirty);
        }
        let account = self.lake.account_for(caller);
        match permission::ask(&self.lake, &order.target, &order.headers, account).await {
            Permission::Granted => Ok(()),
            Permission::OtherEtag => Err(Uncached::OtherEtag),
            // In its own words the lake answers the write.
            Permission::Unknown => Err(Uncached::NotPermitted),
        }
    }

    /// Takes the bytes and lets the object exist. What cannot be kept dirty is brought to the lake first.
    pub async fn write(
        &self,
        mut order: Order,
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

    /// Lets an object exist whose blocks are here. With conditions, or when it cannot be kept dirty, it is brought to the lake first; why.
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
        self.home.catalog.forget_object(&manifest.name);
        Ok(committed.err())
    }

    /// The object as it will be read, with every block here.
    pub(super) fn describe(&self, order: Order, etag: &str, parted: Parted, now: SystemTime) -> Manifest {
        let Order { headers, .. } = order;
        let mut read = HeaderMap::new();
        for (name, value) in &headers {
            if is_read(name) {
                read.append(name.clone(), value.clone());
            }
        }
        let text = |text: &str| HeaderValue::from_str(text).expect("an ETag or a date is a header value");
        for (name, value) in &parted.of_reads {
            read.insert(name, value.clone());
        }
        read.insert(header::ETAG, text(etag));
        read.insert(header::LAST_MODIFIED, text(&httpdate::fmt_http_date(now)));
        read.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        let object = order.name.id(self.lake.url());
        let version = Version::from_response(object, &read, order.size_bytes, self.block_bytes);
        let version = Arc::new(version.expect("an object of bounded size with an ETag has a version"));
        let me = self.home.cooperation.me();
        let here = (0..version.block_count()).map(|_| me);
        Manifest {
            name: order.name,
            sequence: 0,
            writer: order.writer,
            target: order.target,
            headers,
            structure: Arc::new(parted.structure),
            placement: Arc::new(Placement::new(here).expect("one node can be told")),
            version,
        }
    }

    /// Gives the blocks to their holders and lets the object exist. Should a holder not keep what it has taken, everything stays here.
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
            Err(Unknown) => Err(Uncached::Unsettled),
        }
    }

    /// Gives each block to its home in the last layer, unless it went there ahead; those that it does not take stay here.
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

    /// Tells the nodes to which blocks went ahead by which name these are to be found now; which node has which block.
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

    /// Brings an object to the lake that nobody else has heard of. What is dirty under its name is overwritten by it.
    async fn write_through(&self, manifest: &Manifest, conditions: &HeaderMap) -> Result<(), WriteError> {
        let held = self.directory.hold(&manifest.name).await?;
        let uploader = &self.home.uploader;
        let uploaded = uploader.upload_if(manifest, conditions, &Cancel::default()).await;
        match (uploaded, held) {
            (Ok(Uploaded::Same | Uploaded::OtherEtag(_)), Some(held)) => {
                held.remove().await?;
                Ok(())
            }
            (Ok(_), None) => Ok(()),
            (Err(error), held) => {
                if let Some(held) = held {
                    held.free().await;
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

/// The headers that the lake is told with the bytes. Errors: one of them means something that is not understood here.
fn of_flush(sent: &HeaderMap) -> Result<HeaderMap, Uncached> {
    let mut headers = end_to_end(sent);
    let is_condition = |name: &HeaderName| name.as_str().starts_with("if-");
    if headers.keys().any(is_condition) {
        return Err(Uncached::Condition);
    }
    let is_understood = |name: &HeaderName| {
        let name = name.as_str();
        let by_prefix = |prefix| name.starts_with(prefix);
        !by_prefix("x-amz-")
            || UNDERSTOOD.contains(&name)
            || ["x-amz-meta-", "x-amz-checksum-"].into_iter().any(by_prefix)
    };
    if !headers.keys().all(is_understood) {
        return Err(Uncached::Dialect);
    }
    for name in ["x-amz-decoded-content-length", "x-amz-trailer"] {
        headers.remove(name);
    }
    without_framing(&mut headers);
    headers.entry(header::CONTENT_TYPE).or_insert(CONTENT_TYPE);
    Ok(headers)
}

/// `aws-chunked` is said of the request and not of the object.
fn without_framing(headers: &mut HeaderMap) {
    let all: Vec<_> = headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|word| !word.is_empty() && !word.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    let rest = HeaderValue::try_from(all.join(",")).expect("parts of a header are one");
    headers.remove(header::CONTENT_ENCODING);
    if !rest.is_empty() {
        headers.insert(header::CONTENT_ENCODING, rest);
    }
}

/// Whether a read of the object brings this header of its write.
fn is_read(name: &HeaderName) -> bool {
    let text = name.as_str();
    let is_checksum = text.starts_with("x-amz-checksum-") && text != "x-amz-checksum-algorithm";
    OF_THE_OBJECT.contains(name) || text.starts_with("x-amz-meta-") || is_checksum
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{is_read, of_flush};
    use crate::write::Uncached;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        pairs.collect()
    }

    #[test]
    fn the_lake_is_told_what_the_writer_said_of_the_object_and_not_of_the_request() {
        let sent = headers(&[
            ("host", "shoal"),
            ("authorization", "AWS4"),
            ("x-shoal-write", "back"),
            ("content-encoding", "gzip,aws-chunked"),
            ("x-amz-decoded-content-length", "5"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
            ("x-amz-meta-colour", "blue"),
            ("content-type", "text/plain"),
        ]);
        let told = of_flush(&sent).unwrap();
        let expected = headers(&[
            ("content-encoding", "gzip"),
            ("x-amz-meta-colour", "blue"),
            ("content-type", "text/plain"),
        ]);
        assert_eq!(told, expected);
        let bare = of_flush(&headers(&[("content-encoding", "aws-chunked")])).unwrap();
        assert_eq!(bare, headers(&[("content-type", "binary/octet-stream")]));
    }

    #[test]
    fn what_is_not_understood_is_the_lakes() {
        for (name, why) in [
            ("if-none-match", Uncached::Condition),
            ("if-match", Uncached::Condition),
            ("x-amz-acl", Uncached::Dialect),
            ("x-amz-object-lock-mode", Uncached::Dialect),
            ("x-amz-server-side-encryption", Uncached::Dialect),
            ("x-amz-tagging", Uncached::Dialect),
            ("x-amz-storage-class", Uncached::Dialect),
            ("x-amz-never-heard-of", Uncached::Dialect),
        ] {
            assert_eq!(of_flush(&headers(&[(name, "x")])), Err(why), "{name}");
        }
    }

    #[test]
    fn a_read_brings_what_was_said_of_the_object() {
        for (name, brought) in [
            ("content-type", true),
            ("x-amz-meta-colour", true),
            ("x-amz-checksum-crc32", true),
            ("x-amz-checksum-algorithm", false),
            ("x-amz-acl", false),
            ("content-md5", false),
        ] {
            assert_eq!(is_read(&HeaderName::from_static(name)), brought, "{name}");
        }
    }
}
