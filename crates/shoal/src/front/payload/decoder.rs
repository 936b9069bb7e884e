//! A strict, incremental parser of aws-chunked bodies: bytes in, events out, no I/O.
//!
//! ```text
//! 400;chunk-signature=<64 digits>CRLF   <1024 bytes>CRLF   …   0;chunk-signature=<64 digits>CRLF
//! x-amz-checksum-crc32c:<base 64>CRLF   x-amz-trailer-signature:<64 digits>CRLF   CRLF
//! ```
//!
//! Every event carries the bytes it was read from, so that the wire form can be passed on; all of them
//! joined are the input. How the input is split into frames makes no difference.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::sigv4::hex;

/// A signed chunk is held until its signature is verified, so it must be bounded. AWS clients send 64 KiB to 1 MiB.
pub const SIGNED_CHUNK_MAX_BYTES: u64 = 16 << 20;

/// Longest size line: 16 digits, the signature, CRLF.
const SIZE_LINE_MAX_BYTES: usize = 16 + SIGNATURE_EXTENSION.len() + 64 + 2;
const SIGNATURE_EXTENSION: &[u8] = b";chunk-signature=";
/// Longest trailer line: a name, and a checksum or signature.
const TRAILER_LINE_MAX_BYTES: usize = 1024;
/// One checksum and the signature.
const TRAILER_LINES_MAX: usize = 2;

/// What an aws-chunked body is made of.
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

/// Why a body is not aws-chunked as announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// It ends before its last line.
    #[error("The aws-chunked body ends before its last chunk is complete.")]
    Truncated,
    /// The last chunk comes before the announced number of bytes.
    #[error("The body has fewer bytes than x-amz-decoded-content-length says.")]
    ShorterThanAnnounced,
    /// A chunk goes beyond the announced number of bytes.
    #[error("The body has more bytes than x-amz-decoded-content-length says.")]
    LongerThanAnnounced,
    /// A signed chunk over [`SIGNED_CHUNK_MAX_BYTES`].
    #[error("A signed chunk may hold at most 16 MiB.")]
    ChunkTooLarge,
    /// No hexadecimal size, or something other than a signature behind it.
    #[error(
        "A chunk must begin with its size in hexadecimal and, if chunks are signed, its chunk-signature."
    )]
    MalformedSize,
    /// A line without end.
    #[error("A line of the aws-chunked framing is too long.")]
    LineTooLong,
    /// LF without CR.
    #[error("Lines of the aws-chunked framing must end in CRLF.")]
    BareNewline,
    /// Data of a chunk not followed by CRLF.
    #[error("The data of a chunk must be followed by CRLF.")]
    MissingNewline,
    /// A trailer where none was announced.
    #[error("The aws-chunked body has a trailer that x-amz-content-sha256 does not announce.")]
    UnexpectedTrailer,
    /// A trailer line that is not `name:value`.
    #[error("A trailer must be lines of name:value.")]
    MalformedTrailer,
    /// More lines than a checksum and a signature.
    #[error("The trailer has more than one checksum.")]
    TooManyTrailers,
    /// Bytes behind the end.
    #[error("There is data after the last chunk.")]
    DataAfterEnd,
}

/// The parser. Feed it frames with [`next`](Self::next) until it gives `None`; end with [`finish`](Self::finish).
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
    /// A parser for a body that decodes to exactly `decoded_length` bytes.
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

    /// Takes the next event from the front of `input`; `None` when all of it is used up.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Event>, ChunkError> {
        if input.is_empty() {
            return Ok(None);
        }
        match self.state {
            State::SizeLine => self.size_line(input),
            State::Data { left } => Ok(Some(self.data(left, input))),
            State::ChunkEnd => self.chunk_end(input),
            State::Trailer => self.trailer_line(input),
            State::End => Err(ChunkError::DataAfterEnd),
        }
    }

    /// Says whether the input may end here.
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

    /// Takes a line with its CRLF; `None` if the end is still to come, and what there is has been kept.
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
        hex::decode(signature)?;
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

