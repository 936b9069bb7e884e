//! The decoder: any cut, any damage, every rule.

use bytes::Bytes;
use proptest::collection;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

use super::encoder::{Encoder, seed};
use crate::payload::decoder::{ChunkError, Decoder, Event, Framing, SIGNED_CHUNK_MAX_BYTES};

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

/// The data of a correct body.
pub(super) fn decoded(framing: Framing, length: u64, body: &[u8]) -> Vec<u8> {
    data(&decode(framing, length, &[body]).unwrap())
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
    fn an_encoded_body_is_decoded_and_its_wire_form_kept(encoder in encoder(), chunks in chunks()) {
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
        error(TRAILER, 0, "0\r\n\r\na:b\r\n\r\n"),
        ChunkError::MalformedTrailer,
        "its first line is empty"
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
