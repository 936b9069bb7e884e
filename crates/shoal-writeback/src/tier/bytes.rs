//! The bytes of one dirty object: pieces in a tier's store, in order, or the content that the registry keeps.
//!
//! All bytes are verified against the acknowledged digests before they are returned. If bytes are wrong or
//! missing, they are read once more, because the error may have occurred in transit.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::ready;
use futures_util::stream::{self, StreamExt};
use shoal_net::endpoint::BoxError;
use shoal_policy::Source;
use shoal_registry::Content;
use shoal_s3::range::ByteRange;

use shoal_cache::obtain::KeptBytes;

use super::damage::{Damages, MEND_TIER};
use super::digests::{ChunkDigests, ChunkProof};
use super::store::other_length;
use super::{ByteStore, ByteStream, PieceMd5, StoreError};

/// Bytes under one key of a tier's store, or in its registry: a whole object, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The key, which is used once.
    pub key: Arc<str>,
    /// The number of bytes.
    pub size_bytes: u64,
    /// The MD5 of the bytes, if the entry has it.
    pub md5: Option<PieceMd5>,
    /// The digests of the bytes.
    pub digests: ChunkDigests,
}

/// Where the bytes of an object are.
#[derive(Clone, Debug)]
pub enum Place {
    /// Under the keys of its pieces.
    Store(Arc<dyn ByteStore>),
    /// In memory, as the registry returned its only piece; `None` if the registry has lost it.
    Entry(Option<Content>),
}

impl Place {
    async fn get(&self, piece: &Piece, range: ByteRange) -> Result<ByteStream, StoreError> {
        let Content(content) = match self {
            Self::Store(store) => return store.get(&piece.key, range).await,
            Self::Entry(content) => content.as_ref().ok_or(StoreError::Missing)?,
        };
        if content.len() as u64 != piece.size_bytes {
            return Err(other_length(piece.size_bytes, content.len() as u64));
        }
        let bytes = content.slice(range.start as usize..range.end as usize);
        Ok(stream::once(ready(Ok(bytes))).boxed())
    }
}

/// Reads the bytes of one object.
#[derive(Clone, Debug)]
pub struct TierBytes {
    /// The name of the object, for messages to operators.
    object: Arc<str>,
    place: Place,
    pieces: Arc<[Piece]>,
    damages: Arc<Damages>,
}

impl TierBytes {
    /// Creates a reader of the concatenation of `pieces`. Bytes that differ from the acknowledged ones are
    /// reported to `damages`.
    pub fn new(
        object: impl Into<Arc<str>>,
        place: Place,
        pieces: impl Into<Arc<[Piece]>>,
        damages: Arc<Damages>,
    ) -> Self {
        Self {
            object: object.into(),
            place,
            pieces: pieces.into(),
            damages,
        }
    }
}

impl KeptBytes for TierBytes {
    /// The key of the first piece, which is used once; empty if there are no bytes.
    fn id(&self) -> &str {
        self.pieces.first().map_or("", |piece| &piece.key)
    }

    fn source(&self) -> Source {
        Source::Tier
    }

    fn read(&self, range: ByteRange) -> ByteStream {
        let (of, mut wanted) = (self.clone(), wanted(&self.pieces, range));
        let reading = wanted
            .pop_front()
            .map(|(piece, range)| PieceReading::new(piece, range));
        stream::try_unfold(
            (of, wanted, reading),
            |(of, mut wanted, mut reading)| async move {
                while let Some(current) = &mut reading {
                    match current.next(&of.place).await {
                        Ok(Some(bytes)) => return Ok(Some((bytes, (of, wanted, reading)))),
                        Ok(None) => {
                            let next = wanted.pop_front();
                            reading = next.map(|(piece, range)| PieceReading::new(piece, range));
                        }
                        Err(error) => {
                            if let Some(StoreError::Damaged(why)) = error.downcast_ref() {
                                let key = &current.piece.key;
                                let why = format!("piece {key} in its tier is damaged: {why}");
                                of.damages.note(&of.object, why, MEND_TIER);
                            }
                            return Err(error);
                        }
                    }
                }
                Ok(None)
            },
        )
        .boxed()
    }
}

/// An ongoing read of a range of a piece.
struct PieceReading {
    piece: Piece,
    /// The range that has not been returned yet.
    rest: ByteRange,
    /// The end of the range to request: that of `rest`, rounded up to whole chunks.
    asked_end: u64,
    proof: ChunkProof,
    /// The store's response; `None` before the request.
    bytes: Option<ByteStream>,
    /// Verified bytes that have not been returned yet.
    proven: VecDeque<Bytes>,
    /// The position of the first of those bytes.
    proven_start: u64,
    may_ask_again: bool,
}

