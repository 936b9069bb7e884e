//! Tests of the test lake itself: every other story relies on it.

mod misbehaving;

use std::time::{Duration, SystemTime};

use http::{Method, StatusCode};
use shoal_net::clock;

use crate::back::texts;
use crate::chunks::Checksum;
use crate::client::{Client, Payload, Reply};
use crate::lake::{ACCESS_KEY, ANONYMOUS, Access, Fault, Lake, Object, SECRET_KEY};

fn client(lake: &Lake) -> Client {
    Client::signing(lake.address(), ACCESS_KEY, SECRET_KEY)
}

#[tokio::test]
async fn an_object_is_read_with_all_that_was_stored_with_it() {
    let lake = Lake::start().await;
    let client = client(&lake);
    lake.create_bucket("bucket");
    let sent = client
        .put("/bucket/key", "hello")
        .header("content-type", "text/plain")
        .header("x-amz-meta-colour", "grün")
        .header("x-amz-checksum-crc32c", Checksum::Crc32c.of(b"hello"));
    assert_eq!(sent.send().await.status, StatusCode::OK);

    let reply = client
        .get("/bucket/key")
        .header("x-amz-checksum-mode", "ENABLED")
        .send()
        .await;
    assert_eq!((reply.status, reply.text()), (StatusCode::OK, "hello"));
    assert_eq!(reply.header("content-type"), Some("text/plain"));
    assert_eq!(reply.headers["x-amz-meta-colour"].as_bytes(), "grün".as_bytes());
    assert_eq!(reply.header("etag"), Some("\"5d41402abc4b2a76b9719d911017c592\""));
    assert_eq!(reply.header("x-amz-checksum-crc32c"), Some("mnG7TA=="));

    let part = client
        .get("/bucket/key")
        .header("x-amz-checksum-mode", "ENABLED")
        .range("bytes=0-1")
        .send()
        .await;
    assert_eq!(
        part.header("x-amz-checksum-crc32c"),
        None,
        "a checksum of the whole does not fit a part"
    );
    let head = client.head("/bucket/key").send().await;
    assert_eq!((head.header("content-length"), head.body.len()), (Some("5"), 0));
    assert_eq!(client.get("/bucket/none").send().await.code(), "NoSuchKey");
    assert_eq!(client.get("/none/key").send().await.code(), "NoSuchBucket");
}

#[tokio::test]
async fn ranges_are_those_of_s3() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "0123456789");
    lake.put("bucket", "empty", "");
    let client = client(&lake);
    for (range, status, content_range, body) in [
        ("bytes=0-0", 206, Some("bytes 0-0/10"), "0"),
        ("bytes=7-", 206, Some("bytes 7-9/10"), "789"),
        ("bytes=7-100", 206, Some("bytes 7-9/10"), "789"),
        ("bytes=-3", 206, Some("bytes 7-9/10"), "789"),
        ("bytes=-30", 206, Some("bytes 0-9/10"), "0123456789"),
        ("bytes=3-2", 200, None, "0123456789"),
        ("bytes=0-1,3-4", 200, None, "0123456789"),
        ("lines=0-1", 200, None, "0123456789"),
    ] {
        let reply = client.get("/bucket/key").range(range).send().await;
        assert_eq!((reply.status.as_u16(), reply.text()), (status, body), "{range}");
        assert_eq!(reply.header("content-range"), content_range, "{range}");
    }
    for (key, range) in [
        ("key", "bytes=10-"),
        ("key", "bytes=-0"),
        ("empty", "bytes=0-"),
        ("empty", "bytes=-5"),
    ] {
        let reply = client.get(&format!("/bucket/{key}")).range(range).send().await;
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (416, "InvalidRange"),
            "{key} {range}"
        );
    }
}