#[cfg(test)]
mod tests {
    use super::{ChunkError, Decoder, Event, Framing, SIGNED_CHUNK_MAX_BYTES};
    use crate::front::payload::encoder::{Encoder, seed};
    use bytes::Bytes;
    use proptest::collection;
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

    const UNSIGNED: Framing = Framing {
        signed: false,
        trailer: false,
    };
    const TRAILER: Framing = Framing {
        signed: false,
        trailer: true,
    };
    const SIGNED: Framing = Framing {
        signed: true,
        trailer: false,
    };

    /// All events of `frames`, neighbouring data joined.
    fn decode(framing: Framing, length: u64, frames: &[&[u8]]) -> Result<Vec<Event>, ChunkError> {
        let mut decoder = Decoder::new(framing, length);
        let mut events: Vec<Event> = Vec::new();
        for frame in frames {
            let mut input = Bytes::copy_from_slice(frame);
            while let Some(event) = decoder.next(&mut input)? {
                match (events.last_mut(), event) {
                    (Some(Event::Data(before)), Event::Data(data)) => {
                        *before = [before.as_ref(), data.as_ref()].concat().into();
                    }
                    (_, event) => events.push(event),
                }
            }
        }
        decoder.finish().map(|()| events)
    }

    fn wire(event: &Event) -> &[u8] {
        match event {
            Event::Chunk(line) => &line.wire,
            Event::Trailer(line) => &line.wire,
            Event::Data(bytes) | Event::ChunkEnd(bytes) | Event::End(bytes) => bytes,
        }
    }

    fn data(events: &[Event]) -> Vec<u8> {
        let data = events.iter().filter_map(|event| {
            if let Event::Data(data) = event {
                Some(data.as_ref())
            } else {
                None
            }
        });
        data.collect::<Vec<&[u8]>>().concat()
    }

    fn error(framing: Framing, length: u64, body: &str) -> ChunkError {
        decode(framing, length, &[body.as_bytes()]).unwrap_err()
    }

