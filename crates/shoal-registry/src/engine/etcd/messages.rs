//! The messages of etcd's JSON gateway: bytes are Base64, 64-bit numbers are strings, zeros are left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::engine::{Revision, Stored};

/// Returns a read of the keys from `key` on and below `end`, or of one key if `end` is empty. A limit of 0 is
/// none.
pub(super) fn range(key: &[u8], end: &[u8], limit: u64, count_only: bool) -> Value {
    json!({
        "key": base64(key),
        "range_end": base64(end),
        "limit": limit.to_string(),
        "count_only": count_only,
    })
}

/// Encodes bytes as the gateway does.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The answer to [`range`].
#[derive(Debug, Deserialize)]
pub(super) struct RangeResponse {
    #[serde(default)]
    pub(super) kvs: Vec<KeyValue>,
    #[serde(default)]
    pub(super) more: bool,
    #[serde(default, deserialize_with = "from_text")]
    pub(super) count: u64,
}

impl RangeResponse {
    /// Returns the value of the key that was read; `None` if there is no such key.
    pub(super) fn stored(self) -> Option<Stored> {
        self.kvs.into_iter().next().map(KeyValue::stored)
    }
}

/// The answer to one operation.
#[derive(Debug, Deserialize)]
pub(super) struct OperationResponse {
    pub(super) response_range: Option<RangeResponse>,
}

/// A key with its value.
#[derive(Debug, Deserialize)]
pub(super) struct KeyValue {
    #[serde(deserialize_with = "from_base64")]
    pub(super) key: Bytes,
    #[serde(default, deserialize_with = "from_base64")]
    pub(super) value: Bytes,
    #[serde(deserialize_with = "from_text")]
    pub(super) mod_revision: u64,
}

impl KeyValue {
    pub(super) fn stored(self) -> Stored {
        Stored {
            value: self.value,
            revision: Revision(self.mod_revision),
        }
    }
}

/// The header of all answers.
#[derive(Debug, Deserialize)]
pub(super) struct Header {
    #[serde(deserialize_with = "from_text")]
    pub(super) revision: u64,
}

/// The answer to a transaction.
#[derive(Debug, Deserialize)]
pub(super) struct TxnResponse {
    pub(super) header: Header,
    #[serde(default)]
    pub(super) succeeded: bool,
    #[serde(default)]
    pub(super) responses: Vec<OperationResponse>,
}

/// The answer to a grant, and to a renewal within [`Streamed`]. A lease that has ended has no time to live.
#[derive(Debug, Deserialize)]
pub(super) struct LeaseResponse {
    #[serde(rename = "ID", default, deserialize_with = "from_text")]
    pub(super) id: u64,
    #[serde(rename = "TTL", default, deserialize_with = "from_text")]
    pub(super) seconds: u64,
}

/// The answer to `/v3/maintenance/status`. Sizes are in bytes.
#[derive(Debug, Deserialize)]
pub(super) struct StatusResponse {
    /// The size of the file.
    #[serde(rename = "dbSize", default, deserialize_with = "from_text")]
    pub(super) file: u64,
    /// The bytes of the file that are in use.
    #[serde(rename = "dbSizeInUse", default, deserialize_with = "from_text")]
    pub(super) used: u64,
    /// Since etcd 3.6.
    #[serde(rename = "dbSizeQuota", default, deserialize_with = "from_text")]
    pub(super) quota: u64,
}

/// One answer of a stream.
#[derive(Debug, Deserialize)]
pub(super) struct Streamed<A> {
    pub(super) result: A,
}

/// The answer to an authentication. It has no `Debug`, because of the token.
#[derive(Deserialize)]
pub(super) struct AuthenticateResponse {
    pub(super) token: String,
}

/// Returns the message of an error, which is at the top, or within `error` in a stream.
pub(super) fn error_message(body: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let message = answer.pointer("/error/message").or(answer.get("message"))?;
    message.as_str().map(ToOwned::to_owned)
}

fn from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(D::Error::custom)
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text).map(Bytes::from).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_etcd_leaves_out_is_zero() {
        let answer = r#"{"header":{"cluster_id":"1","revision":"12","raft_term":"2"}}"#;
        let range: RangeResponse = serde_json::from_str(answer).unwrap();
        assert_eq!((range.kvs.len(), range.more, range.count), (0, false, 0));
        let txn: TxnResponse = serde_json::from_str(answer).unwrap();
        assert_eq!((txn.header.revision, txn.succeeded), (12, false));
        let ended: Streamed<LeaseResponse> = serde_json::from_str(r#"{"result":{"ID":"5"}}"#).unwrap();
        assert_eq!((ended.result.id, ended.result.seconds), (5, 0));
    }

    #[test]
    fn a_status_says_how_full_a_member_is() {
        let text = r#"{"header":{},"version":"3.4.23","dbSize":"20480","leader":"1","dbSizeInUse":"16384"}"#;
        let status: StatusResponse = serde_json::from_str(text).unwrap();
        assert_eq!((status.file, status.used, status.quota), (20480, 16384, 0));
    }

    #[test]
    fn a_refusal_is_found_in_a_stream_too() {
        for answer in [
            r#"{"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14}"#,
            r#"{"code":14,"message":"etcdserver: no leader","details":[]}"#,
            r#"{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}"#,
        ] {
            let message = error_message(answer.as_bytes());
            assert_eq!(message.as_deref(), Some("etcdserver: no leader"));
        }
    }
}
