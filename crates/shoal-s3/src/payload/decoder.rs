//! A strict, incremental parser of aws-chunked bodies: bytes in, events out, no I/O.
//!
//! ```text
//! 400;chunk-signature=<64 digits>CRLF   <1024 bytes>CRLF   …   0;chunk-signature=<64 digits>CRLF
//! x-amz-checksum-crc32c:<base 64>CRLF   x-amz-trailer-signature:<64 digits>CRLF   CRLF
//! ```
//!
//! Every event carries its original bytes, so that the wire form can be forwarded; together they are the
//! input. How the input is split into frames makes no difference.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use shoal_base::hex;

/// The largest signed chunk. Such a chunk is held until its signature is verified, so it must be bounded. AWS
/// clients send 64 KiB to 1 MiB.
pub const SIGNED_CHUNK_MAX_BYTES: u64 = 16 << 20;

/// Longest size line: 16 digits, the signature, CRLF.
const SIZE_LINE_MAX_BYTES: usize = 16 + SIGNATURE_EXTENSION.len() + 64 + 2;
const SIGNATURE_EXTENSION: &[u8] = b";chunk-signature=";
/// Longest trailer line: a name, and a checksum or signature.
const TRAILER_LINE_MAX_BYTES: usize = 1024;
/// One checksum and the signature.
const TRAILER_LINES_MAX: usize = 2;

/// The optional elements of an aws-chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Each size line carries a signature.
    pub signed: bool,
    /// Trailer lines may follow the last chunk.
    pub trailer: bool,
}

/// A piece of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A chunk begins; one of size 0 is the last.
    Chunk(SizeLine),
    /// Data of the chunk.
    Data(Bytes),
    /// The CRLF after the data.
    ChunkEnd(Bytes),
    /// A line of the trailer.
    Trailer(TrailerLine),
    /// The empty line at the end.
    End(Bytes),
}

/// `400;chunk-signature=…CRLF`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeLine {
    /// The line as it was sent, with its CRLF. The signature is the 64 bytes before the CRLF.
    pub wire: Bytes,
    /// Bytes of data that follow.
    pub size: u64,
}

/// `name:valueCRLF`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrailerLine {
    /// The line as it was sent, with its CRLF.
    pub wire: Bytes,
    name: Range<usize>,
    value: Range<usize>,
}

/// The reason why a body is not aws-chunked as announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkError {
    /// The body ends before its last line.
    Truncated,
    /// The last chunk comes before the announced number of bytes.
    ShorterThanAnnounced,
    /// A chunk goes beyond the announced number of bytes.
    LongerThanAnnounced,
    /// A signed chunk over [`SIGNED_CHUNK_MAX_BYTES`].
    ChunkTooLarge,
    /// No hexadecimal size, or something other than a signature after it.
    MalformedSize,
    /// A line longer than its bound.
    LineTooLong,
    /// LF without CR.
    BareNewline,
    /// Data of a chunk not followed by CRLF.
    MissingNewline,
    /// A trailer where none was announced.
    UnexpectedTrailer,
    /// A trailer line that is not `name:value`.
    MalformedTrailer,
    /// More lines than a checksum and a signature.
    TooManyTrailers,
    /// Bytes after the end.
    DataAfterEnd,
}

/// The parser. Feed it frames with [`next`](Self::next) until that returns `None`; end with
/// [`finish`](Self::finish).
#[derive(Debug)]
pub struct Decoder {
    framing: Framing,
    state: State,
    /// Decoded bytes still to come.
    decoded_left: u64,
    /// The beginning of a line whose end is in a later frame.
    line: BytesMut,
    trailer_lines: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    SizeLine,
    Data { left: u64 },
    ChunkEnd,
    Trailer,
    End,
}

impl Decoder {
    /// Creates a parser for a body that decodes to exactly `decoded_length` bytes.
    pub fn new(framing: Framing, decoded_length: u64) -> Self {
        let line = BytesMut::new();
        Self {
            framing,
            state: State::SizeLine,
            decoded_left: decoded_length,
            line,
            trailer_lines: 0,
        }
    }

