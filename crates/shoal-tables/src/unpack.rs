//! Packed pieces of objects, unpacked within bounds.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder};
use ruzstd::decoding::StreamingDecoder;

use crate::bounds::{Budget, PIECE_BYTES_MAX, UNPACKED_BYTES_MAX};
use crate::error::TableError;

/// The way in which pieces of an object are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Plain,
    Deflate,
    Gzip,
    /// Without a frame around it.
    Snappy,
    Zstd,
}

/// Unpacks the pieces of one object, whose bytes count together.
#[derive(Debug)]
pub(crate) struct Unpacker {
    codec: Codec,
    budget: Budget,
}

const DAMAGED: TableError = TableError::Damaged("a packed piece cannot be unpacked");
const TOO_LONG: TableError = TableError::TooLarge("too many bytes when it is unpacked");

impl Unpacker {
    pub(crate) const fn new(codec: Codec) -> Self {
        Self {
            codec,
            budget: Budget::new(UNPACKED_BYTES_MAX, "too many bytes when it is unpacked"),
        }
    }

    /// Unpacks a piece.
    pub(crate) fn unpack<'a>(&mut self, piece: &'a [u8]) -> Result<Cow<'a, [u8]>, TableError> {
        let unpacked = match self.codec {
            Codec::Plain => return Ok(Cow::Borrowed(piece)),
            Codec::Deflate => read_all(DeflateDecoder::new(piece))?,
            Codec::Gzip => read_all(MultiGzDecoder::new(piece))?,
            Codec::Snappy => snappy(piece)?,
            Codec::Zstd => read_all(StreamingDecoder::new(piece).map_err(|_| DAMAGED)?)?,
        };
        self.budget.take(unpacked.len())?;
        Ok(Cow::Owned(unpacked))
    }
}

fn read_all(from: impl Read) -> Result<Vec<u8>, TableError> {
    let mut unpacked = Vec::new();
    let mut limited = from.take(PIECE_BYTES_MAX as u64 + 1);
    limited.read_to_end(&mut unpacked).map_err(|_| DAMAGED)?;
    if unpacked.len() > PIECE_BYTES_MAX {
        return Err(TOO_LONG);
    }
    Ok(unpacked)
}

fn snappy(piece: &[u8]) -> Result<Vec<u8>, TableError> {
    let bytes = snap::raw::decompress_len(piece).map_err(|_| DAMAGED)?;
    if bytes > PIECE_BYTES_MAX {
        return Err(TOO_LONG);
    }
    snap::raw::Decoder::new()
        .decompress_vec(piece)
        .map_err(|_| DAMAGED)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::{Codec, PIECE_BYTES_MAX, TOO_LONG, Unpacker};

    fn packed(codec: Codec, bytes: &[u8]) -> Vec<u8> {
        match codec {
            Codec::Plain => bytes.to_vec(),
            Codec::Deflate => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Codec::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Codec::Snappy => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
            Codec::Zstd => compress_to_vec(bytes, CompressionLevel::Fastest),
        }
    }

    #[test]
    fn pieces_are_unpacked_unless_they_are_damaged_or_become_too_long() {
        let bytes = b"packed packed packed".repeat(50);
        let bomb = vec![0; PIECE_BYTES_MAX + 1];
        for codec in [Codec::Deflate, Codec::Gzip, Codec::Snappy, Codec::Zstd] {
            let piece = packed(codec, &bytes);
            let mut unpacker = Unpacker::new(codec);
            assert_eq!(unpacker.unpack(&piece).unwrap(), bytes, "{codec:?}");
            let cut = unpacker.unpack(&piece[..piece.len() / 2]);
            assert!(cut.is_err(), "{codec:?}");
            let bomb = packed(codec, &bomb);
            assert_eq!(unpacker.unpack(&bomb), Err(TOO_LONG), "{codec:?}");
        }
    }

    #[test]
    fn the_pieces_of_an_object_count_together() {
        let piece = packed(Codec::Snappy, &vec![0; PIECE_BYTES_MAX]);
        let mut unpacker = Unpacker::new(Codec::Snappy);
        let unpacked = (0..5).map(|_| unpacker.unpack(&piece).is_ok());
        assert_eq!(unpacked.collect::<Vec<_>>(), [true, true, true, true, false]);
    }
}
