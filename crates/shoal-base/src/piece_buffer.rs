//! Buffers bytes in the pieces in which they arrive, without copying large ones.

use bytes::{Bytes, BytesMut};

/// Smaller pieces are joined, because each could keep a whole buffer of its connection alive.
const SMALL_BYTES: usize = 4096;

/// Bytes in order, in their original pieces except for small ones.
#[derive(Debug, Default)]
pub struct PieceBuffer {
    whole: Vec<Bytes>,
    small: BytesMut,
}

impl PieceBuffer {
    /// Appends bytes.
    pub fn push(&mut self, piece: Bytes) {
        if piece.len() < SMALL_BYTES {
            self.small.extend_from_slice(&piece);
        } else {
            self.join();
            self.whole.push(piece);
        }
    }

    /// Returns all pieces.
    pub fn into_vec(mut self) -> Vec<Bytes> {
        self.join();
        self.whole
    }

    fn join(&mut self) {
        if !self.small.is_empty() {
            self.whole.push(self.small.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{PieceBuffer, SMALL_BYTES};

    #[test]
    fn small_pieces_are_joined_and_stay_in_order() {
        let large = Bytes::from(vec![b'x'; SMALL_BYTES]);
        let mut pieces = PieceBuffer::default();
        for piece in ["a", "b"] {
            pieces.push(piece.into());
        }
        pieces.push(large.clone());
        pieces.push("c".into());
        assert_eq!(pieces.into_vec(), ["ab".into(), large, Bytes::from("c")]);
    }

    #[test]
    fn a_large_piece_is_not_copied() {
        let large = Bytes::from(vec![b'x'; SMALL_BYTES]);
        let mut pieces = PieceBuffer::default();
        pieces.push(large.clone());
        assert_eq!(pieces.into_vec()[0].as_ptr(), large.as_ptr());
    }
}
