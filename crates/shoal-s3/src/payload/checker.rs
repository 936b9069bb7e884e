//! Decides which bytes of a body may be forwarded to the lake, and when. Pure: frames in, frames out.

use std::collections::VecDeque;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use sha2::{Digest, Sha256};
use shoal_base::piece_buffer::PieceBuffer;

use super::Payload;
use super::declared::{Announced, Expected, Trailer};
use super::decoder::{Decoder, Event, Framing, SizeLine, TrailerLine};
use super::digests::Digests;
use super::error::{malformed_digest, not_resigned, unexpected_trailer, wrong_digest, wrong_length};
use super::memory_limit::{MemoryReservation, NoRoom};
use crate::error::{ErrorCode, S3Error};
use crate::sigv4::{ChunkSigner, SeedSignature, Signature};

const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// Checks one body.
#[derive(Debug)]
pub(super) struct Checker {
    /// Bytes still to come on the wire, if their number was announced.
    length_left: Option<u64>,
    digests: Digests,
    expected: Vec<Expected>,
    /// `None` for a body without framing.
    chunked: Option<Box<Chunked>>,
    /// The last frame that may be forwarded, held back until the next one or the final check: otherwise the
    /// lake could receive all bytes of an invalid body before it is aborted, and accept it as complete.
    last: Option<Bytes>,
    /// Last chunk and trailer of an aws-chunked body, held back until the final check.
    end: VecDeque<Bytes>,
    /// The data without its framing since it was last taken, if it is kept at all.
    data: Option<Vec<Bytes>>,
}

impl Checker {
    pub(super) fn new(announced: Announced) -> Self {
        let mut digests = Digests::default();
        for expected in &announced.digests {
            digests.add(expected.algorithm);
        }
        if let Some(algorithm) = announced.trailer.as_ref().and_then(|trailer| trailer.algorithm) {
            digests.add(algorithm);
        }
        let chunked = announced.payload.hash.is_streaming().then(|| {
            let decoded_length = announced
                .decoded_length
                .expect("a streaming body without its length was refused");
            Box::new(Chunked::new(announced.payload, decoded_length, announced.trailer))
        });
        Self {
            length_left: announced.length,
            digests,
            expected: announced.digests,
            chunked,
            last: None,
            end: VecDeque::new(),
            data: None,
        }
    }

    /// Keeps the data of each further frame for [`Checker::take_data`].
    pub(super) fn keep_data(&mut self) {
        self.data = Some(Vec::new());
    }

