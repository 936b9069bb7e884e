//! The wire form of aws-chunked bodies, written from the S3 documentation alone and shared by client and
//! lake: nothing here calls the product, so that agreeing with it means something.

use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use sha2::{Digest, Sha256};
use time::PrimitiveDateTime;
use time::macros::format_description;

use crate::lake::hex;

/// The checksums that S3 takes in a header or a trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Checksum {
    pub(crate) const ALL: [Self; 5] = [
        Self::Crc32,
        Self::Crc32c,
        Self::Crc64Nvme,
        Self::Sha1,
        Self::Sha256,
    ];

    pub(crate) fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    pub(crate) fn named(header: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|checksum| checksum.header() == header)
    }

    /// In base64, as headers carry it.
    pub(crate) fn of(self, bytes: &[u8]) -> String {
        let crc32 = |algorithm| {
            (crc_fast::checksum(algorithm, bytes) as u32)
                .to_be_bytes()
                .to_vec()
        };
        STANDARD.encode(match self {
            Self::Crc32 => crc32(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => crc32(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
                .to_be_bytes()
                .to_vec(),
            Self::Sha1 => sha1::Sha1::digest(bytes).to_vec(),
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
        })
    }
}

/// Signs chunk after chunk, each signature covering the one before.
#[derive(Clone)]
pub(crate) struct ChunkSigner {
    signing_key: Vec<u8>,
    date: String,
    scope: String,
    previous: String,
}

impl ChunkSigner {
    /// `date` is `x-amz-date`, `scope` is `day/region/s3/aws4_request`, `seed` the signature of the request
    /// head. `None` when they are not of this form.
    pub(crate) fn new(secret_key: &str, date: &str, scope: &str, seed: &str) -> Option<Self> {
        let (_day, region) = scope.strip_suffix("/s3/aws4_request")?.split_once('/')?;
        let format = format_description!("[year][month][day]T[hour][minute][second]Z");
        let time = PrimitiveDateTime::parse(date, format).ok()?.assume_utc();
        let signing_key = generate_signing_key(secret_key, time.into(), region, "s3");
        Some(Self {
            signing_key: signing_key.as_ref().to_vec(),
            date: date.to_owned(),
            scope: scope.to_owned(),
            previous: seed.to_owned(),
        })
    }

    /// The signature of any text with the same key.
    pub(crate) fn signature_of(&self, text: &str) -> String {
        calculate_signature(&self.signing_key, text.as_bytes())
    }

    fn sign_chunk(&mut self, chunk: &[u8]) -> String {
        let (nothing, chunk) = (hex(&Sha256::digest(b"")), hex(&Sha256::digest(chunk)));
        self.sign("AWS4-HMAC-SHA256-PAYLOAD", &format!("{nothing}\n{chunk}"))
    }

    fn sign_trailer(&mut self, trailer: &str) -> String {
        self.sign("AWS4-HMAC-SHA256-TRAILER", &hex(&Sha256::digest(trailer)))
    }

    fn sign(&mut self, kind: &str, what: &str) -> String {
        let Self {
            date,
            scope,
            previous,
            ..
        } = &self;
        let text = format!("{kind}\n{date}\n{scope}\n{previous}\n{what}");
        self.previous = self.signature_of(&text);
        self.previous.clone()
    }
}

/// The body in chunks of `size` bytes, signed if there is a signer, with a checksum trailer if one is asked
/// for.
pub(crate) fn encode(
    body: &[u8],
    size: usize,
    mut signer: Option<ChunkSigner>,
    trailer: Option<Checksum>,
) -> Vec<u8> {
    let mut wire = Vec::new();
    for chunk in body.chunks(size).chain([&[][..]]) {
        let signature = signer
            .as_mut()
            .map(|signer| format!(";chunk-signature={}", signer.sign_chunk(chunk)));
        wire.extend(format!("{:x}{}\r\n", chunk.len(), signature.unwrap_or_default()).into_bytes());
        wire.extend(chunk);
        if !chunk.is_empty() {
            wire.extend(b"\r\n");
        }
    }
    if let Some(checksum) = trailer {
        let line = format!("{}:{}", checksum.header(), checksum.of(body));
        wire.extend(format!("{line}\r\n").into_bytes());
        if let Some(signer) = &mut signer {
            let signature = signer.sign_trailer(&format!("{line}\n"));
            wire.extend(format!("x-amz-trailer-signature:{signature}\r\n").into_bytes());
        }
    }
    wire.extend(b"\r\n");
    wire
}

/// A decoded body, and its trailers by name.
pub(crate) type Decoded = (Vec<u8>, Vec<(String, String)>);

/// The body that the chunks carry, or the S3 error code of its defect.
pub(crate) fn decode(
    wire: &[u8],
    mut signer: Option<ChunkSigner>,
    trailer: bool,
) -> Result<Decoded, &'static str> {
    let mut body = Vec::new();
    let mut rest = wire;
    loop {
        let head = line(&mut rest)?;
        let (size, extension) = head.split_once(';').unwrap_or((head, ""));
        let size = usize::from_str_radix(size, 16).map_err(|_| "IncompleteBody")?;
        let chunk = rest.get(..size).ok_or("IncompleteBody")?;
        rest = &rest[size..];
        if let Some(signer) = &mut signer
            && extension != format!("chunk-signature={}", signer.sign_chunk(chunk))
        {
            return Err("SignatureDoesNotMatch");
        }
        if size == 0 {
            break;
        }
        body.extend(chunk);
        if !line(&mut rest)?.is_empty() {
            return Err("IncompleteBody");
        }
    }
    let trailers = if trailer {
        trailers(&mut rest, signer)?
    } else {
        Vec::new()
    };
    for (name, value) in &trailers {
        if Checksum::named(name).is_some_and(|checksum| checksum.of(&body) != *value) {
            return Err("BadDigest");
        }
    }
    if line(&mut rest)?.is_empty() && rest.is_empty() {
        Ok((body, trailers))
    } else {
        Err("IncompleteBody")
    }
}

