//! The bytes of one dirty object: pieces in a tier's store, in order.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use shoal_s3::range::ByteRange;

use super::{ByteStore, ByteStream};
use crate::endpoint::BoxError;

/// Bytes under one key of a tier's store: a whole object, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The key.
    pub key: Arc<str>,
    /// The number of bytes.
    pub size_bytes: u64,
}

/// The bytes of one object.
#[derive(Clone)]
pub struct TierBytes {
    store: Arc<dyn ByteStore>,
    pieces: Arc<[Piece]>,
}

impl TierBytes {
    /// The bytes of `pieces`, one after the other.
    pub fn new(store: Arc<dyn ByteStore>, pieces: impl Into<Arc<[Piece]>>) -> Self {
        Self {
            store,
            pieces: pieces.into(),
        }
    }

    /// Streams a range. The stream ends early or with an error if the store does not give all of it.
    pub fn read(&self, range: ByteRange) -> ByteStream {
        let wanted = wanted(&self.pieces, range);
        let state = (Arc::clone(&self.store), wanted, None::<ByteStream>);
        stream::unfold(state, |(store, mut wanted, mut current)| async move {
            loop {
                if let Some(bytes) = &mut current {
                    match bytes.next().await {
                        Some(Ok(data)) => return Some((Ok(data), (store, wanted, current))),
                        Some(Err(error)) => return Some((Err(error), (store, VecDeque::new(), None))),
                        None => {}
                    }
                }
                let (key, range) = wanted.pop_front()?;
                match store.get(&key, range).await {
                    Ok(bytes) => current = Some(bytes),
                    Err(error) => {
                        return Some((Err(BoxError::from(error)), (store, VecDeque::new(), None)));
                    }
                }
            }
        })
        .boxed()
    }
}

impl fmt::Debug for TierBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TierBytes").field(&self.pieces).finish()
    }
}

/// The pieces that hold a range, each with the range of its own bytes.
fn wanted(pieces: &[Piece], range: ByteRange) -> VecDeque<(Arc<str>, ByteRange)> {
    let mut start = 0;
    let mut wanted = VecDeque::new();
    for piece in pieces {
        let end = start + piece.size_bytes;
        let part = ByteRange {
            start: range.start.max(start),
            end: range.end.min(end),
        };
        if part.start < part.end {
            let part = ByteRange {
                start: part.start - start,
                end: part.end - start,
            };
            wanted.push_back((Arc::clone(&piece.key), part));
        }
        start = end;
    }
    wanted
}

#[cfg(test)]
mod tests {
    use shoal_s3::range::ByteRange;

    use super::{Piece, wanted};

    #[test]
    fn a_range_is_read_from_the_pieces_that_hold_it() {
        let pieces = [("a", 3), ("b", 0), ("c", 4), ("d", 2)];
        let pieces = pieces.map(|(key, size_bytes)| Piece {
            key: key.into(),
            size_bytes,
        });
        let of = |start, end| {
            let wanted = wanted(&pieces, ByteRange { start, end });
            let wanted = wanted
                .iter()
                .map(|(key, part)| (key.to_string(), part.start, part.end));
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