#[tokio::test]
async fn conditions_are_judged_in_the_order_of_http() {
    let lake = Lake::start().await;
    let modified = SystemTime::UNIX_EPOCH + Duration::from_hours(1000);
    let etag = lake.put("bucket", "key", Object::new("x").modified_at(modified));
    let date = |offset: u64| {
        httpdate::fmt_http_date(modified - Duration::from_secs(10) + Duration::from_secs(offset))
    };
    let client = client(&lake);
    for (headers, status) in [
        (vec![("if-match", etag.clone())], 200),
        (vec![("if-match", etag.trim_matches('"').into())], 200),
        (vec![("if-match", "\"other\"".into())], 412),
        (vec![("if-none-match", etag.clone())], 304),
        (vec![("if-none-match", "*".into())], 304),
        (vec![("if-none-match", "\"other\"".into())], 200),
        (vec![("if-modified-since", date(10))], 304),
        (vec![("if-modified-since", date(9))], 200),
        (vec![("if-unmodified-since", date(9))], 412),
        (
            vec![("if-unmodified-since", date(9)), ("if-match", etag.clone())],
            200,
        ),
        (
            vec![
                ("if-modified-since", date(10)),
                ("if-none-match", "\"other\"".into()),
            ],
            200,
        ),
        (
            vec![("if-none-match", etag.clone()), ("if-match", "\"other\"".into())],
            412,
        ),
    ] {
        let asked = headers
            .iter()
            .fold(client.get("/bucket/key"), |call, (name, value)| {
                call.header(name, value)
            });
        let reply = asked.send().await;
        assert_eq!(reply.status.as_u16(), status, "{headers:?}");
        if status != 412 {
            assert_eq!(reply.header("etag"), Some(etag.as_str()), "{headers:?}");
        }
    }
}

#[tokio::test]
async fn versions_and_parts_are_read_by_name() {
    let lake = Lake::start().await;
    lake.keep_versions("bucket");
    lake.put("bucket", "key", "old");
    let old = lake.object("bucket", "key").unwrap().version_id;
    lake.put("bucket", "key", Object::new("newer").parts([2, 3]));
    let client = client(&lake);
    assert_eq!(client.get("/bucket/key").send().await.text(), "newer");
    let reply = client.get(&format!("/bucket/key?versionId={old}")).send().await;
    assert_eq!(
        (reply.text(), reply.header("x-amz-version-id")),
        ("old", Some(old.as_str()))
    );
    let part = client.get("/bucket/key?partNumber=2").send().await;
    assert_eq!((part.status.as_u16(), part.text()), (206, "wer"));
    assert_eq!(part.header("x-amz-mp-parts-count"), Some("2"));
    assert_eq!(
        client.get("/bucket/key?partNumber=3").send().await.code(),
        "InvalidPartNumber"
    );

    assert_eq!(
        client.delete("/bucket/key").send().await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(client.get("/bucket/key").send().await.code(), "NoSuchKey");
    assert_eq!(
        client
            .get(&format!("/bucket/key?versionId={old}"))
            .send()
            .await
            .text(),
        "old"
    );
}

#[tokio::test]
async fn every_payload_mode_is_understood_and_checked() {
    let lake = Lake::start().await;
    lake.create_bucket("bucket");
    let client = client(&lake);
    let trailers = Checksum::ALL.map(|checksum| Payload::UnsignedTrailer(10, checksum));
    let signed_trailers = Checksum::ALL.map(|checksum| Payload::SignedChunks(10, Some(checksum)));
    let plain = [Payload::Hashed, Payload::Unsigned, Payload::SignedChunks(7, None)];
    for payload in plain.into_iter().chain(trailers).chain(signed_trailers) {
        let reply = client
            .put("/bucket/key", "some bytes of a body")
            .payload(payload)
            .send()
            .await;
        assert_eq!(reply.status, StatusCode::OK, "{payload:?}: {}", reply.text());
        assert_eq!(
            client.get("/bucket/key").send().await.text(),
            "some bytes of a body",
            "{payload:?}"
        );

        lake.delete("bucket", "key");
        let put = client.put("/bucket/key", "some bytes of a body").payload(payload);
        let reply = put.tampered(|request| {
            let bent = request
                .body()
                .iter()
                .map(|byte| if *byte == b'y' { b'z' } else { *byte });
            *request.body_mut() = bent.collect::<Vec<u8>>().into();
        });
        let reply = reply.send().await;
        let expected = match payload {
            Payload::Unsigned => "",
            Payload::Hashed => "XAmzContentSHA256Mismatch",
            Payload::SignedChunks(..) => "SignatureDoesNotMatch",
            Payload::UnsignedTrailer(..) => "BadDigest",
        };
        assert_eq!(reply.code(), expected, "{payload:?}");
        assert_eq!(
            lake.object("bucket", "key").is_some(),
            payload == Payload::Unsigned,
            "{payload:?}"
        );
    }
}

#[tokio::test]
async fn a_wrong_signature_is_refused_and_a_right_one_names_the_caller() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    let good = client(&lake);
    assert_eq!(good.get("/bucket/key").send().await.text(), "x");
    assert_eq!(lake.last_request().access_key.as_deref(), Some(ACCESS_KEY));
    let presigned = good
        .get("/bucket/key?versionId=null")
        .presigned(Duration::from_mins(1))
        .send()
        .await;
    assert_eq!(presigned.text(), "x");
    assert!(lake.last_request().is_get());

    let wrong_secret = Client::signing(lake.address(), ACCESS_KEY, "another secret");
    assert_eq!(
        wrong_secret.get("/bucket/key").send().await.code(),
        "SignatureDoesNotMatch"
    );
    let unknown = Client::signing(lake.address(), "unknown", SECRET_KEY);
    assert_eq!(
        unknown.get("/bucket/key").send().await.code(),
        "InvalidAccessKeyId"
    );
    let moved = good.get("/bucket/key").tampered(|request| {
        *request.uri_mut() = {
            let uri = request.uri().to_string().replace("/key", "/other");
            uri.parse().unwrap()
        }
    });
    assert_eq!(moved.send().await.code(), "SignatureDoesNotMatch");
    let added = good.get("/bucket/key").tampered(|request| {
        request
            .headers_mut()
            .insert("x-amz-acl", "public-read".parse().unwrap());
    });
    assert_eq!(
        added.send().await.code(),
        "AccessDenied",
        "an unsigned header of S3"
    );
    assert_eq!(lake.last_request().access_key, None);
}

