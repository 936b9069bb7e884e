//! Asks the lake whether an identity may write an object, before a write is acknowledged that the lake has
//! not seen; and whether the bucket keeps versions, which objects that die young would never become.
//!
//! The node creates a multipart upload in the writer's name and aborts it at once. This needs the same
//! permission as the write, and leaves nothing behind. The flush of a plain write does not reuse the upload,
//! because the object would get the ETag of a multipart upload.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Collected, Limited};
use parking_lot::Mutex;
use shoal_s3::identity::NODE;
use shoal_s3::sigv4::PayloadHash;
use shoal_s3::target;
use shoal_s3::xml::Document;

use super::checksums::creation_headers;
use super::lake_upload::LakeUpload;
use crate::clock;
use crate::endpoint::{Endpoint, EndpointRequest, LakeAccount, RequestBody};

/// The lake's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// The lake would take the object.
    Granted,
    /// The lake would take the object, under an ETag that the node cannot know beforehand.
    OtherEtag,
    /// The lake would not take the object, or does not answer. The write itself will get the reason.
    NotGranted,
}

/// Asks the lake whether it would take an object written with these headers to `target`.
pub(super) async fn ask(
    lake: &Arc<Endpoint>,
    target: &PathAndQuery,
    headers: &HeaderMap,
    account: LakeAccount,
) -> Permission {
    let created = LakeUpload::create(lake, target, creation_headers(headers), account).await;
    let Ok((upload, head)) = created else {
        return Permission::NotGranted;
    };
    // If the abort fails, an empty upload stays behind.
    upload.abort();
    let encryption = head.headers.get("x-amz-server-side-encryption");
    if encryption.is_none_or(|algorithm| algorithm == HeaderValue::from_static("AES256")) {
        Permission::Granted
    } else {
        Permission::OtherEtag
    }
}

/// The largest answer about a bucket that is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Whether a bucket keeps versions, or did. Objects in such a bucket may also be locked. A lake that does not
/// tell the caller keeps none, as far as the node knows.
pub(super) async fn is_versioned(lake: &Arc<Endpoint>, bucket: &str, account: LakeAccount) -> bool {
    let path = format!("{}?versioning", target::path(Some(bucket), None));
    let request = EndpointRequest {
        operation: "other_read",
        method: Method::GET,
        target: PathAndQuery::try_from(path).expect("what is percent-encoded is a path"),
        headers: HeaderMap::new(),
        body: RequestBody::Empty,
        expects_continue: false,
        payload: PayloadHash::empty(),
        account,
        payer: NODE,
    };
    let Ok(answer) = lake.send(request).await else {
        return false;
    };
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let Ok(body) = body.map(Collected::to_bytes) else {
        return false;
    };
    head.status == StatusCode::OK && says_versioned(&body)
}

fn says_versioned(document: &[u8]) -> bool {
    let status = || {
        let document = Document::of(document).ok()?;
        let (tag, mut reader) = document.answer().ok()?;
        reader.element(&tag).ok()?.text_of("Status")
    };
    status().is_some_and(|status| !status.trim().is_empty())
}

/// Answers of the lake, remembered for a while.
pub(super) struct Memory<K, V> {
    lasts: Duration,
    answers: Mutex<HashMap<K, (V, Instant)>>,
}

/// The number of answers that are remembered. Beyond it, all are forgotten.
const ANSWERS_MAX: usize = 10_000;

impl<K: Eq + Hash, V: Copy> Memory<K, V> {
    /// Remembers each answer for the time `lasts`.
    pub(super) fn new(lasts: Duration) -> Self {
        Self {
            lasts,
            answers: Mutex::default(),
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        let answers = self.answers.lock();
        let (answer, since) = answers.get(key)?;
        let age = clock::instant().saturating_duration_since(*since);
        (age < self.lasts).then_some(*answer)
    }

    pub(super) fn learn(&self, key: K, answer: V) {
        if self.lasts.is_zero() {
            return;
        }
        let mut answers = self.answers.lock();
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers.insert(key, (answer, clock::instant()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ANSWERS_MAX, Memory, says_versioned};

    #[test]
    fn an_answer_is_remembered_for_its_time_and_no_more_than_so_many_are() {
        let memory = Memory::new(Duration::from_hours(1));
        memory.learn(0, true);
        assert_eq!((memory.get(&0), memory.get(&1)), (Some(true), None));
        for key in 1..=ANSWERS_MAX {
            memory.learn(key, false);
        }
        assert_eq!((memory.get(&0), memory.get(&ANSWERS_MAX)), (None, Some(false)));
        let forgetful = Memory::new(Duration::ZERO);
        forgetful.learn(0, true);
        assert_eq!(forgetful.get(&0), None);
    }

    #[test]
    fn a_bucket_that_keeps_or_kept_versions_says_so() {
        let says = |inside: &str| {
            let document = format!("<VersioningConfiguration xmlns=\"x\">{inside}</VersioningConfiguration>");
            says_versioned(document.as_bytes())
        };
        assert!(says("<Status>Enabled</Status>") && says("<Status>Suspended</Status>"));
        assert!(!says("") && !says("<Status/>") && !says_versioned(b"no document"));
    }
}
