//! The digests of an object's bytes at the time of acknowledgement. They are stored in the object's record,
//! and all bytes that leave the tier are checked against them.

use shoal_base::encoding::{Malformed, Reader};
use shoal_base::hex;

use crate::tier::{ChunkDigests, chunk_bytes_for, count};

/// Limit on the checksums of parts in a record. If an object exceeds it (thousands of parts with SHA-256),
/// its flush reads each part twice: once to compute the checksum, once to send it.
const CHECKSUM_BYTES_MAX: usize = 128 << 10;

/// The digests of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    /// The digests of the chunks of its pieces; `None` if an earlier build received some of its bytes.
    chunks: Option<Chunks>,
    /// The digests of its parts, in order. Empty if it was written in one piece: its ETag is then the digest.
    parts: Vec<PartDigest>,
}

/// The digests of an object's chunks, all pieces in one list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Chunks {
    chunk_bytes: u64,
    digests: Vec<u64>,
}

/// The digests of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartDigest {
    /// The MD5 of the part.
    pub(crate) md5: [u8; 16],
    /// The checksum of the part. Empty if the upload has none, or if the record has no room for it.
    pub(crate) checksum: Vec<u8>,
}

impl Acknowledged {
    /// Collects the digests of an object's pieces, none of them empty, and of its parts.
    pub(crate) fn new(pieces: Option<Vec<ChunkDigests>>, mut parts: Vec<PartDigest>) -> Self {
        let length = parts.first().map_or(0, |part| part.checksum.len());
        let fits = length * parts.len() <= CHECKSUM_BYTES_MAX;
        if !fits || parts.iter().any(|part| part.checksum.len() != length) {
            for part in &mut parts {
                part.checksum.clear();
            }
        }
        Self {
            chunks: pieces.map(Chunks::of),
            parts,
        }
    }

    /// Returns the digests of each piece, `None` where the record has none.
    pub(crate) fn of_pieces(&self, sizes: &[u64]) -> Result<Vec<Option<ChunkDigests>>, Malformed> {
        let Some(Chunks { chunk_bytes, digests }) = &self.chunks else {
            return Ok(vec![None; sizes.len()]);
        };
        if !chunk_bytes.is_power_of_two() {
            return Err(Malformed);
        }
        let mut rest = &digests[..];
        let pieces = sizes.iter().map(|size_bytes| {
            let count = usize::try_from(count(*size_bytes, *chunk_bytes)).map_err(|_| Malformed)?;
            let (digests, behind) = rest.split_at_checked(count).ok_or(Malformed)?;
            rest = behind;
            let digests = ChunkDigests::new(*size_bytes, *chunk_bytes, digests);
            digests.map(Some).ok_or(Malformed)
        });
        let pieces: Vec<_> = pieces.collect::<Result<_, _>>()?;
        rest.is_empty().then_some(pieces).ok_or(Malformed)
    }

    /// Returns the digests of each part.
    pub(crate) fn parts(&self) -> &[PartDigest] {
        &self.parts
    }

    /// Encodes the digests.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let none = Chunks::default();
        let Chunks { chunk_bytes, digests } = self.chunks.as_ref().unwrap_or(&none);
        out.extend_from_slice(&chunk_bytes.to_le_bytes());
        out.extend_from_slice(&(digests.len() as u32).to_le_bytes());
        out.extend(digests.iter().flat_map(|digest| digest.to_le_bytes()));
        let checksum_bytes = self.parts.first().map_or(0, |part| part.checksum.len());
        out.extend_from_slice(&(self.parts.len() as u32).to_le_bytes());
        out.push(checksum_bytes as u8);
        for part in &self.parts {
            out.extend_from_slice(&part.md5);
            out.extend_from_slice(&part.checksum);
        }
    }

    /// Inverse of [`Acknowledged::write`].
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (chunk_bytes, count) = (reader.u64()?, reader.u32()?);
        let digests = (0..count).map(|_| reader.u64()).collect::<Result<_, _>>()?;
        let count = reader.u32()?;
        let [checksum_bytes] = reader.array()?;
        let part = |_| {
            Ok(PartDigest {
                md5: reader.array()?,
                checksum: reader.take(checksum_bytes.into())?.to_vec(),
            })
        };
        Ok(Self {
            parts: (0..count).map(part).collect::<Result<_, _>>()?,
            chunks: (chunk_bytes > 0).then_some(Chunks { chunk_bytes, digests }),
        })
    }
}

