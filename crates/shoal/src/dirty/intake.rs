//! The bytes of a write that is acknowledged before the lake has them: cut into blocks, on disk before there is a version to name them by.
//!
//! Unlike a copy beside a write to the lake, this is the write: where that gives up for want of memory, this lets its client wait.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use http::{HeaderName, HeaderValue};
use http_body_util::BodyExt;
use md5::{Digest, Md5};
use shoal_policy::admission::Refusal;
use tokio::task::JoinHandle;

use crate::fetch::Fetcher;
use crate::flights::FlightError;
use crate::front::connection::ClientBody;
use crate::front::error::S3Error;
use crate::front::payload::CheckedBody;
use crate::pieces::Pieces;
use crate::store::{Draft, Store};

/// Complete blocks on their way to the disk beside the one that arrives.
const WRITES: usize = 2;

/// All bytes of a write, on disk.
pub(super) struct Taken {
    /// The blocks, in order.
    pub drafts: Vec<Draft>,
    /// The MD5 of all of it, in quotes.
    pub etag: String,
    /// The checksum that came behind the bytes.
    pub trailer: Option<(HeaderName, HeaderValue)>,
}

/// Why they are not.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// The body is not what its head says.
    #[error(transparent)]
    Body(#[from] S3Error),
    /// The disk does not keep up, or is full.
    #[error("the disk does not take it: {0:?}")]
    Disk(Refusal),
    /// The memory for bytes on their way stays full.
    #[error("{0}")]
    Window(FlightError),
}

/// Where the bytes go.
pub(super) struct Intake {
    store: Arc<Store>,
    fetcher: Arc<Fetcher>,
    block_bytes: u64,
    growing: Growing,
    md5: Md5,
    writing: FuturesOrdered<JoinHandle<Result<Draft, Refusal>>>,
    drafts: Vec<Draft>,
}

/// The block that arrives.
#[derive(Default)]
struct Growing {
    pieces: Pieces,
    bytes: u64,
}

impl Intake {
    /// Blocks of `block_bytes`.
    pub(super) fn new(store: Arc<Store>, fetcher: Arc<Fetcher>, block_bytes: u64) -> Self {
        Self {
            store,
            fetcher,
            block_bytes,
            growing: Growing::default(),
            md5: Md5::new(),
            writing: FuturesOrdered::new(),
            drafts: Vec::new(),
        }
    }

    /// Takes a whole body. Errors: nothing of it stays on the disk.
    pub(super) async fn take(mut self, mut body: CheckedBody<ClientBody>) -> Result<Taken, IntakeError> {
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                self.add(data).await?;
            }
        }
        self.set_aside().await?;
        self.written(0).await?;
        let digits = self.md5.finalize();
        let digits: Vec<String> = digits.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Taken {
            drafts: self.drafts,
            etag: format!("\"{}\"", digits.concat()),
            trailer: body.trailer(),
        })
    }

    async fn add(&mut self, mut data: Bytes) -> Result<(), IntakeError> {
        self.md5.update(&data);
        while !data.is_empty() {
            if self.growing.bytes == self.block_bytes {
                self.set_aside().await?;
            }
            let missing = self.block_bytes - self.growing.bytes;
            let taken = missing.min(data.len() as u64);
            self.growing.push(data.split_to(taken as usize));
        }
        Ok(())
    }

    /// Lets the block go to disk, once the ones before it have got far enough.
    async fn set_aside(&mut self) -> Result<(), IntakeError> {
        let growing = std::mem::take(&mut self.growing);
        if growing.bytes == 0 {
            return Ok(());
        }
        self.written(WRITES - 1).await?;
        let room = self.fetcher.room(growing.bytes).await;
        let room = room.map_err(IntakeError::Window)?;
        let store = Arc::clone(&self.store);
        self.writing.push_back(tokio::spawn(async move {
            let draft = store.draft(growing.pieces.into_vec()).await;
            drop(room);
            draft
        }));
        Ok(())
    }

    /// Waits until no more than `most` blocks are on their way to the disk.
    async fn written(&mut self, most: usize) -> Result<(), IntakeError> {
        while self.writing.len() > most {
            let written = self.writing.next().await.expect("something is on its way");
            let draft = written.unwrap_or(Err(Refusal::Exhausted));
            self.drafts.push(draft.map_err(IntakeError::Disk)?);
        }
        Ok(())
    }
}

impl Growing {
    fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len() as u64;
        self.pieces.push(piece);
    }
}
