//! Writes a dirty object to the lake: the acknowledged write, replayed on behalf of its writer.

mod error;
mod named;
mod parted;
mod proven;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use shoal_base::send_permit::SendPermit;
use shoal_cache::blocks::{BlockReader, BlockStream, ReadAheadWindow};
use shoal_cache::fetch::{CacheParts, Fetcher};
use shoal_cache::obtain::{KeptBytes, Obtain};
use shoal_cache::read_context::ReadContext;
use shoal_cache::write::{WriteRules, WriteThrough};
use shoal_net::clock;
use shoal_net::endpoint::s3::{CONTENT_MD5, S3Client, SendOptions, content_md5};
use shoal_net::endpoint::{BoxError, RequestBody};
use shoal_net::link::Transfer;
use shoal_s3::identity::{Caller, Identities, NODE};
use shoal_s3::object::ObjectName;
use shoal_s3::range::ByteRange;
use tokio::sync::oneshot;

pub(crate) use self::error::{LakeWriteError, NotWritten};
use self::proven::ProvenBlocks;
use crate::dirty::permission::Permissions;
use crate::dirty::record::acknowledged::md5_in;
use crate::dirty::record::manifest::{Manifest, Naming};
use crate::dirty::stock::status::Outcomes;
use crate::tier::{Damages, WrongBytes};

/// Number of blocks read ahead of what the lake has accepted.
const AHEAD: usize = 2;

/// The parts of a node that its dirty objects use.
pub struct Parts {
    /// The rules for where objects may be dirty, and in which tier.
    pub rules: WriteRules,
    /// Fetches blocks from elsewhere, with the parts that it uses.
    pub fetcher: Arc<Fetcher>,
    /// The identities on whose behalf objects are flushed.
    pub identities: Arc<Identities>,
    /// Caches the bytes of writes.
    pub through: Arc<WriteThrough>,
}

impl Parts {
    /// The parts of the cache.
    pub(crate) fn cache(&self) -> &CacheParts {
        &self.fetcher.parts
    }
}

/// The state that all tiers of a node share. It also writes dirty objects to the lake.
pub(crate) struct Shared {
    pub(crate) parts: Parts,
    pub(crate) permissions: Arc<Permissions>,
    pub(crate) outcomes: Outcomes,
    /// Objects whose bytes in the tier differ from the acknowledged ones.
    pub(crate) damages: Arc<Damages>,
    pub(crate) naming: Naming,
    /// True once the lake has given a multipart object the ETag that S3 defines, the MD5 of its parts' MD5s.
    names_by_parts: AtomicBool,
}

/// The write of one object to the lake.
#[derive(Clone, Copy)]
pub(crate) struct LakeWrite<'a> {
    pub(crate) manifest: &'a Manifest,
    /// The object's bytes, such as those in the tier.
    pub(crate) bytes: &'a Arc<dyn KeptBytes>,
    /// The conditions that the existing object at the lake must meet.
    pub(crate) conditions: &'a HeaderMap,
    /// The right of this node to send to the lake.
    pub(crate) permit: &'a SendPermit,
    /// The background transfer that is charged for the bytes; `None` if a client waits from the start.
    pub(crate) transfer: Option<&'a Transfer>,
}

/// The result of a write that the lake accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Uploaded {
    /// The lake returned the acknowledged ETag.
    Same,
    /// The lake has the acknowledged bytes, but returned another ETag, as with `SSE-KMS`.
    OtherEtag(Option<HeaderValue>),
}

/// Gets the reason if the body of a write ends early.
type BodyFailure = oneshot::Receiver<LakeWriteError>;

impl Shared {
    /// Shares `parts`. The lake's permission to write below a rule is remembered for the time `permission`.
    pub(crate) fn new(parts: Parts, permission: Duration) -> Self {
        Self {
            permissions: Arc::new(Permissions::new(Arc::clone(&parts.cache().lake), permission)),
            outcomes: Outcomes::default(),
            damages: Arc::default(),
            naming: Naming {
                lake: parts.cache().lake.url().into(),
                block_bytes: parts.cache().block_bytes,
            },
            names_by_parts: AtomicBool::new(false),
            parts,
        }
    }

    /// Writes the object to the lake as its writer would have: all acknowledged bytes, or nothing. Blocks on
    /// this node's disk that turn out wrong are removed, and the bytes are read from the tier.
    ///
    /// # Errors
    ///
    /// The lake does not have the object, or its state is unknown.
    pub(crate) async fn write(&self, write: LakeWrite<'_>) -> Result<Uploaded, NotWritten> {
        let attempt = self.attempt(write)?;
        match attempt.write().await {
            Err(NotWritten {
                error: LakeWriteError::WrongBytes(wrong),
                ..
            }) => {
                self.distrust_blocks(write.manifest, &wrong);
                attempt.write().await
            }
            written => written,
        }
    }

    /// Returns all acknowledged bytes of the object, as [`write`](Self::write) would send them.
    ///
    /// # Errors
    ///
    /// The object cannot be read.
    pub(crate) async fn read(&self, write: LakeWrite<'_>) -> Result<Bytes, LakeWriteError> {
        let attempt = self.attempt(write)?;
        match attempt.read().await {
            Err(LakeWriteError::WrongBytes(wrong)) => {
                self.distrust_blocks(write.manifest, &wrong);
                attempt.read().await
            }
            read => read,
        }
    }

    /// Removes the blocks of an object from this node's disk.
    fn distrust_blocks(&self, manifest: &Manifest, wrong: &WrongBytes) {
        tracing::warn!(object = ?manifest.name, %wrong, "the blocks of a dirty object are removed from the disk");
        let store = &self.parts.cache().store;
        store.removal.remove_version(manifest.version.id);
    }

