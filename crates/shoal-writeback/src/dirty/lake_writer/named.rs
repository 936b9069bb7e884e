//! Checks the lake's ETag against the bytes that were sent.
//!
//! Most lakes use the MD5 as ETag, so a different one that has the form of an MD5 means different bytes. Some
//! lakes and gateways use hexadecimal ETags of their own, which say nothing about the bytes; those have been
//! verified by `Content-MD5` and the digests in the entry.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use md5::{Digest, Md5};
use shoal_net::endpoint::RequestBody;
use shoal_net::endpoint::s3::{CallError, Multipart, SendOptions};
use shoal_s3::etag;

use super::Attempt;
use super::error::LakeWriteError;

/// The body of the part that reveals how a lake computes ETags.
const KNOWN: &[u8] = b"shoal";

/// The ETag that the lake returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// It is the MD5 of the acknowledged bytes.
    ByMd5,
    /// It differs, and does not have the form of an MD5.
    OtherName,
    /// It differs, and may be another MD5.
    PerhapsOtherMd5,
}

impl Named {
    /// Classifies the ETag in a response about bytes whose MD5 is the ETag `acknowledged`.
    fn of(answer: &HeaderMap, acknowledged: &str) -> Self {
        let named = answer.get(header::ETAG).map_or(&b""[..], HeaderValue::as_bytes);
        if named == acknowledged.as_bytes() {
            Self::ByMd5
        } else if is_md5(named) && !named.eq_ignore_ascii_case(acknowledged.as_bytes()) && !is_of_kms(answer)
        {
            Self::PerhapsOtherMd5
        } else {
            Self::OtherName
        }
    }
}

impl Attempt<'_> {
    /// Returns true if the lake's ETag is the MD5 `acknowledged`. If it may be another MD5, the node uploads
    /// a known part under the name of the object, in an upload that is never completed, to see if the lake's
    /// ETags are MD5s.
    ///
    /// # Errors
    ///
    /// The lake's ETag denotes other bytes, or the test fails.
    pub(super) async fn is_by_md5(
        &self,
        answer: &HeaderMap,
        acknowledged: &str,
    ) -> Result<bool, LakeWriteError> {
        match Named::of(answer, acknowledged) {
            Named::PerhapsOtherMd5 if self.lake_names_by_md5().await? => {
                Err(LakeWriteError::contradicted(answer.get(header::ETAG)))
            }
            named => Ok(named == Named::ByMd5),
        }
    }

    async fn lake_names_by_md5(&self) -> Result<bool, CallError> {
        let target = &self.write.manifest.target;
        let upload = Multipart::create(self.client.clone(), target, HeaderMap::new()).await?;
        let body = RequestBody::Whole(Bytes::from_static(KNOWN));
        let put = upload
            .put(1, HeaderMap::new(), body, SendOptions::default())
            .await;
        upload.abort();
        Ok(Named::of(&put?, &etag::of_md5(&Md5::digest(KNOWN))) == Named::ByMd5)
    }
}

impl LakeWriteError {
    /// Returns the error for a lake whose ETag denotes other bytes.
    pub(super) fn contradicted(named: Option<&HeaderValue>) -> Self {
        let named = named.map_or(&b""[..], HeaderValue::as_bytes);
        Self::Contradicted(format!("with the ETag {}", named.escape_ascii()))
    }
}

/// Returns true if an ETag is 32 hexadecimal digits in quotes.
fn is_md5(named: &[u8]) -> bool {
    let digits = named
        .strip_prefix(b"\"")
        .and_then(|named| named.strip_suffix(b"\""));
    digits.is_some_and(|digits| digits.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Returns true if the lake reports an encryption under which ETags are not MD5s.
fn is_of_kms(answer: &HeaderMap) -> bool {
    let by_key = answer.get("x-amz-server-side-encryption");
    by_key.is_some_and(|algorithm| algorithm != HeaderValue::from_static("AES256"))
        || answer.contains_key("x-amz-server-side-encryption-customer-algorithm")
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::Named;

    #[test]
    fn only_another_md5_is_doubtful() {
        const MD5: &str = "\"5d41402abc4b2a76b9719d911017c592\"";
        const OTHER: (&str, &str) = ("etag", "\"d41d8cd98f00b204e9800998ecf8427e\"");
        let of = |headers: &[(&'static str, &'static str)]| {
            let headers = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            Named::of(&headers.collect::<HeaderMap>(), MD5)
        };
        assert_eq!(of(&[("etag", MD5)]), Named::ByMd5);
        assert_eq!(of(&[OTHER]), Named::PerhapsOtherMd5);
        assert_eq!(
            of(&[OTHER, ("x-amz-server-side-encryption", "AES256")]),
            Named::PerhapsOtherMd5
        );
        for other in [
            &[OTHER, ("x-amz-server-side-encryption", "aws:kms")][..],
            &[
                OTHER,
                ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
            ],
            &[("etag", "\"5D41402ABC4B2A76B9719D911017C592\"")],
            &[("etag", "\"d41d8cd98f00b204e9800998ecf8427e-1\"")],
            &[("etag", "\"0x8DC\"")],
            &[],
        ] {
            assert_eq!(of(other), Named::OtherName, "{other:?}");
        }
    }
}