    fn encoder() -> impl Strategy<Value = Encoder<'static>> {
        let trailer = prop_oneof![Just(None), Just(Some(("x-amz-checksum-crc32c", "sOO8/Q==")))];
        let end = prop_oneof![Just("\r\n"), Just("\n\r\n")];
        (any::<bool>(), trailer, end).prop_map(|(signed, trailer, trailer_end)| Encoder {
            seed: signed.then(|| seed("secret")),
            trailer,
            trailer_end,
        })
    }

    fn chunks() -> impl Strategy<Value = Vec<Vec<u8>>> {
        collection::vec(
            collection::vec(prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n')], 1..80),
            0..5,
        )
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded_and_its_wire_form_kept(encoder in encoder(), chunks in chunks()) {
            let body = encoder.encode(chunks.iter().map(Vec::as_slice));
            let plain = chunks.concat();
            let events = decode(encoder.framing(), plain.len() as u64, &[&body]).unwrap();
            assert_eq!(data(&events), plain);
            assert_eq!(events.iter().map(wire).collect::<Vec<_>>().concat(), body);
            let trailer = events.iter().find_map(|event| if let Event::Trailer(line) = event { Some(line) } else { None });
            let expected = encoder.trailer.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            assert_eq!(trailer.map(|line| (line.name(), line.value())), expected);
        }

        #[test]
        fn frames_cut_anywhere_make_no_difference(
            encoder in encoder(),
            chunks in chunks(),
            mut cuts in collection::vec(any::<proptest::sample::Index>(), 0..12),
            damage in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
        ) {
            let mut body = encoder.encode(chunks.iter().map(Vec::as_slice));
            if let Some((at, byte)) = damage {
                let at = at.index(body.len());
                body[at] = byte;
            }
            let length = chunks.concat().len() as u64;
            cuts.sort_by_key(|cut| cut.index(body.len()));
            let mut frames = Vec::new();
            let mut start = 0;
            for cut in cuts {
                frames.push(&body[start..cut.index(body.len())]);
                start = cut.index(body.len());
            }
            frames.push(&body[start..]);
            let whole = decode(encoder.framing(), length, &[&body]);
            assert_eq!(decode(encoder.framing(), length, &frames), whole);
            let bytes: Vec<&[u8]> = body.chunks(1).collect();
            assert_eq!(decode(encoder.framing(), length, &bytes), whole);
        }

        #[test]
        fn no_proper_beginning_of_a_body_is_a_body(encoder in encoder(), chunks in chunks()) {
            let body = encoder.encode(chunks.iter().map(Vec::as_slice));
            let length = chunks.concat().len() as u64;
            for end in 0..body.len() {
                assert_eq!(decode(encoder.framing(), length, &[&body[..end]]), Err(ChunkError::Truncated));
            }
        }
    }

    #[test]
    fn the_size_line_is_hexadecimal_digits_and_nothing_else() {
        for line in [
            "",
            "g",
            "0x5",
            "+5",
            " 5",
            "5 ",
            "5;",
            "5;a=b",
            "-1",
            "5\r",
            "00000000000000005",
        ] {
            assert_eq!(
                error(UNSIGNED, 5, &format!("{line}\r\nhello\r\n0\r\n\r\n")),
                ChunkError::MalformedSize,
                "{line:?}"
            );
        }
        for line in ["5", "05", "0000000000000005"] {
            assert!(
                decode(UNSIGNED, 5, &[format!("{line}\r\nhello\r\n0\r\n\r\n").as_bytes()]).is_ok(),
                "{line}"
            );
        }
        let upper = format!("A\r\n{}\r\n0\r\n\r\n", "x".repeat(10));
        assert!(decode(UNSIGNED, 10, &[upper.as_bytes()]).is_ok());
    }

    #[test]
    fn a_signed_chunk_has_a_signature_of_sixty_four_digits_and_no_other_extension() {
        let good = "a".repeat(64);
        assert!(
            decode(
                SIGNED,
                0,
                &[format!("0;chunk-signature={good}\r\n\r\n").as_bytes()]
            )
            .is_ok()
        );
        for line in [
            "0".to_owned(),
            format!("0;chunk-signature={}", &good[1..]),
            format!("0;chunk-signature={good}a"),
            format!("0;chunk-signature=g{}", &good[1..]),
            format!("0;Chunk-Signature={good}"),
            format!("0; chunk-signature={good}"),
            format!("0;a=b;chunk-signature={good}"),
            format!("0;chunk-signature={good};a=b"),
            format!(";chunk-signature={good}"),
        ] {
            let error = error(SIGNED, 0, &format!("{line}\r\n\r\n"));
            assert!(
                matches!(error, ChunkError::MalformedSize | ChunkError::LineTooLong),
                "{line}: {error:?}"
            );
        }
        assert_eq!(
            error(UNSIGNED, 0, &format!("0;chunk-signature={good}\r\n\r\n")),
            ChunkError::MalformedSize
        );
    }

    #[test]
    fn a_line_without_end_is_given_up_early() {
        assert_eq!(error(UNSIGNED, 5, &"0".repeat(200)), ChunkError::LineTooLong);
        assert_eq!(
            error(TRAILER, 0, &format!("0\r\nx:{}", "y".repeat(2000))),
            ChunkError::LineTooLong
        );
        let newlines = format!("0\r\nx:{}", "\n".repeat(2000));
        assert_eq!(error(TRAILER, 0, &newlines), ChunkError::BareNewline);
    }

    #[test]
    fn lines_end_in_crlf() {
        assert_eq!(
            error(UNSIGNED, 5, "5\nhello\r\n0\r\n\r\n"),
            ChunkError::BareNewline
        );
        assert_eq!(
            error(UNSIGNED, 5, "5\r\nhello\n0\r\n\r\n"),
            ChunkError::MissingNewline
        );
        assert_eq!(
            error(UNSIGNED, 5, "5\r\nhello0\r\n\r\n"),
            ChunkError::MissingNewline
        );
        assert_eq!(
            error(UNSIGNED, 5, "5\r\nhello!\r\n0\r\n\r\n"),
            ChunkError::MissingNewline
        );
        assert_eq!(error(UNSIGNED, 0, "0\r\n\n"), ChunkError::Truncated);
        assert_eq!(error(UNSIGNED, 0, "0\r\n\n\r\n"), ChunkError::UnexpectedTrailer);
        for trailer in ["a:b\nc:d\r\n", "a:b\n\n\r\n", "a:b\rc\r\n", "\n\r\n", "a:b\r\r\n"] {
            assert_eq!(
                error(TRAILER, 0, &format!("0\r\n{trailer}\r\n")),
                ChunkError::MalformedTrailer,
                "{trailer:?}"
            );
        }
    }

    #[test]
    fn the_announced_length_is_exact() {
        assert_eq!(
            error(UNSIGNED, 6, "5\r\nhello\r\n0\r\n\r\n"),
            ChunkError::ShorterThanAnnounced
        );
        assert_eq!(
            error(UNSIGNED, 4, "5\r\nhello\r\n0\r\n\r\n"),
            ChunkError::LongerThanAnnounced
        );
        assert_eq!(
            error(UNSIGNED, 9, "5\r\nhello\r\n5\r\n"),
            ChunkError::LongerThanAnnounced
        );
        assert_eq!(
            error(UNSIGNED, u64::MAX - 1, "ffffffffffffffff\r\n"),
            ChunkError::LongerThanAnnounced
        );
    }

    #[test]
    fn a_signed_chunk_is_bounded_and_an_unsigned_one_is_not() {
        let size = SIGNED_CHUNK_MAX_BYTES + 1;
        let signed = format!("{size:x};chunk-signature={}\r\n", "a".repeat(64));
        assert_eq!(error(SIGNED, size, &signed), ChunkError::ChunkTooLarge);
        assert_eq!(
            error(UNSIGNED, 5 << 40, &format!("{:x}\r\n", 5_u64 << 40)),
            ChunkError::Truncated
        );
    }

    #[test]
    fn nothing_comes_after_the_end_and_no_trailer_unannounced() {
        assert_eq!(error(UNSIGNED, 0, "0\r\n\r\n0\r\n\r\n"), ChunkError::DataAfterEnd);
        assert_eq!(
            error(TRAILER, 0, "0\r\na:b\r\n\r\n\r\n"),
            ChunkError::DataAfterEnd
        );
        assert_eq!(
            error(UNSIGNED, 0, "0\r\na:b\r\n\r\n"),
            ChunkError::UnexpectedTrailer
        );
        assert_eq!(
            error(TRAILER, 0, "0\r\na:b\r\nc:d\r\ne:f\r\n\r\n"),
            ChunkError::TooManyTrailers
        );
    }

    #[test]
    fn a_trailer_line_is_a_name_a_colon_and_a_value() {
        for (line, name, value) in [
            ("a:b", "a", "b"),
            ("A-b_1:  c d \t", "A-b_1", "c d"),
            ("a:", "a", ""),
            ("a:b:c", "a", "b:c"),
        ] {
            let events = decode(TRAILER, 0, &[format!("0\r\n{line}\r\n\r\n").as_bytes()]).unwrap();
            let Event::Trailer(trailer) = &events[1] else {
                panic!("{events:?}")
            };
            assert_eq!(
                (trailer.name(), trailer.value()),
                (name.as_bytes(), value.as_bytes()),
                "{line}"
            );
        }
        for line in ["a", ":b", "a b:c", " a:b", "a :b", "a:b\u{0}", "a:é"] {
            assert_eq!(
                error(TRAILER, 0, &format!("0\r\n{line}\r\n\r\n")),
                ChunkError::MalformedTrailer,
                "{line:?}"
            );
        }
    }
}
