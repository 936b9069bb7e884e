//! The operation of each request, and the request that the lake gets for it.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::{Classified, Effect, Operation, classify};
use crate::error::{ErrorCode, S3Error};

const DOMAIN: &str = "s3.example.org";

fn asked(
    method: &str,
    target: &str,
    host: &str,
    headers: &[(&'static str, &'static str)],
) -> Result<Classified, S3Error> {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let headers: HeaderMap = headers
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect();
    classify(
        &method,
        &target.parse().unwrap(),
        Some(host),
        &headers,
        Some(DOMAIN),
    )
}

fn classified(method: &str, target: &str) -> Classified {
    asked(method, target, "localhost:9000", &[]).unwrap()
}

fn refusal(method: &str, target: &str) -> ErrorCode {
    asked(method, target, "localhost:9000", &[]).unwrap_err().code
}

#[test]
fn each_request_has_its_operation_and_its_effect() {
    use Effect as E;
    use Operation as O;
    let table = [
        ("GET", "/b/k", O::GetObject, E::None),
        (
            "GET",
            "/b/k?x-id=GetObject&versionId=3&response-content-type=a",
            O::GetObject,
            E::None,
        ),
        ("GET", "/b/k?partNumber=2", O::GetObject, E::None),
        ("GET", "/b/k?acl", O::OtherRead, E::None),
        ("GET", "/b/k?tagging", O::OtherRead, E::None),
        ("GET", "/b/k?never-heard-of", O::OtherRead, E::None),
        ("HEAD", "/b/k", O::HeadObject, E::None),
        ("HEAD", "/b", O::OtherRead, E::None),
        ("GET", "/", O::ListBuckets, E::None),
        ("GET", "/b", O::ListObjects, E::None),
        ("GET", "/b/?list-type=2&prefix=x", O::ListObjects, E::None),
        (
            "GET",
            "/b?uploads&prefix=x&max-uploads=1",
            O::ListMultipartUploads,
            E::None,
        ),
        ("GET", "/b?uploads&never-heard-of", O::OtherRead, E::None),
        ("GET", "/b?policy", O::OtherRead, E::None),
        ("PUT", "/b/k", O::PutObject, E::Object),
        ("PUT", "/b/k?x-id=PutObject", O::PutObject, E::Object),
        ("PUT", "/b/k?acl", O::OtherWrite, E::Object),
        ("PUT", "/b?policy", O::OtherWrite, E::Bucket),
        ("DELETE", "/b", O::OtherWrite, E::Bucket),
        ("PUT", "/b/k?partNumber=1&uploadId=u", O::UploadPart, E::None),
        (
            "PUT",
            "/b/k?partNumber=1&uploadId=u&x-amz-checksum-crc32=AAAA&x-id=UploadPart",
            O::UploadPart,
            E::None,
        ),
        ("POST", "/b/k?uploads", O::CreateMultipartUpload, E::None),
        ("POST", "/b/k?uploadId=u", O::CompleteMultipartUpload, E::Object),
        ("DELETE", "/b/k?uploadId=u", O::AbortMultipartUpload, E::None),
        ("DELETE", "/b/k?versionId=v", O::DeleteObject, E::Object),
        ("POST", "/b?delete", O::DeleteObjects, E::Bucket),
        ("POST", "/b", O::OtherWrite, E::Bucket),
        ("POST", "/b/k?select&select-type=2", O::OtherRead, E::None),
        ("POST", "/b/k", O::OtherWrite, E::Bucket),
        ("PROPFIND", "/b/k", O::OtherWrite, E::Bucket),
    ];
    for (method, target, operation, effect) in table {
        let request = classified(method, target);
        assert_eq!(
            (request.operation, request.effect),
            (operation, effect),
            "{method} {target}"
        );
    }
}