impl Chunks {
    fn of(pieces: Vec<ChunkDigests>) -> Self {
        let least_bytes = pieces.iter().map(ChunkDigests::chunk_bytes).max();
        let sizes = pieces.iter().map(ChunkDigests::size_bytes);
        let chunk_bytes = chunk_bytes_for(&sizes, least_bytes.unwrap_or(1));
        let coarser = pieces.into_iter().map(|piece| piece.coarser(chunk_bytes));
        Self {
            chunk_bytes,
            digests: coarser.flat_map(|piece| piece.digests().to_vec()).collect(),
        }
    }
}

/// Returns the MD5 in an ETag, or `None` if the ETag has another form.
pub(crate) fn md5_in(etag: &str) -> Option<[u8; 16]> {
    hex::decode(etag.trim_matches('"').as_bytes())
}

/// Encodes the digests of one piece, or their absence.
pub(crate) fn write_piece(digests: Option<&ChunkDigests>, out: &mut Vec<u8>) {
    Acknowledged::new(digests.map(|digests| vec![digests.clone()]), Vec::new()).write(out);
}

/// Inverse of [`write_piece`].
pub(crate) fn read_piece(
    reader: &mut Reader<'_>,
    size_bytes: u64,
) -> Result<Option<ChunkDigests>, Malformed> {
    let mut pieces = Acknowledged::read(reader)?.of_pieces(&[size_bytes])?;
    Ok(pieces.pop().flatten())
}

#[cfg(test)]
mod tests {
    use shoal_base::encoding::Reader;

    use super::{Acknowledged, CHECKSUM_BYTES_MAX, PartDigest};
    use crate::tier::ChunkDigester;

    fn pieces(sizes: &[usize]) -> Vec<crate::tier::ChunkDigests> {
        let digests = sizes.iter().map(|size| {
            let mut digester = ChunkDigester::default();
            digester.update(&vec![7; *size]);
            digester.finish()
        });
        digests.collect()
    }

    fn parts(count: usize, checksum_bytes: usize) -> Vec<PartDigest> {
        let part = |number: usize| PartDigest {
            md5: [number as u8; 16],
            checksum: vec![1; checksum_bytes],
        };
        (0..count).map(part).collect()
    }

    fn reread(written: &Acknowledged) -> Acknowledged {
        let mut bytes = Vec::new();
        written.write(&mut bytes);
        let mut reader = Reader::new(&bytes);
        let read = Acknowledged::read(&mut reader).unwrap();
        assert!(reader.rest().is_empty());
        read
    }

    #[test]
    fn digests_read_back_unchanged_and_belong_to_their_pieces() {
        let sizes = [600 << 10, 1, 256 << 10];
        let written = Acknowledged::new(Some(pieces(&sizes)), parts(3, 4));
        assert_eq!(reread(&written), written);
        let sizes = sizes.map(|size| size as u64);
        let of_pieces: Vec<_> = written.of_pieces(&sizes).unwrap().into_iter().flatten().collect();
        assert_eq!(of_pieces, pieces(&[600 << 10, 1, 256 << 10]));
        assert!(written.of_pieces(&sizes[..2]).is_err());
        assert!(written.of_pieces(&[600 << 10, 1, 512 << 10]).is_err());
        let earlier = Acknowledged::default();
        assert_eq!(reread(&earlier), earlier);
        assert_eq!(earlier.of_pieces(&sizes), Ok(vec![None; 3]));
    }

    #[test]
    fn checksums_that_would_make_an_entry_large_are_left_out() {
        let fitting = CHECKSUM_BYTES_MAX / 32;
        let is_kept = |acknowledged: &Acknowledged| !acknowledged.parts()[0].checksum.is_empty();
        assert!(is_kept(&Acknowledged::new(None, parts(fitting, 32))));
        let many = Acknowledged::new(None, parts(fitting + 1, 32));
        assert!(!is_kept(&many));
        assert_eq!(reread(&many), many);
    }

    #[test]
    fn the_digests_of_an_object_in_ten_thousand_parts_fit_into_an_entry() {
        let many = Acknowledged::new(Some(vec![pieces(&[1 << 20]).remove(0); 10_000]), parts(10_000, 8));
        let mut bytes = Vec::new();
        many.write(&mut bytes);
        assert!(bytes.len() < 340 << 10, "{}", bytes.len());
    }
}
