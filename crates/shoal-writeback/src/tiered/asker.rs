//! Asks the lake for permission before the node acts on a dirty object for a caller, or records anything in a
//! registry for one.
//!
//! The node cannot try the operation itself: the lake does not have the object, or would carry the operation
//! out. Instead it sends a harmless request that needs the same permission and leaves nothing behind.

use http::{HeaderMap, HeaderName, Method, Response};
use shoal_cache::exchange::Admitted;
use shoal_cache::lake::errors;
use shoal_cache::lake::{LakeRefusal, is_known};
use shoal_net::endpoint::s3::S3Client;
use shoal_net::endpoint::{EndpointRequest, LakeBody};
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::hop_by_hop::end_to_end;
use shoal_s3::identity::Caller;
use shoal_s3::object::ObjectName;
use shoal_s3::operation::{Classified, Operation};

use super::TieredLakeParts;
use crate::dirty::errors::access_denied;
use crate::dirty::{Action, Dirty, Permission, beside, of_permission};
use crate::headers::those;

/// The caller on whose behalf the node asks the lake, and the caller's request.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    parts: &'a TieredLakeParts,
    pub(super) headers: &'a HeaderMap,
    pub(super) classified: &'a Classified,
    pub(super) caller: &'a Caller,
}

impl TieredLakeParts {
    /// Returns the sender of a request.
    pub(super) fn asker<'a>(&'a self, admitted: &'a Admitted) -> Asker<'a> {
        Asker {
            parts: self,
            headers: &admitted.parts.headers,
            classified: &admitted.classified,
            caller: &admitted.verified.caller,
        }
    }
}

impl Asker<'_> {
    /// Asks if the lake would permit an action on a name that may be dirty. Called before anything is
    /// recorded in a registry for a caller that has nothing dirty under that name. Returns the error of a
    /// denial.
    ///
    /// The question resembles the action but is not the action. A policy may permit one exact name, the copy
    /// of one source, or a write with a certain header, so only the lake's answer to the request itself
    /// refuses it.
    ///
    /// # Errors
    ///
    /// The lake does not answer.
    pub(super) async fn denial(self, action: Action, name: &ObjectName) -> Result<Option<S3Error>, S3Error> {
        let headers = match action {
            Action::Back | Action::Write => of_write(self.headers, self.classified.operation),
            Action::Remove | Action::RemoveBack => of_permission(self.headers),
            Action::Describe(..) => without_body(self.headers),
        };
        let clearances = &self.parts.dirty.clearances;
        Ok(match clearances.may(action, name, headers, self.caller).await? {
            Permission::Granted | Permission::OtherEtag | Permission::Undecided => None,
            Permission::Denied(error) => Some(error),
        })
    }

    /// Returns true if the lake would accept an object of this name from the caller.
    async fn may_write(self, name: &ObjectName) -> bool {
        let headers = of_permission(self.headers);
        let clearances = &self.parts.dirty.clearances;
        let permission = clearances.may(Action::Write, name, headers, self.caller).await;
        matches!(permission, Ok(Permission::Granted | Permission::OtherEtag))
    }

    /// Returns true if the caller may cause a dirty object or a tombstone to be flushed.
    pub(super) async fn may_flush(self, dirty: &Dirty) -> Result<bool, S3Error> {
        Ok(self.may_judge(dirty).await? || self.may_write(dirty.name()).await)
    }

    /// Checks that the caller may cause a packed object to be written under its own name: it may read the
    /// object, or write it.
    pub(super) async fn permit_unpacking(self, name: &ObjectName) -> Result<(), S3Error> {
        match self.parts.within.version(self.caller, name).await {
            Ok(_) | Err(LakeRefusal::Uncacheable(_)) => Ok(()),
            Err(LakeRefusal::Refused { .. }) if self.may_write(name).await => Ok(()),
            Err(LakeRefusal::Refused { .. }) => Err(access_denied()),
            Err(LakeRefusal::Trouble(trouble)) => Err(S3Error::new(
                ErrorCode::ServiceUnavailable,
                format!("The object is in a pack that cannot be read now: {trouble}"),
            )),
        }
    }

    /// Returns true if the caller may learn if a dirty object meets conditions: it may read the object or has
    /// removed it, or the lake lets it know about the object.
    pub(super) async fn may_judge(self, dirty: &Dirty) -> Result<bool, S3Error> {
        if self.parts.dirty.entries.may_read(self.caller, dirty) {
            return Ok(true);
        }
        let clearances = &self.parts.dirty.clearances;
        let known = clearances.may_know(self.caller, self.headers, dirty.name()).await;
        known.map_err(|error| errors::unanswered(&error))
    }

    /// Returns true if the lake shows the caller the subject of a request about a whole bucket, such as its
    /// policy or its versions.
    pub(super) async fn may_see(self) -> Result<bool, S3Error> {
        let target = self.classified.target()?;
        let method = if target.query().is_some() {
            Method::GET
        } else {
            Method::HEAD
        };
        let request = self.client().request("other_read", method, target);
        let answer = self
            .send(request.with_headers(of_permission(self.headers)))
            .await?;
        Ok(is_known(answer.status()))
    }

    /// Returns the client that sends requests to the lake on the caller's behalf.
    pub(super) fn client(self) -> S3Client {
        S3Client::of_caller(&self.parts.endpoint, self.caller)
    }

    /// Sends a request of the caller's [client](Self::client).
    pub(super) async fn send(self, request: EndpointRequest) -> Result<Response<LakeBody>, S3Error> {
        let answered = self.parts.endpoint.send(request).await;
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
    those(&without_body(sent), |name| !is_of_this_write(name))
}

/// Returns the headers of a request without those that describe its body.
pub(super) fn without_body(sent: &HeaderMap) -> HeaderMap {
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
    those(&end_to_end(sent), |name| !is_of_body(name))
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