/// Some lake finds another of the operations first, or takes a part without a number for an object.
#[test]
fn a_write_with_the_parameters_of_several_operations_is_taken_for_any_of_them() {
    for (method, target, effect) in [
        ("POST", "/b/k?uploads&uploadId=u", Effect::Bucket),
        ("POST", "/b/k?uploads&delete", Effect::Bucket),
        ("PUT", "/b/k?uploadId=u", Effect::Object),
        ("PUT", "/b/k?uploadId=&partNumber=1", Effect::Object),
        ("PUT", "/b/k?uploadId=u&partNumber", Effect::Object),
        ("PUT", "/b/k?uploadId=u&partNumber=1&acl", Effect::Object),
        (
            "PUT",
            "/b/k?uploadId=u&partNumber=1&x-amz-copy-source=a%2Fb",
            Effect::Object,
        ),
        ("PUT", "/b/k?uploadId=u&partNumber=1&UPLOADID=v", Effect::Object),
        ("PUT", "/b/k?versionId=v", Effect::Object),
        ("DELETE", "/b/k?uploadId=u&tagging", Effect::Object),
        ("DELETE", "/b/k?uploadId=", Effect::Object),
        ("DELETE", "/b/k?VersionId=v", Effect::Object),
        ("POST", "/b?DELETE", Effect::Bucket),
    ] {
        let request = classified(method, target);
        assert_eq!(
            (request.operation, request.effect),
            (Operation::OtherWrite, effect),
            "{method} {target}"
        );
    }
}

#[test]
fn a_name_spelled_with_other_letters_is_another_name() {
    for target in [
        "/b/k?VersionId=1",
        "/b/k?versionid=1",
        "/b/k?versionId=1&VERSIONID=2",
        "/b?PREFIX=x",
    ] {
        assert_eq!(
            classified("GET", target).operation,
            Operation::OtherRead,
            "{target}"
        );
    }
    assert_eq!(
        classified("GET", "/b/k?VersionId=1").object.unwrap().version,
        None
    );
}

#[test]
fn a_header_can_make_a_write_reach_farther_than_the_object_that_it_names() {
    use Effect as E;
    use Operation as O;
    for (method, target, header, expected) in [
        (
            "PUT",
            "/b/k?renameObject",
            "x-amz-rename-source",
            (O::OtherWrite, E::Bucket),
        ),
        ("PUT", "/b/k", "x-amz-rename-source", (O::OtherWrite, E::Bucket)),
        (
            "PUT",
            "/b/k.tar",
            "x-amz-meta-snowball-auto-extract",
            (O::OtherWrite, E::Bucket),
        ),
        (
            "PUT",
            "/b/k?partNumber=1&uploadId=u",
            "x-minio-source-mtime",
            (O::OtherWrite, E::Bucket),
        ),
        (
            "PUT",
            "/b/k",
            "x-amz-write-offset-bytes",
            (O::OtherWrite, E::Object),
        ),
        (
            "DELETE",
            "/b/k",
            "x-minio-force-delete",
            (O::OtherWrite, E::Bucket),
        ),
        (
            "GET",
            "/b/k.zip/inside",
            "x-minio-extract",
            (O::OtherRead, E::None),
        ),
        ("PUT", "/b/k", "x-amz-meta-plain", (O::PutObject, E::Object)),
    ] {
        let request = asked(method, target, "h", &[(header, "true")]).unwrap();
        assert_eq!((request.operation, request.effect), expected, "{method} {header}");
    }
    for target in ["/b/k?X-Amz-Rename-Source=%2Fa", "/b/k%00"] {
        assert_eq!(classified("PUT", target).effect, Effect::Bucket, "{target}");
    }
    let overridden = asked("GET", "/b/k", "h", &[("x-http-method-override", "DELETE")]);
    assert_eq!(overridden.unwrap_err().code, ErrorCode::NotImplemented);
}

#[test]
fn keys_are_decoded_once_never_normalised_and_told_in_one_spelling() {
    let table: [(&str, &[u8], &str); 10] = [
        ("/b/a%2Fb", b"a/b", "/b/a/b"),
        ("/b/a%252Fb", b"a%2Fb", "/b/a%252Fb"),
        ("/b//x", b"/x", "/b//x"),
        ("/b/./x", b"./x", "/b/./x"),
        ("/b/../x", b"../x", "/b/../x"),
        ("/b/a+b", b"a+b", "/b/a%2Bb"),
        ("/b/_x%23%25", b"_x#%", "/b/_x%23%25"),
        ("/b/%F0%9F%90%9F", "🐟".as_bytes(), "/b/%F0%9F%90%9F"),
        ("/b/%01%FF", &[1, 255], "/b/%01%FF"),
        ("/%62/k/", b"k/", "/b/k/"),
    ];
    for (target, key, told) in table {
        let request = classified("GET", target);
        assert_eq!(request.target().unwrap().as_str(), told);
        assert_eq!(&*request.object.unwrap().key, key, "{target}");
    }
}