    /// The data of the frames since the last call, without framing, verified or not.
    pub(super) fn take_data(&mut self) -> Vec<Bytes> {
        self.data.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The checksum after the data, once the body has ended without an error.
    pub(super) fn trailer(&self) -> Option<(HeaderName, HeaderValue)> {
        let line = self.chunked.as_ref()?.trailer_seen.as_ref()?;
        let name = HeaderName::from_bytes(line.name()).ok()?;
        Some((name, HeaderValue::from_bytes(line.value()).ok()?))
    }

    /// Sets the key with which the lake verifies chunks.
    pub(super) fn sign_again(&mut self, seed: SeedSignature) {
        let chunked = self.chunked.as_mut();
        if let Some(signatures) = chunked.and_then(|chunked| chunked.signatures.as_mut()) {
            signatures.ours = Some(ChunkSigner::new(seed));
        }
    }

    /// Checks the next frame and appends the bytes that may be forwarded to `out`.
    pub(super) fn push(&mut self, frame: Bytes, out: &mut VecDeque<Bytes>) -> Result<(), S3Error> {
        if let Some(left) = &mut self.length_left {
            *left = left.checked_sub(frame.len() as u64).ok_or_else(wrong_length)?;
        }
        if frame.is_empty() {
            return Ok(());
        }
        out.extend(self.last.take());
        match &mut self.chunked {
            None => {
                self.digests.update(&frame);
                if let Some(data) = &mut self.data {
                    data.push(frame.clone());
                }
                out.push_back(frame);
            }
            Some(chunked) => {
                let mut input = frame;
                while let Some(event) = chunked.decoder.next(&mut input)? {
                    if let (Some(kept), Event::Data(data)) = (&mut self.data, &event) {
                        kept.push(data.clone());
                    }
                    chunked.take(event, &mut self.digests, &mut self.end, out)?;
                }
            }
        }
        self.last = out.pop_back();
        Ok(())
    }

    /// Ends the body: if all checks pass, appends the held bytes to `out`.
    pub(super) fn finish(&mut self, out: &mut VecDeque<Bytes>) -> Result<(), S3Error> {
        if self.length_left.is_some_and(|left| left > 0) {
            return Err(wrong_length());
        }
        if let Some(chunked) = &self.chunked {
            chunked.finish(&self.digests)?;
        }
        for expected in &self.expected {
            expected.check(&self.digests)?;
        }
        out.extend(self.last.take());
        out.append(&mut self.end);
        Ok(())
    }
}

/// An aws-chunked body.
#[derive(Debug)]
struct Chunked {
    decoder: Decoder,
    /// Present if chunks are signed.
    signatures: Option<Signatures>,
    trailer: Option<Trailer>,
    trailer_seen: Option<TrailerLine>,
    /// The signed chunk being received.
    pending: Option<Pending>,
}

/// The client's and the node's chain of signatures, which run over the same chunks.
#[derive(Debug)]
struct Signatures {
    theirs: ChunkSigner,
    ours: Option<ChunkSigner>,
    trailer_verified: bool,
}

/// A signed chunk before its verification.
#[derive(Debug)]
struct Pending {
    line: SizeLine,
    sha256: Sha256,
    /// Data held back. Small frames are joined, so that a chunk sent byte by byte costs memory for its bytes
    /// only.
    data: PieceBuffer,
    held_bytes: usize,
    reservation: MemoryReservation,
}

impl Chunked {
    fn new(payload: Payload, decoded_length: u64, trailer: Option<Trailer>) -> Self {
        let framing = Framing {
            signed: payload.hash.signs_chunks(),
            trailer: payload.hash.has_trailer(),
        };
        let seed = || payload.seed.expect("signed chunks come with a seed");
        Self {
            decoder: Decoder::new(framing, decoded_length),
            signatures: framing.signed.then(|| Signatures::new(seed())),
            trailer,
            trailer_seen: None,
            pending: None,
        }
    }

    fn take(
        &mut self,
        event: Event,
        digests: &mut Digests,
        end: &mut VecDeque<Bytes>,
        out: &mut VecDeque<Bytes>,
    ) -> Result<(), S3Error> {
        match (event, &mut self.signatures) {
            (Event::Chunk(line), Some(signatures)) if line.size == 0 => {
                end.push_back(signatures.resign_chunk(&line, Sha256::new())?);
            }
            (Event::Chunk(line), None) if line.size == 0 => end.push_back(line.wire),
            (Event::Chunk(line), Some(_)) => {
                assert!(
                    self.pending.is_none(),
                    "a chunk begins after the last one has ended"
                );
                self.pending = Some(Pending {
                    line,
                    sha256: Sha256::new(),
                    data: PieceBuffer::default(),
                    held_bytes: 0,
                    reservation: MemoryReservation::none(),
                });
            }
            (Event::Chunk(line), None) => out.push_back(line.wire),
            (Event::Data(data), _) => {
                digests.update(&data);
                match &mut self.pending {
                    Some(pending) => pending.push(data)?,
                    None => out.push_back(data),
                }
            }
            (Event::ChunkEnd(wire), Some(signatures)) => {
                let pending = self.pending.take().expect("a chunk ends after it began");
                out.push_back(signatures.resign_chunk(&pending.line, pending.sha256)?);
                out.extend(pending.data.into_vec());
                out.push_back(wire);
            }
            (Event::ChunkEnd(wire), None) => out.push_back(wire),
            (Event::Trailer(line), _) => end.push_back(self.take_trailer(line)?),
            (Event::End(wire), _) => end.push_back(wire),
        }
        Ok(())
    }