impl PieceReading {
    fn new(piece: Piece, range: ByteRange) -> Self {
        let asked = piece.digests.whole_chunks(range);
        Self {
            proof: piece.digests.proof(asked.start),
            piece,
            rest: range,
            asked_end: asked.end,
            bytes: None,
            proven: VecDeque::new(),
            proven_start: asked.start,
            may_ask_again: true,
        }
    }

    async fn next(&mut self, place: &Place) -> Result<Option<Bytes>, BoxError> {
        while !self.rest.is_empty() {
            if let Some(bytes) = self.give() {
                return Ok(Some(bytes));
            }
            if let Err(error) = self.receive(place).await {
                self.ask_again(error)?;
            }
        }
        Ok(None)
    }

    /// Returns the next verified bytes of the range.
    fn give(&mut self) -> Option<Bytes> {
        while let Some(mut bytes) = self.proven.pop_front() {
            let end = self.proven_start + bytes.len() as u64;
            bytes.truncate((self.rest.end.min(end) - self.proven_start) as usize);
            let before = self.rest.start.saturating_sub(self.proven_start);
            let bytes = bytes.split_off((before as usize).min(bytes.len()));
            self.proven_start = end;
            if !bytes.is_empty() {
                self.rest.start += bytes.len() as u64;
                return Some(bytes);
            }
        }
        None
    }

    /// Receives the next bytes of the store's response.
    async fn receive(&mut self, place: &Place) -> Result<(), BoxError> {
        if self.bytes.is_none() {
            let range = ByteRange::new(self.proof.proven_end(), self.asked_end);
            self.bytes = Some(place.get(&self.piece, range).await?);
        }
        debug_assert!(
            self.proof.proven_end() < self.asked_end,
            "no more is received than was asked for"
        );
        let answer = self.bytes.as_mut().expect("the store was just asked");
        let bytes = answer.next().await.unwrap_or_else(|| {
            let missing = "the tier holds fewer bytes than the object has";
            Err(StoreError::Damaged(missing.into()).into())
        })?;
        let taken = self.proof.take(bytes, &mut self.proven);
        taken.map_err(|wrong| StoreError::Damaged(wrong.to_string()).into())
    }

    /// Requests the remaining range once more if the store returned wrong bytes.
    fn ask_again(&mut self, error: BoxError) -> Result<(), BoxError> {
        let is_damaged = matches!(error.downcast_ref(), Some(StoreError::Damaged(_)));
        if !is_damaged || !self.may_ask_again {
            return Err(error);
        }
        tracing::warn!(piece = &*self.piece.key, %error, "a tier returned wrong bytes, which are read again");
        self.may_ask_again = false;
        self.proof = self.piece.digests.proof(self.proof.proven_end());
        self.bytes = None;
        Ok(())
    }
}

/// Returns the pieces that overlap a range, each with the range to read of it.
fn wanted(pieces: &[Piece], range: ByteRange) -> VecDeque<(Piece, ByteRange)> {
    let mut start = 0;
    let mut wanted = VecDeque::new();
    for piece in pieces {
        let end = start + piece.size_bytes;
        let part = ByteRange::new(range.start.max(start), range.end.min(end));
        if part.start < part.end {
            let part = ByteRange::new(part.start - start, part.end - start);
            wanted.push_back((piece.clone(), part));
        }
        start = end;
    }
    wanted
}

#[cfg(test)]
mod tests {
    use shoal_s3::range::ByteRange;

    use super::{ChunkDigests, Piece, wanted};

    #[test]
    fn a_range_is_read_from_the_pieces_that_hold_it() {
        let pieces = [("a", 3), ("b", 0), ("c", 4), ("d", 2)];
        let pieces = pieces.map(|(key, size_bytes)| Piece {
            key: key.into(),
            size_bytes,
            md5: None,
            digests: ChunkDigests::new(size_bytes, 1, vec![0; size_bytes as usize]).unwrap(),
        });
        let of = |start, end| {
            let wanted = wanted(&pieces, ByteRange::new(start, end));
            let wanted = wanted
                .iter()
                .map(|(piece, part)| (piece.key.to_string(), part.start, part.end));
            wanted.collect::<Vec<_>>()
        };
        assert_eq!(of(0, 3), [("a".to_owned(), 0, 3)]);
        assert_eq!(
            of(2, 8),
            [
                ("a".to_owned(), 2, 3),
                ("c".to_owned(), 0, 4),
                ("d".to_owned(), 0, 1)
            ]
        );
        assert_eq!(of(7, 9), [("d".to_owned(), 0, 2)]);
        assert!(of(3, 3).is_empty());
    }
}