#[test]
fn the_lake_is_told_what_was_understood_without_credentials() {
    for (target, told) in [
        ("/", "/"),
        ("/b", "/b"),
        ("/b/?acl", "/b?acl"),
        ("/b/k?%76ersionId=%31", "/b/k?versionId=1"),
        ("/b?list-type=2&prefix=a+b/", "/b?list-type=2&prefix=a%20b%2F"),
        ("/b/k?X-Amz-Signature=0&versionId=1", "/b/k?versionId=1"),
        ("/t%3ab/k", "/t%3Ab/k"),
    ] {
        assert_eq!(classified("GET", target).target().unwrap().as_str(), told);
    }
}

#[test]
fn targets_that_lakes_read_differently_are_refused() {
    use ErrorCode as E;
    for (target, code) in [
        ("/b/%", E::InvalidUri),
        ("/b/%1", E::InvalidUri),
        ("/b/%zz", E::InvalidUri),
        ("/%2/x", E::InvalidUri),
        ("*", E::InvalidUri),
        ("/b/k?prefix=%ff", E::InvalidUri),
        ("//k", E::InvalidBucketName),
        ("/b%2Fk", E::InvalidBucketName),
        ("/b%2fk/x", E::InvalidBucketName),
        ("/b%3Fversions", E::InvalidBucketName),
        ("/b%00/k", E::InvalidBucketName),
        ("/b+c/k", E::InvalidBucketName),
        ("/b%C3%A9/k", E::InvalidBucketName),
        ("/../k", E::InvalidBucketName),
        ("/%2e/k", E::InvalidBucketName),
        ("/b/k?versionId", E::InvalidArgument),
        ("/b/k?versionId=", E::InvalidArgument),
        ("/b/k?versionId=+1", E::InvalidArgument),
        ("/b/k?versionId=1%0A", E::InvalidArgument),
        ("/b/k?versionId=1&%76ersionId=2", E::InvalidArgument),
        ("/b?prefix=a&prefix=b", E::InvalidArgument),
        ("/b/k?versionId%3D1", E::InvalidArgument),
    ] {
        for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
            assert_eq!(refusal(method, target), code, "{method} {target}");
        }
    }
    let long = format!("/b/{}", "\u{1d11e}".repeat(6_000));
    assert_eq!(refusal("GET", &long), E::InvalidUri);
}

#[test]
fn a_bucket_may_stand_in_the_host() {
    let at = |host, target: &str| asked("GET", target, host, &[]).unwrap();
    let request = at("data.lake.S3.example.org:9000", "/k?versionId=1");
    assert_eq!(request.target().unwrap().as_str(), "/data.lake/k?versionId=1");
    assert_eq!(request.bucket.as_deref(), Some("data.lake"));
    assert_eq!(at("s3.example.org", "/b/k").bucket.as_deref(), Some("b"));
    assert_eq!(
        at("evil-s3.example.org", "/b/k").bucket.as_deref(),
        Some("b"),
        "not a label of its own"
    );
    assert_eq!(at("b.s3.example.org", "/").operation, Operation::ListObjects);
    assert_eq!(&*at("b.s3.example.org", "//k").object.unwrap().key, b"/k");
    assert_eq!(&*at("b.s3.example.org", "/c%2Fk").object.unwrap().key, b"c/k");
}

#[test]
fn a_host_cannot_change_what_the_path_says() {
    for bucket in [
        "b#",
        "b/other?",
        "b?acl&",
        "b%2fother",
        "b\u{e9}",
        "b c",
        "a@b",
        "b~",
        ".",
        "..",
    ] {
        let host = format!("{bucket}.{DOMAIN}");
        let hosted = asked("GET", "/k?versionId=1", &host, &[]);
        assert_eq!(hosted.unwrap_err().code, ErrorCode::InvalidBucketName, "{bucket}");
    }
}

#[test]
fn a_copy_names_its_source_once() {
    let copy = |source| asked("PUT", "/b/k", "h", &[("x-amz-copy-source", source)]);
    assert_eq!(
        copy("a/b%20c?versionId=1")
            .unwrap()
            .copy_source
            .unwrap()
            .objects()
            .count(),
        1
    );
    assert_eq!(copy("a%2Fb%2").unwrap_err().code, ErrorCode::InvalidArgument);
    let get = asked("GET", "/b/k", "h", &[("x-amz-copy-source", "a%2")]).unwrap();
    assert_eq!(get.copy_source, None);
}
