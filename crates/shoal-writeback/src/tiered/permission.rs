//! Asks the lake for permission before the node acts on a dirty object for a caller, or records anything in a
//! registry for one.
//!
//! The node cannot try the operation itself: the lake does not have the object, or would carry the operation
//! out. Instead it sends a harmless request that needs the same permission and leaves nothing behind.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, Response};
use shoal_cache::exchange::{Admitted, Opened};
use shoal_cache::lake::errors;
use shoal_cache::lake::is_known;
use shoal_net::endpoint::{Endpoint, EndpointRequest, LakeBody, RequestBody};
use shoal_s3::error::S3Error;
use shoal_s3::hop_by_hop::end_to_end;
use shoal_s3::identity::Caller;
use shoal_s3::object::ObjectName;
use shoal_s3::operation::{Classified, Operation};
use shoal_s3::sigv4::PayloadHash;

use super::is_writer;
use crate::dirty::{Action, DirtyObjects, Manifest, Permission, beside, no_permission, of_permission};

/// The caller on whose behalf the node asks the lake, and the caller's request.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) classified: &'a Classified,
    pub(super) caller: &'a Caller,
}

impl<'a> From<&'a Admitted> for Asker<'a> {
    fn from(admitted: &'a Admitted) -> Self {
        Self {
            headers: &admitted.parts.headers,
            classified: &admitted.classified,
            caller: &admitted.verified.caller,
        }
    }
}

impl<'a> From<&'a Opened> for Asker<'a> {
    fn from(opened: &'a Opened) -> Self {
        Self {
            headers: &opened.parts.headers,
            classified: &opened.classified,
            caller: &opened.caller,
        }
    }
}

/// Asks the lake for callers' permissions.
pub(super) struct Permissions {
    lake: Arc<Endpoint>,
    dirty: Arc<DirtyObjects>,
}

impl Permissions {
    /// Sends questions about reads to `lake`, and those about changes through `dirty`.
    pub(super) fn new(lake: Arc<Endpoint>, dirty: Arc<DirtyObjects>) -> Self {
        Self { lake, dirty }
    }

    /// Returns true if the lake lets the caller know about an object.
    async fn may_know(&self, asker: Asker<'_>, name: &ObjectName) -> Result<bool, S3Error> {
        let known = self.dirty.may_know(asker.caller, asker.headers, name).await;
        known.map_err(|error| errors::unanswered(&error))
    }

    /// Asks if the lake would permit an action on a name that may be dirty. Called before anything is
    /// recorded in a registry for a caller that has nothing dirty under that name. Returns the error of a
    /// denial.
    ///
    /// The question resembles the action but is not the action. A policy may permit one exact name, the copy
    /// of one source, or a write with a certain header, so only the lake's answer to the request itself
    /// refuses it ([`Flusher::prepare_denied`](super::flush::Flusher::prepare_denied)).
    ///
    /// # Errors
    ///
    /// The lake does not answer.
    pub(super) async fn denial(
        &self,
        asker: Asker<'_>,
        (action, name): (Action, &ObjectName),
    ) -> Result<Option<S3Error>, S3Error> {
        let headers = match action {
            Action::Back | Action::Write => of_write(asker.headers, asker.classified.operation),
            Action::Remove => of_permission(asker.headers),
            Action::Describe(..) => without_body(asker.headers),
        };
        match self.dirty.may((action, name), headers, asker.caller).await {
            Ok(Permission::Granted | Permission::OtherEtag | Permission::Undecided) => Ok(None),
            Ok(Permission::Denied(error)) => Ok(Some(error)),
            Err(error) => Err(no_permission(&error)),
        }
    }

    /// Returns true if the lake would accept an object of this name from the caller.
    async fn may_write(&self, asker: Asker<'_>, name: &ObjectName) -> bool {
        let headers = of_permission(asker.headers);
        let permission = self.dirty.may((Action::Write, name), headers, asker.caller).await;
        matches!(permission, Ok(Permission::Granted | Permission::OtherEtag))
    }

    /// Returns true if a caller may cause a dirty object to be flushed.
    pub(super) async fn may_flush(&self, asker: Asker<'_>, manifest: &Manifest) -> Result<bool, S3Error> {
        let name = &manifest.name;
        Ok(self.may_judge(asker, manifest).await? || self.may_write(asker, name).await)
    }

    /// Returns true if a caller may learn whether a dirty object meets conditions.
    pub(super) async fn may_judge(&self, asker: Asker<'_>, manifest: &Manifest) -> Result<bool, S3Error> {
        Ok(is_writer(asker.caller, &manifest.writer) || self.may_know(asker, &manifest.name).await?)
    }

