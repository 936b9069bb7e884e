//! Classifies a request: a pure function from its head to an `Operation` and the object that it names.
//!
//! Path and query are percent-decoded here, once. Nothing downstream decodes again, and no part of the raw
//! target goes to the lake: the node builds the lake's target from the parsed request, so the lake cannot
//! interpret the request differently.

mod addressing;
mod copy_source;
mod dialect;
mod parameters;
mod query;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use shoal_base::words;

pub use self::addressing::is_in_host;
pub use self::copy_source::{COPY_SOURCE, CopySource};
pub use self::parameters::response_override;
pub use self::query::Query;

use self::addressing::Resource;
use self::dialect::Dialect;
use self::parameters::{is_header, is_of_lists, is_of_reads, is_of_uploads};
use crate::error::{ErrorCode, S3Error};
use crate::object::ObjectName;
use crate::target::{self, TooLong};

words! {
    /// The operations that this node distinguishes. All but [`Operation::GetObject`] and
    /// [`Operation::HeadObject`] are forwarded.
    pub enum Operation {
        /// `GET` of an object's bytes.
        GetObject = "get_object",
        /// `HEAD` of an object.
        HeadObject = "head_object",
        /// `PUT` of an object, including copies.
        PutObject = "put_object",
        /// `DELETE` of an object.
        DeleteObject = "delete_object",
        /// `POST ?delete`: many keys of one bucket.
        DeleteObjects = "delete_objects",
        /// `POST ?uploads`
        CreateMultipartUpload = "create_multipart_upload",
        /// `PUT ?uploadId&partNumber`
        UploadPart = "upload_part",
        /// `POST ?uploadId`: the object appears.
        CompleteMultipartUpload = "complete_multipart_upload",
        /// `DELETE ?uploadId`
        AbortMultipartUpload = "abort_multipart_upload",
        /// `GET` of a bucket.
        ListObjects = "list_objects",
        /// `GET ?uploads` of a bucket.
        ListMultipartUploads = "list_multipart_uploads",
        /// `GET /`
        ListBuckets = "list_buckets",
        /// A sub-resource, or an operation unknown to this node, that only reads.
        OtherRead = "other_read",
        /// A sub-resource, or an operation unknown to this node, that may change an object.
        OtherWrite = "other_write",
    }
}

/// The scope of an operation's changes at the lake, which this node must invalidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that a cached answer depends on.
    None,
    /// The current version of the object, or the permissions to read it.
    Object,
    /// Any object of the bucket, or the permissions to read it.
    Bucket,
}

impl Operation {
    /// Returns true if the operation uploads an object or a part of one.
    pub const fn is_upload(self) -> bool {
        matches!(
            self,
            Self::PutObject | Self::CreateMultipartUpload | Self::UploadPart | Self::CompleteMultipartUpload
        )
    }
}

/// A classified request.
#[derive(Clone, Debug)]
pub struct Classified {
    /// The requested operation.
    pub operation: Operation,
    /// The bucket, if the request names one.
    pub bucket: Option<Arc<str>>,
    /// The object, if the request names one.
    pub object: Option<ObjectName>,
    /// The source, if the request copies an object.
    pub copy_source: Option<CopySource>,
    /// Query parameters, decoded, in order.
    pub query: Query,
    /// The scope that this node must invalidate once the request has been forwarded.
    pub effect: Effect,
}

impl Classified {
    /// Replaces the query parameters.
    #[must_use]
    pub fn with_query(&self, query: Query) -> Self {
        Self {
            query,
            ..self.clone()
        }
    }

    /// The path of the bucket or object for the request to the lake.
    pub fn path(&self) -> String {
        let key = self.object.as_ref().map(|name| &*name.key);
        target::path(self.bucket.as_deref(), key)
    }

    /// The target of the request to the lake, path style, without the credentials of a presigned URL, which
    /// were verified here.
    ///
    /// # Errors
    ///
    /// Fails with S3's error if the target is too long.
    pub fn target(&self) -> Result<PathAndQuery, S3Error> {
        target::with_query(self.path(), self.query.without_credentials()).map_err(too_long)
    }

    /// Like [`target`](Self::target), but with the credentials of a presigned URL that names `access_key` and
    /// proves nothing.
    ///
    /// # Errors
    ///
    /// Fails with S3's error if the target is too long.
    pub fn target_in_name(&self, access_key: &str) -> Result<PathAndQuery, S3Error> {
        let query = self.query.clone().presigned_in_name(access_key);
        target::with_query(self.path(), query.spelled()).map_err(too_long)
    }
}

/// Classifies a request by method, target, host and headers. `domain` enables virtual-host style.
///
/// # Errors
///
/// Fails with S3's error for a request that names a key without a bucket, or is ambiguous because lakes
/// interpret it differently.
pub fn classify(
    method: &Method,
    target: &PathAndQuery,
    host: Option<&str>,
    headers: &HeaderMap,
    domain: Option<&str>,
) -> Result<Classified, S3Error> {
    let Resource { bucket, key } = Resource::parse(target.path(), host, domain)?;
    let query = Query::parse(target.query())?;
    let dialect = Dialect::parse(headers, &query, key.as_deref())?;
    let shape = RequestShape {
        method,
        has_bucket: bucket.is_some(),
        has_object: key.is_some(),
        query: &query,
        dialect,
    };
    let operation = shape.operation();
    let effect = shape.effect(operation);
    let version = match query.get("versionId").filter(|_| key.is_some()) {
        // SDKs send an empty version to query the lock of the current version. The lake decides; the node
        // caches nothing of the answer, and a write invalidates every version of the object.
        Some("") if shape.is_of_sub_resource(operation) => None,
        Some(version) => Some(version_id(version)?.into()),
        None => None,
    };
    let object = bucket
        .clone()
        .zip(key)
        .map(|(bucket, key)| ObjectName { bucket, key, version });
    // Checked now, because a read builds the target only when it is too late to reject the request.
    if object.as_ref().is_some_and(|name| !target::fits(name)) {
        return Err(too_long(TooLong));
    }
    let copy_source = match *method {
        Method::PUT => CopySource::from_request(headers, &query)?,
        _ => None,
    };
    Ok(Classified {
        operation,
        bucket,
        object,
        copy_source,
        query,
        effect,
    })
}