fn trailers(rest: &mut &[u8], signer: Option<ChunkSigner>) -> Result<Vec<(String, String)>, &'static str> {
    let mut trailers = Vec::new();
    let mut canonical = String::new();
    while !rest.starts_with(b"\r\n") {
        let (name, value) = line(rest)?.split_once(':').ok_or("MalformedTrailerError")?;
        if name == "x-amz-trailer-signature" {
            let mut signer = signer.ok_or("MalformedTrailerError")?;
            return if value == signer.sign_trailer(&canonical) {
                Ok(trailers)
            } else {
                Err("SignatureDoesNotMatch")
            };
        }
        canonical.extend([name, ":", value.trim(), "\n"]);
        trailers.push((name.to_owned(), value.trim().to_owned()));
    }
    if signer.is_some() {
        Err("MalformedTrailerError")
    } else {
        Ok(trailers)
    }
}

fn line<'a>(rest: &mut &'a [u8]) -> Result<&'a str, &'static str> {
    let end = rest
        .windows(2)
        .position(|pair| pair == b"\r\n")
        .ok_or("IncompleteBody")?;
    let line = std::str::from_utf8(&rest[..end]).map_err(|_| "IncompleteBody")?;
    *rest = &rest[end + 2..];
    Ok(line)
}

mod tests {
    use super::{Checksum, ChunkSigner, decode, encode};

    fn signer() -> ChunkSigner {
        ChunkSigner::new(
            "secret",
            "20260101T000000Z",
            "20260101/us-east-1/s3/aws4_request",
            "seed",
        )
        .unwrap()
    }

    #[test]
    fn a_chunked_body_comes_back_in_every_form() {
        for length in [0, 1, 4, 5, 8, 9] {
            let body = &b"abcdefghi"[..length];
            for signer in [None, Some(signer())] {
                for trailer in Checksum::ALL.map(Some).into_iter().chain([None]) {
                    let wire = encode(body, 4, signer.clone(), trailer);
                    let (decoded, trailers) = decode(&wire, signer.clone(), trailer.is_some()).unwrap();
                    assert_eq!(
                        (decoded.as_slice(), trailers.len()),
                        (body, usize::from(trailer.is_some()))
                    );
                }
            }
        }
    }

    #[test]
    fn any_changed_byte_of_a_signed_body_is_noticed() {
        let wire = encode(b"abcdefghi", 4, Some(signer()), Some(Checksum::Crc32));
        for index in 0..wire.len() {
            let mut bent = wire.clone();
            bent[index] ^= 1;
            assert!(decode(&bent, Some(signer()), true).is_err(), "byte {index}");
            assert!(
                decode(&wire[..index], Some(signer()), true).is_err(),
                "cut at {index}"
            );
        }
    }

    #[test]
    fn a_wrong_checksum_trailer_is_a_bad_digest() {
        let wire = encode(b"abc", 4, None, Some(Checksum::Crc32c));
        let text = String::from_utf8(wire).unwrap().replace("abc", "abd");
        assert_eq!(decode(text.as_bytes(), None, true).unwrap_err(), "BadDigest");
    }

    #[test]
    fn checksums_are_those_of_the_standard_check_string() {
        for (checksum, expected) in [
            (Checksum::Crc32, "y/Q5Jg=="),
            (Checksum::Crc32c, "4waSgw=="),
            (Checksum::Crc64Nvme, "rosUhgp5mIg="),
        ] {
            assert_eq!(checksum.of(b"123456789"), expected, "{checksum:?}");
        }
    }
}