    fn attempt<'a>(&'a self, write: LakeWrite<'a>) -> Result<Attempt<'a>, LakeWriteError> {
        let caller = self.writer(&write.manifest.record.writer, &write.manifest.name)?;
        Ok(Attempt {
            shared: self,
            write,
            client: self.client(&caller),
            caller,
        })
    }

    /// Returns the client that sends requests to the lake on behalf of a writer, in the turns of this node.
    pub(crate) fn client(&self, writer: &Caller) -> S3Client {
        S3Client {
            payer: NODE,
            ..S3Client::of_caller(&self.parts.cache().lake, writer)
        }
    }

    /// Returns the access key of the identity that flushes for writers that are no longer known, if the rule
    /// for this name has one.
    pub(crate) fn flusher(&self, name: &ObjectName) -> Option<&str> {
        self.parts.rules.back_rule(name)?.flush_as.as_deref()
    }

    /// Returns the identity on whose behalf an object of `writer` is written: the writer itself, a later key
    /// of its role, or the identity that the rule names.
    pub(crate) fn writer(&self, writer: &Arc<str>, name: &ObjectName) -> Result<Caller, LakeWriteError> {
        let identities = &self.parts.identities;
        let flusher = || identities.get(self.flusher(name)?);
        let identity = identities.named(writer, clock::utc_now()).or_else(flusher);
        let identity = identity.ok_or_else(|| LakeWriteError::UnknownWriter(Arc::clone(writer)))?;
        Ok(Caller::Identity(identity))
    }
}

/// One attempt to write an object.
struct Attempt<'a> {
    shared: &'a Shared,
    write: LakeWrite<'a>,
    caller: Caller,
    client: S3Client,
}

impl Attempt<'_> {
    async fn write(&self) -> Result<Uploaded, NotWritten> {
        if self.write.manifest.record.part_layout.is_whole() {
            Ok(self.write_whole().await?)
        } else {
            self.write_in_parts().await
        }
    }

    async fn read(&self) -> Result<Bytes, LakeWriteError> {
        let manifest = self.write.manifest;
        let mut bytes = BytesMut::with_capacity(manifest.version.size_bytes as usize);
        for piece in &manifest.pieces {
            let start = bytes.len() as u64;
            let mut blocks = self.blocks(ByteRange::new(start, start + piece.size_bytes));
            while let Some(proven) = blocks.next().await {
                bytes.extend_from_slice(&proven?);
            }
        }
        Ok(bytes.freeze())
    }

    async fn write_whole(&self) -> Result<Uploaded, LakeWriteError> {
        let manifest = self.write.manifest;
        let (body, mut failure) = self.body(ByteRange::new(0, manifest.version.size_bytes));
        let mut headers = manifest.record.headers.clone();
        headers.extend(self.write.conditions.clone());
        if let Some(md5) = md5_in(&manifest.version.etag) {
            headers.insert(CONTENT_MD5, content_md5(&md5));
        }
        let request = self.client.put(manifest.target.clone());
        let request = request.with_headers(headers).with_body(body);
        self.check()?;
        let answered = self.client.send(request, self.options()).await;
        failure.try_recv().map_or(Ok(()), Err)?;
        let headers = answered?.ok()?.head.headers;
        let is_same = self.is_by_md5(&headers, &manifest.version.etag).await?;
        Ok(if is_same {
            Uploaded::Same
        } else {
            Uploaded::OtherEtag(headers.get(header::ETAG).cloned())
        })
    }

    /// Checks the right to send before a request begins. This only saves a useless request: the bytes are
    /// checked as they are sent.
    fn check(&self) -> Result<(), LakeWriteError> {
        let may_send = self.write.permit.may_send();
        may_send.then_some(()).ok_or(LakeWriteError::SessionOver)
    }

    fn options(&self) -> SendOptions<'_> {
        SendOptions {
            permit: Some(self.write.permit),
            transfer: self.write.transfer,
        }
    }

    /// Returns the blocks of a range that lies in one piece of the object.
    fn blocks(&self, range: ByteRange) -> ProvenBlocks {
        let (parts, manifest) = (&self.shared.parts, self.write.manifest);
        let (account, caller) = (self.client.account.clone(), self.caller.clone());
        let context = ReadContext::of_peer(account, caller, Some(manifest.name.clone()), HeaderMap::new());
        let reader = BlockReader {
            fetcher: Arc::clone(&parts.fetcher),
            version: Arc::clone(&manifest.version),
            context: Arc::new(context),
            obtain: Obtain::Kept(Arc::clone(self.write.bytes)),
        };
        let window = ReadAheadWindow { now: 1, max: AHEAD };
        let blocks = BlockStream::new(reader, range, window, None);
        ProvenBlocks::new(blocks, manifest.proof_of(range))
    }

    /// Returns a range of the object as a request body.
    fn body(&self, range: ByteRange) -> (RequestBody, BodyFailure) {
        let (sender, failure) = oneshot::channel();
        let pieces = stream::try_unfold((self.blocks(range), sender), |(mut blocks, sender)| async move {
            match blocks.next().await.transpose() {
                Ok(piece) => Ok(piece.map(|piece| (Frame::data(piece), (blocks, sender)))),
                Err(error) => {
                    let message = BoxError::from(error.to_string());
                    let _ = sender.send(error);
                    Err(message)
                }
            }
        });
        let body = RequestBody::from_stream(range.len(), StreamBody::new(pieces).boxed_unsync());
        (body, failure)
    }
}