/// Returns the id if a version may have it: MinIO cuts off blanks around it.
fn version_id(text: &str) -> Result<&str, S3Error> {
    let invalid = |message: &'static str| Err(S3Error::new(ErrorCode::InvalidArgument, message));
    match text {
        "" => invalid("Version id cannot be the empty string"),
        text if !text.bytes().all(|byte| byte.is_ascii_graphic()) => invalid("Invalid version id specified"),
        text => Ok(text),
    }
}

/// The parts of a request that determine its operation.
struct RequestShape<'a> {
    method: &'a Method,
    has_bucket: bool,
    has_object: bool,
    query: &'a Query,
    dialect: Dialect,
}

impl RequestShape<'_> {
    /// The operation. A request counts as an operation only if it has the parameters of that operation and no
    /// others: lakes differ in which of two sub-resources takes precedence, and treat a part without a number
    /// or an upload as a whole object.
    fn operation(&self) -> Operation {
        use Operation as O;
        let query = self.query;
        let is_part = || self.is_of_upload("partNumber") && query.has_value("partNumber");
        if self.dialect != Dialect::None {
            return self.other();
        }
        match (self.method.as_str(), self.has_bucket, self.has_object) {
            ("GET", _, true) if query.has_only(is_of_reads) => O::GetObject,
            ("HEAD", _, true) if query.has_only(is_of_reads) => O::HeadObject,
            ("GET", true, false) if query.has_only(is_of_lists) => O::ListObjects,
            ("GET", true, false) if query.has("uploads") && query.has_only(is_of_uploads) => {
                O::ListMultipartUploads
            }
            ("GET", false, false) => O::ListBuckets,
            ("PUT", _, true) if is_part() => O::UploadPart,
            ("PUT", _, true) if self.has_only(&[]) => O::PutObject,
            ("POST", _, true) if query.has("uploads") && self.has_only(&["uploads"]) => {
                O::CreateMultipartUpload
            }
            ("POST", _, true) if self.is_of_upload("uploadId") => O::CompleteMultipartUpload,
            ("DELETE", _, true) if self.is_of_upload("uploadId") => O::AbortMultipartUpload,
            ("DELETE", _, true) if self.has_only(&["versionId"]) => O::DeleteObject,
            ("POST", true, false) if query.has("delete") && self.has_only(&["delete"]) => O::DeleteObjects,
            _ => self.other(),
        }
    }

    fn other(&self) -> Operation {
        match self.method.as_str() {
            "GET" | "HEAD" | "OPTIONS" => Operation::OtherRead,
            "POST" if self.is_select() => Operation::OtherRead,
            _ => Operation::OtherWrite,
        }
    }

    /// Returns true if the request is `SelectObjectContent`, whose body is the query.
    fn is_select(&self) -> bool {
        let is_of_it = self.has_only(&["select", "select-type", "versionId"]);
        let is_as_s3_writes_it =
            self.query.get("select") == Some("") && self.query.get("select-type") == Some("2");
        self.has_object && is_of_it && is_as_s3_writes_it && self.dialect == Dialect::None
    }

    /// Returns true if the request is for a sub-resource of an object, and not for the object itself.
    fn is_of_sub_resource(&self, operation: Operation) -> bool {
        matches!(operation, Operation::OtherRead | Operation::OtherWrite) && !self.has_only(&["versionId"])
    }

    /// Returns true if the request names an upload, optionally with the parameter `beside`, and has no
    /// parameter of another operation.
    fn is_of_upload(&self, beside: &str) -> bool {
        let is_known = |name: &str| ["uploadId", beside, "x-id"].contains(&name) || is_header(name);
        self.query.has_value("uploadId") && self.query.has_only(is_known)
    }

    fn has_only(&self, names: &[&str]) -> bool {
        self.query
            .has_only(|name| names.contains(&name) || name == "x-id")
    }

    /// The scope of objects that the lake may change on this request.
    fn effect(&self, operation: Operation) -> Effect {
        use Operation as O;
        match operation {
            O::GetObject
            | O::HeadObject
            | O::ListObjects
            | O::ListMultipartUploads
            | O::ListBuckets
            | O::OtherRead
            | O::CreateMultipartUpload
            | O::UploadPart
            | O::AbortMultipartUpload => Effect::None,
            O::PutObject | O::DeleteObject | O::CompleteMultipartUpload => Effect::Object,
            O::OtherWrite if self.is_about_one_object() => Effect::Object,
            O::DeleteObjects | O::OtherWrite => Effect::Bucket,
        }
    }

    /// Returns true if an unknown write changes only the object that it names. A form may name another object
    /// in its body, and an unknown method may do so in a header.
    fn is_about_one_object(&self) -> bool {
        let is_of_s3 = match self.method.as_str() {
            "PUT" | "DELETE" => true,
            "POST" => self.query.has("restore") && self.has_only(&["restore", "versionId"]),
            _ => false,
        };
        self.has_object && is_of_s3 && self.dialect != Dialect::OfBucket
    }
}

fn too_long(TooLong: TooLong) -> S3Error {
    S3Error::new(
        ErrorCode::InvalidUri,
        "Couldn't parse the specified URI: it is too long.",
    )
}