    /// A trailer line: first the announced checksum, then, if chunks are signed, the signature over it.
    fn take_trailer(&mut self, line: TrailerLine) -> Result<Bytes, S3Error> {
        if let Some(signatures) = &mut self.signatures {
            if signatures.trailer_verified {
                return Err(unexpected_trailer());
            }
            if line.name().eq_ignore_ascii_case(TRAILER_SIGNATURE.as_bytes()) {
                return signatures.resign_trailer(&line, self.trailer_seen.as_ref());
            }
        }
        let announced = self.trailer.as_ref().map(|trailer| trailer.name.as_bytes());
        let is_announced = announced.is_some_and(|name| line.name().eq_ignore_ascii_case(name));
        if !is_announced || self.trailer_seen.is_some() {
            return Err(unexpected_trailer());
        }
        let wire = line.wire.clone();
        self.trailer_seen = Some(line);
        Ok(wire)
    }

    fn finish(&self, digests: &Digests) -> Result<(), S3Error> {
        self.decoder.finish()?;
        // A trailer that was not announced was refused on arrival.
        let Some(announced) = &self.trailer else {
            return Ok(());
        };
        let is_verified = |signatures: &Signatures| signatures.trailer_verified;
        let line = self.trailer_seen.as_ref();
        let line = line.filter(|_| self.signatures.as_ref().is_none_or(is_verified));
        let line = line.ok_or_else(unexpected_trailer)?;
        let Some(algorithm) = announced.algorithm else {
            return Ok(());
        };
        let malformed = || malformed_digest(algorithm, "trailing header");
        let expected = algorithm.parse(line.value()).ok_or_else(malformed)?;
        if digests.matches(algorithm, &expected) {
            Ok(())
        } else {
            Err(wrong_digest(algorithm))
        }
    }
}

impl Signatures {
    fn new(seed: SeedSignature) -> Self {
        Self {
            theirs: ChunkSigner::new(seed),
            ours: None,
            trailer_verified: false,
        }
    }

    /// Verifies the client's signature of a chunk and returns its size line with the node's signature.
    fn resign_chunk(&mut self, line: &SizeLine, data: Sha256) -> Result<Bytes, S3Error> {
        let sha256: [u8; 32] = data.finalize().into();
        verify(self.theirs.sign_chunk(&sha256), line.signature())?;
        let ours = self.ours.as_mut().ok_or_else(not_resigned)?;
        Ok(line.with_signature(ours.sign_chunk(&sha256).as_str()))
    }

    /// Verifies the client's signature of the trailer and returns its line with the node's signature.
    fn resign_trailer(&mut self, line: &TrailerLine, signed: Option<&TrailerLine>) -> Result<Bytes, S3Error> {
        let mut canonical = Vec::new();
        if let Some(signed) = signed {
            canonical.extend_from_slice(&signed.name().to_ascii_lowercase());
            canonical.push(b':');
            canonical.extend_from_slice(signed.value());
            canonical.push(b'\n');
        }
        verify(self.theirs.sign_trailer(&canonical), line.value())?;
        self.trailer_verified = true;
        let ours = self.ours.as_mut().ok_or_else(not_resigned)?;
        Ok(line.with_value(ours.sign_trailer(&canonical).as_str()))
    }
}

fn verify(computed: &Signature, claimed: &[u8]) -> Result<(), S3Error> {
    if computed.is(claimed) {
        Ok(())
    } else {
        Err(S3Error::new(
            ErrorCode::SignatureDoesNotMatch,
            "The request signature we calculated does not match the signature you provided. Check your key and \
             signing method.",
        ))
    }
}

impl Pending {
    fn push(&mut self, data: Bytes) -> Result<(), NoRoom> {
        self.held_bytes += data.len();
        self.reservation.grow_to(self.held_bytes)?;
        self.sha256.update(&data);
        self.data.push(data);
        Ok(())
    }
}
