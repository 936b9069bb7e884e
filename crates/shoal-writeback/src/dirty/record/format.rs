//! The encoding of records, which a registry keeps without reading them.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use shoal_base::encoding::Malformed;

/// The first byte of each record. Records of earlier builds begin with a length or a size; one that happens
/// to begin with this byte does not decode.
const FORMAT: u8 = 0xd2;

/// The reason why a record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// A build with another format wrote it.
    #[error("another build wrote it, in format {0} and not {FORMAT}; flush or complete it with that build")]
    OtherFormat(u8),
    /// Its bytes are no record, or contradict each other.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Encodes a record.
pub(crate) fn encoded(record: &impl Serialize) -> Bytes {
    let bytes = postcard::to_extend(record, vec![FORMAT]);
    bytes.expect("memory takes any record").into()
}

/// Inverse of [`encoded`].
pub(crate) fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    match bytes.split_first() {
        Some((&FORMAT, rest)) => Ok(all_of(rest)?),
        other => Err(Unreadable::OtherFormat(other.map_or(0, |(format, _)| *format))),
    }
}

/// Decodes bytes without a format, all of which must belong to the value.
pub(crate) fn all_of<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(Malformed),
    }
}

/// Headers, as pairs of name and value in their order.
pub(crate) mod headers {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(headers: &HeaderMap, serializer: S) -> Result<S::Ok, S::Error> {
        let pairs = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_bytes()));
        pairs.collect::<Vec<_>>().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HeaderMap, D::Error> {
        let mut headers = HeaderMap::new();
        for (name, value) in Vec::<(String, Vec<u8>)>::deserialize(deserializer)? {
            let name = HeaderName::try_from(name).map_err(D::Error::custom)?;
            let value = HeaderValue::try_from(value).map_err(D::Error::custom)?;
            headers.try_append(name, value).map_err(D::Error::custom)?;
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use serde::{Deserialize, Serialize};

    use super::{Malformed, Unreadable, decoded, encoded};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Headers(#[serde(with = "super::headers")] HeaderMap);

    #[test]
    fn headers_keep_their_order_and_all_bytes_of_their_values() {
        let mut headers = HeaderMap::new();
        for value in [&b"caf\xe9"[..], b"second", b""] {
            headers.append("x-amz-meta-raw", HeaderValue::from_bytes(value).unwrap());
        }
        let headers = Headers(headers);
        assert_eq!(decoded(&encoded(&headers)), Ok(headers));
    }

    #[test]
    fn a_record_of_another_format_and_one_with_bytes_left_over_are_refused() {
        let record = encoded(&7_u64);
        assert_eq!(decoded(&record), Ok(7_u64));
        let longer = [&record[..], b"x"].concat();
        assert_eq!(decoded::<u64>(&longer), Err(Unreadable::Malformed(Malformed)));
        for (bytes, format) in [(&b""[..], 0), (&[20, 0, 0, 0], 20), (&record[1..], 7)] {
            assert_eq!(decoded::<u64>(bytes), Err(Unreadable::OtherFormat(format)));
        }
    }
}