    /// Returns true if the lake shows the caller the subject of a request about a whole bucket, such as its
    /// policy or its versions.
    pub(super) async fn may_see(&self, asker: Asker<'_>) -> Result<bool, S3Error> {
        let target = asker.classified.target()?;
        let asked = match target.query() {
            Some(_) => ("other_read", Method::GET),
            None => ("other_read", Method::HEAD),
        };
        let headers = of_permission(asker.headers);
        let answer = self.ask_lake(asker, asked, target, headers).await?;
        Ok(is_known(answer.status()))
    }

    /// Sends a request without a body to the lake on the caller's behalf.
    pub(super) async fn ask_lake(
        &self,
        asker: Asker<'_>,
        (operation, method): (&'static str, Method),
        target: PathAndQuery,
        headers: HeaderMap,
    ) -> Result<Response<LakeBody>, S3Error> {
        let request = EndpointRequest {
            operation,
            method,
            target,
            headers,
            body: RequestBody::Empty,
            expects_continue: false,
            payload: PayloadHash::empty(),
            account: self.lake.account_for(asker.caller),
            payer: asker.caller.payer(),
        };
        let answered = self.lake.send(request).await;
        answered.map_err(|error| errors::unanswered(&error))
    }
}

/// Returns the permission that a request needs on the object that it names.
///
/// # Errors
///
/// The target of the question would be too long.
pub(super) fn action_of(admitted: &Admitted) -> Result<Action, S3Error> {
    let classified = &admitted.classified;
    Ok(match classified.operation {
        Operation::DeleteObject => Action::Remove,
        Operation::OtherWrite => {
            let mut other = classified.clone();
            if let Some(name) = &mut other.object {
                name.key = beside(&name.key).into();
            }
            Action::Describe(admitted.parts.method.clone(), other.target()?)
        }
        _ => Action::Write,
    })
}

/// Returns the headers of a write that also apply to the creation of an upload. A part is encrypted as its
/// upload, whatever its own headers ask for.
fn of_write(sent: &HeaderMap, operation: Operation) -> HeaderMap {
    let is_part = operation == Operation::UploadPart;
    let is_of_this_write = |name: &HeaderName| {
        let name = name.as_str();
        if is_part && name.starts_with("x-amz-server-side-encryption") {
            return true;
        }
        ["if-", "x-amz-copy-source"]
            .iter()
            .any(|begin| name.starts_with(begin))
            || name.ends_with("-directive")
            || ["x-amz-mp-object-size", "x-amz-write-offset-bytes"].contains(&name)
    };
    let kept = without_body(sent);
    let kept = kept.iter().filter(|(name, _)| !is_of_this_write(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns the headers of a request without those that describe its body.
pub(super) fn without_body(sent: &HeaderMap) -> HeaderMap {
    let mut headers = end_to_end(sent);
    let is_of_body = |name: &HeaderName| {
        let name = name.as_str();
        name.starts_with("content-")
            || name.starts_with("x-amz-checksum-")
            || [
                "x-amz-decoded-content-length",
                "x-amz-trailer",
                "x-amz-sdk-checksum-algorithm",
            ]
            .contains(&name)
    };
    let of_body: Vec<_> = headers.keys().filter(|name| is_of_body(name)).cloned().collect();
    for name in of_body {
        headers.remove(name);
    }
    headers
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use shoal_s3::operation::Operation;

    use super::{of_write, without_body};

    #[test]
    fn a_question_has_the_headers_of_its_write_and_nothing_of_a_body_or_a_condition() {
        let mut sent = HeaderMap::new();
        for name in [
            "referer",
            "x-amz-acl",
            "content-md5",
            "x-amz-checksum-crc32",
            "if-match",
            "x-amz-copy-source",
            "x-amz-metadata-directive",
        ] {
            sent.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        sent.insert(
            "x-amz-server-side-encryption",
            HeaderValue::from_static("aws:kms"),
        );
        let asked = of_write(&sent, Operation::UploadPart);
        assert!(asked.len() == 2 && asked.contains_key("referer") && asked.contains_key("x-amz-acl"));
        let asked = of_write(&sent, Operation::PutObject);
        assert!(asked.len() == 3 && asked.contains_key("x-amz-server-side-encryption"));
        let bare = without_body(&sent);
        assert!(bare.len() == 6 && bare.contains_key("if-match"));
    }
}
