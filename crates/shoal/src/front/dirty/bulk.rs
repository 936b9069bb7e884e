//! The removal of many objects at once: of those that the lake has, and of those that it does not know yet.

use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use sha2::{Digest, Sha256};

use super::listing::{answered_with, read};
use super::unknown;
use crate::dirty::{Unknown, unescape};
use crate::endpoint::{EndpointRequest, RequestBody, end_to_end, without_presigned_credentials};
use crate::front::body::ResponseBody;
use crate::front::error::S3Error;
use crate::front::lake_errors;
use crate::front::serve::{Admitted, Front, Opened};
use crate::object::ObjectName;
use crate::sigv4::PayloadHash;

/// What S3 takes.
const DELETION_BYTES_MAX: usize = 8 << 20;

/// A dirty object that is kept from being flushed while the lake is asked to remove it.
struct Held {
    name: ObjectName,
    sequence: u64,
}

impl Front {
    /// Removes many objects, each from wherever it is. The lake says which of them the caller may remove.
    pub(in crate::front) async fn delete_many_dirty(
        &self,
        admitted: Box<Admitted>,
        bucket: &str,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let (opened, body) = admitted.open()?;
        let Opened {
            parts,
            classified,
            caller,
        } = opened;
        let account = self.lake.account_for(&caller);
        let asked = body
            .collect_at_most(DELETION_BYTES_MAX, "Too many keys in one request.")
            .await?;
        let held = self.hold_all(bucket, &asked).await?;
        let request = EndpointRequest {
            operation: classified.operation.as_str(),
            method: parts.method.clone(),
            target: without_presigned_credentials(&classified.target),
            headers: of_decoded(&parts.headers),
            payload: PayloadHash::Sha256(Sha256::digest(&asked).into()),
            body: RequestBody::Stream {
                length: Some(asked.len() as u64),
                body: Full::new(asked).map_err(|never| match never {}).boxed_unsync(),
            },
            expects_continue: false,
            account,
        };
        self.catalog.forget_bucket(bucket);
        let answered = self.lake.send(request).await;
        self.catalog.forget_bucket(bucket);
        let answer = match answered {
            Ok(answer) => answer,
            Err(error) => {
                self.free_all(held).await;
                return Err(lake_errors::unanswered(&error));
            }
        };
        let (head, body) = answer.into_parts();
        let body = read(body).await?;
        if head.status == StatusCode::OK {
            self.remove_all(held, &keys_in(&body, "Error")).await?;
        } else {
            self.free_all(held).await;
        }
        Ok(answered_with(&head, body))
    }

    /// Keeps what is dirty among the keys of a deletion from being flushed.
    async fn hold_all(&self, bucket: &str, deletion: &[u8]) -> Result<Vec<Held>, S3Error> {
        let mut held = Vec::new();
        for key in keys_in(deletion, "Object") {
            let name = ObjectName {
                bucket: bucket.into(),
                key: key.into_bytes().into(),
                version: None,
            };
            if !self.may_be_dirty(&name) {
                continue;
            }
            match self.dirty.directory.hold(&name).await {
                Ok(Some(sequence)) => held.push(Held { name, sequence }),
                Ok(None) => {}
                Err(error) => {
                    self.free_all(held).await;
                    return Err(unknown(error));
                }
            }
        }
        Ok(held)
    }

    async fn free_all(&self, held: Vec<Held>) {
        for Held { name, .. } in held {
            self.dirty.directory.free(&name).await;
        }
    }

    /// The lake has removed all but the `refused`.
    async fn remove_all(&self, held: Vec<Held>, refused: &[String]) -> Result<(), S3Error> {
        let mut all_gone = true;
        for Held { name, sequence } in held {
            if refused.iter().any(|key| key.as_bytes() == &*name.key) {
                self.dirty.directory.free(&name).await;
            } else {
                all_gone &= self.dirty.directory.remove(&name, sequence).await == Ok(true);
            }
        }
        // Asked again, it removes what is left.
        if all_gone { Ok(()) } else { Err(unknown(Unknown)) }
    }
}

/// The keys in all elements of a name that concern the current version.
fn keys_in(xml: &[u8], element: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(xml);
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let elements = text.split(&*open).skip(1);
    let elements = elements.filter_map(|rest| rest.split_once(&*close).map(|(element, _)| element));
    let between = |element: &str, name: &str| {
        let (_, rest) = element.split_once(&format!("<{name}>"))?;
        let (text, _) = rest.split_once(&format!("</{name}>"))?;
        Some(unescape(text))
    };
    elements
        .filter(|element| between(element, "VersionId").is_none_or(|version| version.is_empty()))
        .filter_map(|element| between(element, "Key"))
        .collect()
}

/// The headers for a body that comes without the framing it was sent in.
fn of_decoded(sent: &HeaderMap) -> HeaderMap {
    let mut headers = end_to_end(sent);
    for name in [
        "content-encoding",
        "x-amz-decoded-content-length",
        "x-amz-trailer",
    ] {
        headers.remove(name);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::keys_in;

    #[test]
    fn the_keys_of_a_deletion_are_found_and_versions_are_the_lakes() {
        let xml = b"<Delete><Object><Key>a&amp;b</Key></Object><Object><Key>c</Key><VersionId>1</VersionId></Object>\
            <Object><VersionId></VersionId><Key>d</Key></Object><Quiet>true</Quiet></Delete>";
        assert_eq!(keys_in(xml, "Object"), ["a&b", "d"]);
        assert!(keys_in(xml, "Error").is_empty());
        assert!(keys_in(b"<Object><Key>open", "Object").is_empty());
    }
}