#[tokio::test]
async fn odd_keys_are_told_apart_and_signed_right() {
    let lake = Lake::start().await;
    lake.create_bucket("bucket");
    let client = client(&lake);
    let targets = [
        "a%2Fb",
        "a/b/",
        "a//b",
        "a/./b",
        "a/../b",
        "a+b",
        "a%20b",
        "%F0%9F%90%9F",
        "%01",
        "%25",
        "a'(b)!*",
        "_",
    ];
    for target in targets {
        let reply = client.put(&format!("/bucket/{target}"), target).send().await;
        assert_eq!(reply.status, StatusCode::OK, "{target}: {}", reply.text());
    }
    for target in targets {
        assert_eq!(
            client.get(&format!("/bucket/{target}")).send().await.text(),
            target
        );
        assert_eq!(lake.last_request().path, format!("/bucket/{target}"));
    }
    assert_eq!(client.get("/bucket/a/b").send().await.text(), "a%2Fb");
    assert_eq!(client.get("/bucket/%61%2Bb").send().await.text(), "a+b");
}

#[tokio::test]
async fn rules_acls_and_policies_decide_access() {
    let lake = Lake::start().await;
    lake.put("bucket", "public/key", "x");
    lake.put("bucket", "secret/key", "x");
    lake.add_user("guest", "guest-secret");
    let (owner, stranger) = (client(&lake), Client::anonymous(lake.address()));
    let guest = Client::signing(lake.address(), "guest", "guest-secret");

    lake.allow(ANONYMOUS, Access::Read, "bucket/public");
    lake.deny("guest", Access::Read, "bucket/secret");
    for (client, key, expected) in [
        (&stranger, "public/key", 200),
        (&stranger, "secret/key", 403),
        (&stranger, "secret/none", 403),
        (&guest, "secret/key", 403),
        (&guest, "public/key", 200),
        (&owner, "secret/key", 200),
    ] {
        let reply = client.get(&format!("/bucket/{key}")).send().await;
        assert_eq!(reply.status.as_u16(), expected, "{key}");
    }
    assert_eq!(
        stranger.put("/bucket/public/key", "y").send().await.code(),
        "AccessDenied"
    );

    let publish = owner
        .put("/bucket/secret/key?acl", "")
        .header("x-amz-acl", "public-read")
        .send()
        .await;
    assert_eq!(publish.status, StatusCode::OK);
    assert_eq!(stranger.get("/bucket/secret/key").send().await.text(), "x");
    owner
        .put("/bucket/secret/key?acl", "")
        .header("x-amz-acl", "private")
        .send()
        .await;
    assert_eq!(
        stranger.get("/bucket/secret/key").send().await.code(),
        "AccessDenied"
    );

    let policy = r#"{"Statement":[{"Effect":"Deny","Principal":{"AWS":"guest"},"Action":"s3:GetObject",
        "Resource":"arn:aws:s3:::bucket/public/*"}]}"#;
    assert_eq!(
        owner.put("/bucket?policy", policy).send().await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        guest.get("/bucket/public/key").send().await.code(),
        "AccessDenied"
    );
    owner.delete("/bucket?policy").send().await;
    assert_eq!(guest.get("/bucket/public/key").send().await.text(), "x");
}

