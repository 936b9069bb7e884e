//! Serves a GET: pins the current version, resolves the requested range, and opens a stream of its blocks.
//!
//! This module does no counting or logging: the answer carries the outcome, and the caller records it.

mod answer;

use std::sync::Arc;

use shoal_policy::{BlockId, Found, Layer};
use shoal_s3::object::Uncacheable;
use shoal_s3::range::RangeRequest;

pub use self::answer::GetAnswer;

use crate::blocks::{BlockReader, BlockStream, ReadAheadWindow, Reading, cached};
use crate::fetch::Fetcher;
use crate::grants::is_refusal;
use crate::lake::{Lake, NoBytes, PinOutcome, Pinned, ReadError, ReadRequest};
use crate::nodes::obtain::{KeptBytes, Obtain};
use crate::single_flight::FetchError;

/// Attempts to open an object that changes while it is being opened.
const RESTARTS: usize = 4;

/// Reads objects for clients.
pub struct ObjectReader {
    /// The lake that this node caches.
    pub lake: Arc<dyn Lake>,
    /// Fetches blocks from peers and from the lake.
    pub fetcher: Arc<Fetcher>,
}

impl ObjectReader {
    /// Answers a GET. Pins a version before the first byte is sent; if the version changes before that byte,
    /// the read starts over.
    ///
    /// # Errors
    ///
    /// Fails if the lake or an uncached block cannot be reached, or if the object changes too often.
    pub async fn read(&self, request: &ReadRequest) -> Result<GetAnswer, ReadError> {
        let mut attempts = RESTARTS;
        if let Some(version) = self.lake.granted(request) {
            match self.start(request, Pinned::granted(version)).await {
                Err(FetchError::Changed) => self.fetcher.parts.grants.invalidate_object(request.name()),
                started => return answered(started),
            }
            attempts -= 1;
        }
        // Boxed, so that a hit does not pay for the size of this future.
        Box::pin(self.pin_and_read(request, attempts)).await
    }

    async fn pin_and_read(&self, request: &ReadRequest, attempts: usize) -> Result<GetAnswer, ReadError> {
        let mut unread: Option<(Arc<dyn KeptBytes>, FetchError)> = None;
        for _ in 0..attempts {
            let pinned = match self.lake.pin(request).await? {
                PinOutcome::Version(pinned) => pinned,
                PinOutcome::Relay(response) => return Ok(GetAnswer::Relay(response)),
                PinOutcome::Bypass(reason) => return Ok(GetAnswer::Bypass(reason)),
            };
            let kept = pinned.kept.clone();
            // Bytes that cannot be read although the name still means them stay unread.
            if let (Some(kept), Some((same, _))) = (&kept, &unread)
                && kept.id() == same.id()
            {
                break;
            }
            match (self.start(request, pinned).await, kept) {
                (Err(error @ FetchError::Kept(_)), Some(kept)) => unread = Some((kept, error)),
                (Err(FetchError::Changed), _) => self.fetcher.parts.grants.invalidate_object(request.name()),
                // The lake permits the caller to read it, but not this node.
                (Err(FetchError::Status(status)), _) if request.as_sent.is_some() && is_refusal(status) => {
                    return Ok(GetAnswer::Bypass(Uncacheable::NodeAccount));
                }
                (started, _) => return answered(started),
            }
        }
        Err(unread.map_or(ReadError::ChangesTooOften, |(_, error)| ReadError::Fetch(error)))
    }

    /// Evaluates the conditions, resolves the range, and waits for the first bytes.
    async fn start(&self, request: &ReadRequest, pinned: Pinned) -> Result<GetAnswer, FetchError> {
        let Pinned {
            version,
            kept,
            caller_headers,
            stream_handle,
            opened,
        } = pinned;
        let range = match request.locate(&version) {
            Ok(range) => range,
            Err(NoBytes::Dialect) => return Ok(GetAnswer::Bypass(Uncacheable::Dialect)),
            Err(why) => return Ok(GetAnswer::NoBytes(why, version, caller_headers)),
        };
        assert!(range.end <= version.size_bytes, "a range lies within its version");
        assert!(
            kept.is_some() || version.object == request.object,
            "the lake pins a version of the object that was asked for"
        );
        let reader = BlockReader {
            fetcher: Arc::clone(&self.fetcher),
            version: Arc::clone(&version),
            context: Arc::clone(&request.context),
            obtain: kept.map_or(Obtain::FromHomes(Layer::L1), Obtain::Kept),
        };
        let window = window(request, self.fetcher.parts.ahead);
        let mut blocks = Box::new(BlockStream::new(reader, range, window, stream_handle));
        let cached = if opened {
            Found::Nothing
        } else if blocks.begin_in_memory() {
            Found::Complete
        } else {
            cached(&version, range, |block| self.holds(block))
        };
        if request.only_if_cached && cached != Found::Complete {
            return Ok(GetAnswer::NoBytes(NoBytes::NotCached, version, caller_headers));
        }
        blocks.first_piece().await?;
        let reading = Reading {
            version,
            range,
            blocks,
            cached,
        };
        Ok(GetAnswer::Object(reading, caller_headers))
    }

    /// Returns true if the block is on disk or about to be written there. Checks the mapped blocks first,
    /// because a lookup in the store's index takes a lock that all readers share.
    fn holds(&self, block: BlockId) -> bool {
        self.fetcher.parts.store.is_mapped(block) || self.fetcher.holds(block)
    }
}

fn answered(started: Result<GetAnswer, FetchError>) -> Result<GetAnswer, ReadError> {
    match started {
        Err(FetchError::Mismatch) => Ok(GetAnswer::Bypass(Uncacheable::Mismatch)),
        started => started.map_err(ReadError::Fetch),
    }
}

/// Returns the read-ahead window of a reader that may read up to `ahead` blocks ahead. An open-ended range
/// starts with one block, because such readers often stop early.
fn window(request: &ReadRequest, ahead: usize) -> ReadAheadWindow {
    let open_ended = matches!(request.range, RangeRequest::From(_));
    let now = if open_ended { 1 } else { ahead };
    ReadAheadWindow { now, max: ahead }
}
