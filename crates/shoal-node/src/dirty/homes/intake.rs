//! The bytes of a write that is acknowledged before the lake has them: cut into blocks, on disk before there
//! is a version to name them by.
//!
//! Unlike a copy beside a write to the lake, this is the write: where that gives up for want of memory, this
//! lets its client wait. It takes memory for a whole block before the first byte of it. None waits for memory
//! while it holds some that only its client could set free: complete blocks go to disk by themselves, so
//! those who wait are served.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use http::{HeaderName, HeaderValue};
use http_body_util::BodyExt;
use md5::{Digest, Md5};
use shoal_base::piece_buffer::PieceBuffer;
use shoal_policy::admission::Refusal;
use shoal_s3::error::S3Error;
use shoal_s3::etag;
use shoal_s3::payload::{CheckedBody, PayloadError};
use shoal_store::{Draft, Store};
use tokio::task::JoinHandle;

use super::ahead::{Ahead, Kept, Sent};
use crate::dirty::ReceiveError;
use crate::fetch::{Fetcher, WriterMemory};
use crate::http::connection::ClientBody;

/// Complete blocks on their way to the disk beside the one that arrives.
const WRITES: usize = 2;

/// All bytes of a write, on disk.
pub(in crate::dirty) struct Taken {
    /// The blocks.
    pub blocks: Blocks,
    /// The MD5 of all of it, in quotes.
    pub etag: String,
    /// The checksum that came behind the bytes.
    pub trailer: Option<(HeaderName, HeaderValue)>,
}

/// The blocks of a write whose version is not known yet, in order.
pub(in crate::dirty) struct Blocks {
    pub drafts: Vec<Draft>,
    /// What other nodes have of them already.
    pub sent: Sent,
}

/// Where the bytes go.
pub(in crate::dirty) struct Intake {
    store: Arc<Store>,
    fetcher: Arc<Fetcher>,
    size_bytes: u64,
    block_bytes: u64,
    ahead: Option<Arc<Ahead>>,
    received_bytes: u64,
    growing: Option<Growing>,
    writing: FuturesOrdered<JoinHandle<Result<Kept, Refusal>>>,
    /// Blocks that began to be written.
    begun: u32,
    kept: Vec<Kept>,
}

/// The block that arrives.
struct Growing {
    pieces: PieceBuffer,
    missing_bytes: u64,
    room: WriterMemory,
}

impl Intake {
    /// Takes `size_bytes` in blocks of `block_bytes`, which go on `ahead` if there is a way.
    pub(in crate::dirty) fn new(
        store: Arc<Store>,
        fetcher: Arc<Fetcher>,
        size_bytes: u64,
        block_bytes: u64,
        ahead: Option<Arc<Ahead>>,
    ) -> Self {
        Self {
            store,
            fetcher,
            size_bytes,
            block_bytes,
            ahead,
            received_bytes: 0,
            growing: None,
            writing: FuturesOrdered::new(),
            begun: 0,
            kept: Vec::new(),
        }
    }

    /// Takes a whole body. Errors: nothing of it stays on the disk.
    pub(in crate::dirty) async fn take(
        mut self,
        mut body: CheckedBody<ClientBody>,
    ) -> Result<Taken, ReceiveError> {
        let mut md5 = Md5::new();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                md5.update(&data);
                self.add(data).await?;
            }
        }
        let blocks = self.finish().await?;
        Ok(Taken {
            blocks,
            etag: etag::of_md5(&md5.finalize()),
            trailer: body.trailer(),
        })
    }

    /// The blocks of all bytes, once they are on the disk and those that went ahead have arrived. Errors:
    /// there are fewer than were announced.
    pub(in crate::dirty) async fn finish(mut self) -> Result<Blocks, ReceiveError> {
        if self.received_bytes != self.size_bytes {
            return Err(wrong_length());
        }
        if let Some(last) = self.growing.take() {
            self.set_aside(last);
        }
        self.written(0).await?;
        let (mut drafts, mut sent) = (Vec::with_capacity(self.kept.len()), Sent::default());
        for kept in self.kept {
            let draft = kept.arrived(&mut sent).await;
            drafts.push(draft.map_err(ReceiveError::Disk)?);
        }
        Ok(Blocks { drafts, sent })
    }

    /// Takes the next bytes. Errors: nothing of them all stays on the disk.
    pub(in crate::dirty) async fn add(&mut self, mut data: Bytes) -> Result<(), ReceiveError> {
        while !data.is_empty() {
            let mut growing = match self.growing.take() {
                Some(growing) if growing.missing_bytes > 0 => growing,
                complete => {
                    if let Some(complete) = complete {
                        self.set_aside(complete);
                    }
                    self.begin_block().await?
                }
            };
            let taken = growing.missing_bytes.min(data.len() as u64);
            growing.push(data.split_to(taken as usize));
            self.received_bytes += taken;
            self.growing = Some(growing);
        }
        Ok(())
    }

    /// Takes memory for the next block, once the ones before it have got far enough.
    async fn begin_block(&mut self) -> Result<Growing, ReceiveError> {
        let missing_bytes = self.block_bytes.min(self.size_bytes - self.received_bytes);
        if missing_bytes == 0 {
            return Err(wrong_length());
        }
        self.written(WRITES).await?;
        let room = self.fetcher.memory().reserve_for_writer(missing_bytes).await;
        Ok(Growing {
            pieces: PieceBuffer::default(),
            missing_bytes,
            room: room.map_err(ReceiveError::Window)?,
        })
    }

    /// Lets a complete block go to disk, its memory when it is there, and then on its way.
    fn set_aside(&mut self, complete: Growing) {
        let (store, ahead, index) = (Arc::clone(&self.store), self.ahead.clone(), self.begun);
        self.begun += 1;
        self.writing.push_back(tokio::spawn(async move {
            let Growing { pieces, room, .. } = complete;
            let draft = store.draft(pieces.into_vec()).await?;
            drop(room);
            match ahead {
                Some(ahead) => ahead.send(draft, index).await,
                None => Ok(Kept::Here(draft)),
            }
        }));
    }

    /// Waits until no more than `most` blocks are on their way to the disk.
    async fn written(&mut self, most: usize) -> Result<(), ReceiveError> {
        while self.writing.len() > most {
            let written = self.writing.next().await.expect("something is on its way");
            let kept = written.unwrap_or(Err(Refusal::Exhausted));
            self.kept.push(kept.map_err(ReceiveError::Disk)?);
        }
        Ok(())
    }
}

impl Growing {
    fn push(&mut self, piece: Bytes) {
        self.missing_bytes -= piece.len() as u64;
        self.pieces.push(piece);
    }
}

/// More or fewer bytes came than the head said.
fn wrong_length() -> ReceiveError {
    S3Error::from(PayloadError::WrongLength).closing().into()
}