    /// Takes the next event from the front of `input`; returns `None` when the input is used up.
    ///
    /// # Errors
    ///
    /// Fails with the first violation of the framing. The decoder must not be used after that.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Event>, ChunkError> {
        if input.is_empty() {
            return Ok(None);
        }
        match self.state {
            State::SizeLine => self.size_line(input),
            State::Data { left } => Ok(Some(self.data(left, input))),
            State::ChunkEnd => self.chunk_end(input),
            State::Trailer => self.trailer_line(input),
            // The bytes after an empty line were meant as the trailer.
            State::End if self.framing.trailer && self.trailer_lines == 0 => {
                Err(ChunkError::MalformedTrailer)
            }
            State::End => Err(ChunkError::DataAfterEnd),
        }
    }

    /// Checks that the input may end here.
    ///
    /// # Errors
    ///
    /// Fails with [`ChunkError::Truncated`] if the last line is missing.
    pub fn finish(&self) -> Result<(), ChunkError> {
        if self.state == State::End {
            Ok(())
        } else {
            Err(ChunkError::Truncated)
        }
    }

    fn size_line(&mut self, input: &mut Bytes) -> Result<Option<Event>, ChunkError> {
        let Some(wire) = self.take_line(input, SIZE_LINE_MAX_BYTES)? else {
            return Ok(None);
        };
        let line = SizeLine::parse(wire, self.framing.signed)?;
        if line.size > self.decoded_left {
            return Err(ChunkError::LongerThanAnnounced);
        }
        if self.framing.signed && line.size > SIGNED_CHUNK_MAX_BYTES {
            return Err(ChunkError::ChunkTooLarge);
        }
        if line.size == 0 && self.decoded_left > 0 {
            return Err(ChunkError::ShorterThanAnnounced);
        }
        self.decoded_left -= line.size;
        self.state = if line.size == 0 {
            State::Trailer
        } else {
            State::Data { left: line.size }
        };
        Ok(Some(Event::Chunk(line)))
    }

    fn data(&mut self, left: u64, input: &mut Bytes) -> Event {
        assert!(left > 0, "the data of a chunk ends with its last byte");
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let left = left - take as u64;
        self.state = if left == 0 {
            State::ChunkEnd
        } else {
            State::Data { left }
        };
        Event::Data(input.split_to(take))
    }

    fn chunk_end(&mut self, input: &mut Bytes) -> Result<Option<Event>, ChunkError> {
        let line = self.take_line(input, 2).map_err(|_| ChunkError::MissingNewline)?;
        Ok(line.map(|wire| {
            self.state = State::SizeLine;
            Event::ChunkEnd(wire)
        }))
    }

    fn trailer_line(&mut self, input: &mut Bytes) -> Result<Option<Event>, ChunkError> {
        let Some(wire) = self.take_line(input, TRAILER_LINE_MAX_BYTES)? else {
            return Ok(None);
        };
        if wire.len() == 2 {
            self.state = State::End;
            return Ok(Some(Event::End(wire)));
        }
        if !self.framing.trailer {
            return Err(ChunkError::UnexpectedTrailer);
        }
        self.trailer_lines += 1;
        if self.trailer_lines > TRAILER_LINES_MAX {
            return Err(ChunkError::TooManyTrailers);
        }
        TrailerLine::parse(wire).map(|line| Some(Event::Trailer(line)))
    }

    /// Takes a line with its CRLF; returns `None` and buffers the input if the line is incomplete.
    fn take_line(&mut self, input: &mut Bytes, max_bytes: usize) -> Result<Option<Bytes>, ChunkError> {
        loop {
            let room = max_bytes - self.line.len();
            let window = &input[..room.min(input.len())];
            let Some(newline) = window.iter().position(|byte| *byte == b'\n') else {
                if window.len() == room {
                    return Err(ChunkError::LineTooLong);
                }
                self.line.extend_from_slice(&input.split_to(window.len()));
                return Ok(None);
            };
            let piece = input.split_to(newline + 1);
            if self.line.is_empty() && piece.ends_with(b"\r\n") {
                return Ok(Some(piece));
            }
            self.line.extend_from_slice(&piece);
            if self.line.ends_with(b"\r\n") {
                return Ok(Some(self.line.split().freeze()));
            }
            // AWS documents trailer lines that end in LF CRLF, and minio-go writes them so.
            if self.state != State::Trailer || self.line.len() == max_bytes {
                return Err(ChunkError::BareNewline);
            }
        }
    }
}

impl SizeLine {
    fn parse(wire: Bytes, signed: bool) -> Result<Self, ChunkError> {
        let line = &wire[..wire.len() - 2];
        let digits = if signed {
            Self::split_signature(line).ok_or(ChunkError::MalformedSize)?
        } else {
            line
        };
        if digits.is_empty() || digits.len() > 16 {
            return Err(ChunkError::MalformedSize);
        }
        let size = digits.iter().try_fold(0, |size: u64, digit| {
            Some(size << 4 | u64::from(hex::digit(*digit)?))
        });
        let size = size.ok_or(ChunkError::MalformedSize)?;
        Ok(Self { wire, size })
    }

    fn split_signature(line: &[u8]) -> Option<&[u8]> {
        let (head, signature) = line.split_at_checked(line.len().checked_sub(64)?)?;
        hex::decode::<32>(signature)?;
        head.strip_suffix(SIGNATURE_EXTENSION)
    }

    /// The signature of a signed chunk: 64 hexadecimal digits.
    pub fn signature(&self) -> &[u8] {
        &self.wire[self.signature_at()..][..64]
    }

    /// The line of a signed chunk with another signature.
    pub fn with_signature(&self, signature: &str) -> Bytes {
        let at = self.signature_at();
        replaced(&self.wire, at..at + 64, signature)
    }

    fn signature_at(&self) -> usize {
        self.wire.len() - 2 - 64
    }
}

impl TrailerLine {
    fn parse(wire: Bytes) -> Result<Self, ChunkError> {
        let line = wire.strip_suffix(b"\r\n").expect("a line ends in CRLF");
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let colon = line
            .iter()
            .position(|byte| *byte == b':')
            .ok_or(ChunkError::MalformedTrailer)?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_value = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t');
        if name.is_empty() || !name.iter().all(is_name) || !value.iter().all(is_value) {
            return Err(ChunkError::MalformedTrailer);
        }
        let start = line.len() - value.trim_ascii_start().len();
        let value = start..start + value.trim_ascii().len();
        Ok(Self {
            wire,
            name: 0..colon,
            value,
        })
    }

    /// The name as it was sent.
    pub fn name(&self) -> &[u8] {
        &self.wire[self.name.clone()]
    }

    /// The value without blanks around it.
    pub fn value(&self) -> &[u8] {
        &self.wire[self.value.clone()]
    }

    /// The line with another value.
    pub fn with_value(&self, value: &str) -> Bytes {
        replaced(&self.wire, self.value.clone(), value)
    }
}

fn replaced(wire: &[u8], range: Range<usize>, new: &str) -> Bytes {
    [&wire[..range.start], new.as_bytes(), &wire[range.end..]]
        .concat()
        .into()
}