#[tokio::test]
async fn uploads_are_listed_by_key_and_time_and_only_markers_that_were_given_out_are_known() {
    let lake = Lake::start().await;
    let client = client(&lake);
    lake.create_bucket("bucket");
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let late = lake.begin_upload("bucket", "k", at(9));
    let early = lake.begin_upload("bucket", "k", at(1));
    let first = lake.begin_upload("bucket", "a/b", at(5));
    let list = async |query: &str| client.get(&format!("/bucket?uploads&{query}")).send().await;
    let ids = |reply: &Reply| texts(reply, "UploadId");
    assert_eq!(ids(&list("").await), [&*first, &*early, &*late]);
    let page = list("delimiter=/&max-uploads=2").await;
    assert_eq!(
        (texts(&page, "Prefix"), ids(&page)),
        (vec![String::new(), "a/".into()], vec![early.clone()])
    );
    assert_eq!(texts(&page, "NextUploadIdMarker"), [&*early]);
    assert_eq!(
        ids(&list(&format!("key-marker=k&upload-id-marker={early}")).await),
        [&*late]
    );
    assert!(ids(&list("key-marker=k").await).is_empty());
    assert_eq!(ids(&list("delimiter=/&key-marker=a/").await), [&*early, &*late]);
    let unknown = list("key-marker=k&upload-id-marker=other").await;
    assert_eq!(unknown.code(), "InvalidArgument");
}

#[tokio::test]
async fn objects_are_copied_listed_deleted_and_uploaded_in_parts() {
    let lake = Lake::start().await;
    let client = client(&lake);
    assert_eq!(client.put("/bucket", "").send().await.status, StatusCode::OK);
    client
        .put("/bucket/a", "x")
        .header("x-amz-meta-m", "1")
        .send()
        .await;
    client
        .put("/bucket/b", "")
        .header("x-amz-copy-source", "/bucket/a")
        .send()
        .await;
    assert_eq!(
        client.get("/bucket/b").send().await.header("x-amz-meta-m"),
        Some("1")
    );

    let started = client.post("/bucket/c?uploads", "").send().await;
    let id = started
        .text()
        .split_once("<UploadId>")
        .unwrap()
        .1
        .split_once("</")
        .unwrap()
        .0
        .to_owned();
    for (number, part) in [(2, "world"), (1, "hello ")] {
        client
            .put(&format!("/bucket/c?partNumber={number}&uploadId={id}"), part)
            .send()
            .await;
    }
    client
        .post(&format!("/bucket/c?uploadId={id}"), "<CompleteMultipartUpload/>")
        .send()
        .await;
    assert_eq!(client.get("/bucket/c").send().await.text(), "hello world");
    assert_eq!(client.get("/bucket/c?partNumber=1").send().await.text(), "hello ");

    let denied = client
        .put("/bucket/a", "y")
        .header("if-none-match", "*")
        .send()
        .await;
    assert_eq!(denied.code(), "PreconditionFailed");
    let list = client.get("/bucket?list-type=2&prefix=").send().await;
    let keys = list.text().matches("<Key>").count();
    assert_eq!(keys, 3, "{}", list.text());
    let many = "<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>";
    assert_eq!(
        client.post("/bucket?delete", many).send().await.status,
        StatusCode::OK
    );
    assert!(lake.object("bucket", "a").is_none() && lake.object("bucket", "c").is_some());
    assert_eq!(
        client.call(Method::OPTIONS, "/bucket?cors").send().await.code(),
        "NotImplemented"
    );
}

#[tokio::test]
async fn an_object_can_be_placed_with_headers_and_asked_whether_it_is_current() {
    let lake = Lake::start().await;
    let object = Object::new("x")
        .header("cache-control", "no-cache")
        .header("x-amz-meta-m", "1")
        .etag("\"e\"");
    lake.put("bucket", "key", object);
    lake.misbehave(Fault::new().late(Duration::from_millis(1)));
    let client = client(&lake);
    let reply = client.get("/bucket/key").send().await;
    assert_eq!(
        (reply.header("cache-control"), reply.header("x-amz-meta-m")),
        (Some("no-cache"), Some("1"))
    );
    let yesterday = clock::utc_now() - Duration::from_hours(24);
    let again = client
        .get("/bucket/key")
        .header("if-none-match", "\"e\"")
        .at(yesterday)
        .send()
        .await;
    assert_eq!(again.status, StatusCode::NOT_MODIFIED);
    assert_eq!(lake.count(|request| request.header("if-none-match").is_some()), 1);
}
