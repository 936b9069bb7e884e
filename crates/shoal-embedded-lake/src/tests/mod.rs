//! Tests the lake through its S3 interface.

mod client;

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use md5::{Digest, Md5};

use super::EmbeddedLake;
use client::{Desk, element, error, header};
use shoal_base::hex;

fn etag(body: &[u8]) -> String {
    format!("\"{}\"", hex::text(&Md5::digest(body)))
}

#[tokio::test]
async fn an_object_comes_back_as_it_was_put() {
    let desk = Desk::new().await;
    let headers = [
        ("content-type", "text/x"),
        ("x-amz-meta-a", "b c"),
        ("cache-control", "max-age=1"),
        ("content-encoding", "aws-chunked,gzip"),
    ];
    let put = desk.send(Method::PUT, "/demo/k", &headers, "hello").await;
    assert_eq!(
        (put.status(), header(&put, "etag")),
        (StatusCode::OK, etag(b"hello").as_str())
    );
    let (got, head) = (desk.get("/demo/k").await, desk.head("/demo/k").await);
    assert_eq!(got.body().as_ref(), b"hello");
    for answer in [&got, &head] {
        let of = |name| header(answer, name);
        assert_eq!(
            [of("etag"), of("content-length"), of("accept-ranges")],
            [&etag(b"hello"), "5", "bytes"]
        );
        assert_eq!(
            [of("content-type"), of("x-amz-meta-a"), of("cache-control")],
            ["text/x", "b c", "max-age=1"]
        );
        assert_eq!(of("content-encoding"), "gzip", "aws-chunked is how it travelled");
    }
}

#[tokio::test]
async fn an_empty_object_is_an_object() {
    let desk = Desk::new().await;
    desk.put("/demo/empty", "").await;
    let got = desk.get("/demo/empty").await;
    assert_eq!(
        (got.status(), header(&got, "content-length")),
        (StatusCode::OK, "0")
    );
    assert_eq!(header(&got, "content-type"), "binary/octet-stream");
    for range in ["bytes=0-", "bytes=-5"] {
        let got = desk.get_with("/demo/empty", "range", range).await;
        assert_eq!(
            error(&got),
            (StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange".into()),
            "{range}"
        );
        assert_eq!(header(&got, "content-range"), "bytes */0");
    }
}

#[tokio::test]
async fn ranges_are_cut_at_the_end_of_the_object() {
    let desk = Desk::new().await;
    desk.put("/demo/k", "0123456789").await;
    let cases = [
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=8-", "89", "bytes 8-9/10"),
        ("bytes=8-99", "89", "bytes 8-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=-99", "0123456789", "bytes 0-9/10"),
    ];
    for (range, bytes, content_range) in cases {
        let got = desk.get_with("/demo/k", "range", range).await;
        assert_eq!(
            (got.status(), got.body().as_ref()),
            (StatusCode::PARTIAL_CONTENT, bytes.as_bytes()),
            "{range}"
        );
        assert_eq!(header(&got, "content-range"), content_range);
    }
    let past = desk.get_with("/demo/k", "range", "bytes=10-").await;
    assert_eq!(
        (error(&past).1.as_str(), header(&past, "content-range")),
        ("InvalidRange", "bytes */10")
    );
}

#[tokio::test]
async fn reads_obey_their_conditions() {
    let desk = Desk::new().await;
    let tag = header(&desk.put("/demo/k", "hello").await, "etag").to_string();
    let (bare, date) = (
        tag.trim_matches('"'),
        header(&desk.head("/demo/k").await, "last-modified").to_string(),
    );
    let weak = format!("W/{tag}");
    let cases = [
        ("if-match", "*", 200),
        ("if-match", &weak, 412),
        ("if-none-match", &weak, 304),
        ("if-none-match", tag.as_str(), 304),
        ("if-none-match", bare, 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "\"other\"", 200),
        ("if-match", &tag, 200),
        ("if-match", bare, 200),
        ("if-match", "\"other\"", 412),
        ("if-modified-since", &date, 304),
        ("if-modified-since", "Thu, 01 Jan 2015 00:00:00 GMT", 200),
        ("if-unmodified-since", &date, 200),
        ("if-unmodified-since", "Thu, 01 Jan 2015 00:00:00 GMT", 412),
    ];
    for (name, value, status) in cases {
        for method in [Method::GET, Method::HEAD] {
            let answer = desk.send(method.clone(), "/demo/k", &[(name, value)], "").await;
            assert_eq!(answer.status().as_u16(), status, "{method} {name}: {value}");
            if status == 304 {
                assert_eq!(
                    [header(&answer, "etag"), header(&answer, "last-modified")],
                    [&tag, &date]
                );
                assert!(answer.body().is_empty());
            }
        }
    }
}

#[tokio::test]
async fn conditions_on_tags_go_before_those_on_dates() {
    let desk = Desk::new().await;
    let tag = header(&desk.put("/demo/k", "hello").await, "etag").to_string();
    let date = header(&desk.head("/demo/k").await, "last-modified").to_string();
    let early = "Thu, 01 Jan 2015 00:00:00 GMT";
    for conditions in [
        [("if-match", &*tag), ("if-unmodified-since", early)],
        [("if-none-match", "\"other\""), ("if-modified-since", &date)],
    ] {
        let answer = desk.send(Method::GET, "/demo/k", &conditions, "").await;
        assert_eq!(answer.status(), StatusCode::OK, "{conditions:?}");
    }
}

#[tokio::test]
async fn a_missing_key_and_a_missing_bucket_have_different_errors() {
    let desk = Desk::new().await;
    desk.put("/demo/folder/k", "x").await;
    let key = (StatusCode::NOT_FOUND, "NoSuchKey".to_string());
    let bucket = (StatusCode::NOT_FOUND, "NoSuchBucket".to_string());
    assert_eq!(error(&desk.get("/demo/none").await), key);
    assert_eq!(
        error(&desk.get("/demo/folder").await),
        key,
        "a folder on the way is no object"
    );
    assert_eq!(desk.head("/demo/folder").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(error(&desk.get("/nowhere/k").await), bucket);
    assert_eq!(error(&desk.put("/nowhere/k", "x").await), bucket);
    assert_eq!(error(&desk.delete("/nowhere/k").await), bucket);
    assert_eq!(desk.delete("/demo/none").await.status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn writes_obey_their_conditions() {
    let desk = Desk::new().await;
    let put = async |name: &str, value: &str, body: &str| {
        desk.send(Method::PUT, "/demo/k", &[(name, value)], body)
            .await
            .status()
            .as_u16()
    };
    assert_eq!(put("if-match", "*", "0").await, 412, "it is not there");
    assert_eq!(put("if-none-match", "*", "1").await, 200);
    assert_eq!(put("if-none-match", "*", "2").await, 412);
    assert_eq!(put("if-match", "\"other\"", "3").await, 412);
    assert_eq!(desk.get("/demo/k").await.body().as_ref(), b"1");
    assert_eq!(put("if-match", &etag(b"1"), "4").await, 200);
    assert_eq!(desk.get("/demo/k").await.body().as_ref(), b"4");
}

#[tokio::test]
async fn a_refused_body_leaves_the_object_as_it_was() {
    let desk = Desk::new().await;
    desk.put("/demo/k", "old").await;
    let md5 = STANDARD.encode(Md5::digest(b"something else"));
    for (name, value) in [
        ("content-md5", md5.as_str()),
        ("x-amz-checksum-crc32", "AAAAAA=="),
    ] {
        let put = desk.send(Method::PUT, "/demo/k", &[(name, value)], "new").await;
        assert_eq!(put.status(), StatusCode::BAD_REQUEST, "{name}");
        let got = desk.get("/demo/k").await;
        assert_eq!(
            (got.body().as_ref(), header(&got, "etag")),
            (b"old".as_ref(), etag(b"old").as_str()),
            "{name}"
        );
    }
    assert_eq!(
        fs::read_dir(desk.folder.path().join(".staging")).unwrap().count(),
        0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bytes_and_etag_belong_together_while_the_object_is_replaced() {
    let desk = Desk::new().await;
    let bodies = ["a".repeat(70_000), "b".repeat(30_000), "c".repeat(10)];
    desk.put("/demo/k", &bodies[0]).await;
    let writes = async {
        for turn in 0..60 {
            let body = &bodies[turn % bodies.len()];
            if turn % 4 == 3 {
                desk.put("/demo/from", body).await;
                let copied = desk
                    .send(Method::PUT, "/demo/k", &[("x-amz-copy-source", "/demo/from")], "")
                    .await;
                assert_eq!(copied.status(), StatusCode::OK);
            } else {
                desk.put("/demo/k", body).await;
            }
        }
    };
    let reads = async || {
        for _ in 0..150 {
            let got = desk.get("/demo/k").await;
            assert_eq!(header(&got, "etag"), etag(got.body()));
            assert_eq!(header(&got, "content-length"), got.body().len().to_string());
        }
    };
    tokio::join!(writes, reads(), reads(), reads());
}

#[tokio::test]
async fn a_reader_of_a_replaced_object_gets_the_old_bytes_to_their_end() {
    let desk = Desk::new().await;
    let old = "o".repeat(16 << 20);
    desk.put("/demo/k", &old).await;
    let reading = desk.open("/demo/k").await;
    desk.put("/demo/k", "new").await;
    assert_eq!(header(&desk.get("/demo/k").await, "etag"), etag(b"new"));
    let read = reading.into_body().collect().await.unwrap().to_bytes();
    assert!(read == old.as_bytes(), "the bytes of one version, whole");
}

#[tokio::test]
async fn an_upload_in_parts_appears_when_it_is_complete_and_inherits_nothing() {
    let desk = Desk::new().await;
    let crc = [
        ("x-amz-checksum-algorithm", "CRC32"),
        ("x-amz-checksum-crc32", "NhCmhg=="),
    ];
    assert_eq!(
        desk.send(Method::PUT, "/demo/k", &crc, "hello").await.status(),
        StatusCode::OK
    );
    let created = desk
        .send(Method::POST, "/demo/k?uploads=", &[("x-amz-meta-m", "1")], "")
        .await;
    assert_eq!(
        (element(&created, "Bucket"), element(&created, "Key")),
        (vec!["demo".into()], vec!["k".into()])
    );
    let upload = element(&created, "UploadId").remove(0);

    let part = "p".repeat(5 << 20);
    let of = |number: u32| format!("/demo/k?partNumber={number}&uploadId={upload}");
    desk.put(&of(1), &part).await;
    desk.put(&of(2), "end").await;
    assert_eq!(desk.get("/demo/k").await.body().as_ref(), b"hello");
    let parts = desk.get(&format!("/demo/k?uploadId={upload}")).await;
    assert_eq!(element(&parts, "PartNumber"), ["1", "2"]);

    let listed = |numbers: &[u32]| {
        let part = |number: &u32| format!("<Part><PartNumber>{number}</PartNumber></Part>");
        let parts: String = numbers.iter().map(part).collect();
        format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
    };
    let complete = format!("/demo/k?uploadId={upload}");
    let wrong = desk.send(Method::POST, &complete, &[], &listed(&[1, 3])).await;
    assert_eq!(error(&wrong), (StatusCode::BAD_REQUEST, "InvalidPart".into()));
    let completed = desk.send(Method::POST, &complete, &[], &listed(&[1, 2])).await;
    assert_eq!(element(&completed, "Key"), ["k"]);

    let got = desk.get_with("/demo/k", "x-amz-checksum-mode", "ENABLED").await;
    assert!(got.body().as_ref() == format!("{part}end").as_bytes());
    assert!(header(&got, "etag").ends_with("-2\""));
    assert_eq!(
        [header(&got, "x-amz-meta-m"), header(&got, "x-amz-checksum-crc32")],
        ["1", ""]
    );
    assert_eq!(
        error(&desk.put(&of(1), "late").await),
        (StatusCode::NOT_FOUND, "NoSuchUpload".into())
    );
}

#[tokio::test]
async fn checksums_are_told_when_they_are_asked_for_and_of_the_whole_only() {
    let desk = Desk::new().await;
    let crc = [
        ("x-amz-checksum-algorithm", "CRC32"),
        ("x-amz-checksum-crc32", "NhCmhg=="),
    ];
    desk.send(Method::PUT, "/demo/k", &crc, "hello").await;
    let asked = ("x-amz-checksum-mode", "ENABLED");
    let told = async |headers: &[(&str, &str)]| {
        header(
            &desk.send(Method::GET, "/demo/k", headers, "").await,
            "x-amz-checksum-crc32",
        )
        .to_string()
    };
    assert_eq!(told(&[asked]).await, "NhCmhg==");
    assert_eq!(told(&[]).await, "");
    assert_eq!(told(&[asked, ("range", "bytes=0-1")]).await, "");
}

#[tokio::test]
async fn a_copy_keeps_or_replaces_what_is_known_about_the_object() {
    let desk = Desk::new().await;
    desk.send(Method::PUT, "/demo/a", &[("x-amz-meta-m", "1")], "hello")
        .await;
    let date = header(&desk.head("/demo/a").await, "last-modified").to_string();
    let copy = async |to: &str, more: &[(&str, &str)]| {
        let headers = [&[("x-amz-copy-source", "/demo/a")], more].concat();
        desk.send(Method::PUT, to, &headers, "").await
    };
    assert_eq!(
        copy("/demo/b", &[("x-amz-copy-source-if-unmodified-since", &date)])
            .await
            .status(),
        StatusCode::OK
    );
    assert_eq!(header(&desk.get("/demo/b").await, "x-amz-meta-m"), "1");
    let replace = [("x-amz-metadata-directive", "REPLACE"), ("x-amz-meta-n", "2")];
    assert_eq!(copy("/demo/a", &replace).await.status(), StatusCode::OK);
    let itself = desk.get("/demo/a").await;
    assert_eq!(
        (itself.body().as_ref(), header(&itself, "x-amz-meta-n")),
        (b"hello".as_ref(), "2")
    );
    assert_eq!(header(&itself, "x-amz-meta-m"), "");
    assert_eq!(error(&copy("/demo/a", &[]).await).1, "InvalidRequest");
    assert_eq!(
        error(&copy("/demo/c", &[("x-amz-copy-source-if-match", "\"x\"")]).await).1,
        "PreconditionFailed"
    );
}

#[tokio::test]
async fn listings_have_etags_and_spell_keys_as_they_are() {
    let desk = Desk::new().await;
    for key in ["a%20b", "pl%2Bus", "p%2525", "%C3%BC", "dir/x", "dir/"] {
        assert_eq!(
            desk.put(&format!("/demo/{key}"), key).await.status(),
            StatusCode::OK,
            "{key}"
        );
    }
    let listed = desk.get("/demo?list-type=2&delimiter=%2F").await;
    assert_eq!(element(&listed, "Key"), ["a b", "p%25", "pl+us", "ü"]);
    assert_eq!(
        element(&listed, "ETag")[0].replace("&quot;", "\""),
        etag(b"a%20b")
    );
    let encoded = desk
        .get("/demo?list-type=2&delimiter=%2F&encoding-type=url")
        .await;
    assert_eq!(element(&encoded, "Key"), ["a%20b", "p%2525", "pl%2Bus", "%C3%BC"]);
    let below = desk.get("/demo?list-type=2&delimiter=%2F&prefix=dir%2F").await;
    assert_eq!(element(&below, "Key"), ["dir/", "dir/x"]);

    let first = desk.get("/demo?max-keys=2&encoding-type=url").await;
    assert_eq!(
        (element(&first, "Key").len(), element(&first, "NextMarker")),
        (2, vec!["dir/.folder".to_string()])
    );
}

#[tokio::test]
async fn a_file_put_or_changed_by_hand_has_the_etag_of_its_content() {
    let desk = Desk::new().await;
    let bucket = desk.folder.path().join("demo");
    fs::write(bucket.join("by-hand"), "hand").unwrap();
    assert_eq!(header(&desk.head("/demo/by-hand").await, "etag"), etag(b"hand"));

    desk.put("/demo/k", "old").await;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    fs::write(bucket.join("k"), "edited").unwrap();
    let got = desk.get("/demo/k").await;
    assert_eq!(
        (got.body().as_ref(), header(&got, "etag")),
        (b"edited".as_ref(), etag(b"edited").as_str())
    );
}

#[tokio::test]
async fn keys_that_cannot_be_files_are_refused_and_collide_with_nothing() {
    let desk = Desk::new().await;
    let long = format!("/demo/{}", "n/".repeat(150));
    for path in [
        "/demo/a//b",
        "/demo/../x",
        "/demo/a/../b",
        "/demo/x/.",
        "/demo//lead",
        &long,
    ] {
        assert_eq!(
            desk.put(path, "x").await.status(),
            StatusCode::BAD_REQUEST,
            "{path}"
        );
    }
    desk.put("/demo/a", "file").await;
    assert_eq!(
        error(&desk.put("/demo/a/b", "x").await),
        (StatusCode::BAD_REQUEST, "InvalidRequest".into())
    );
    desk.delete("/demo/a").await;
    assert_eq!(desk.put("/demo/a/b", "x").await.status(), StatusCode::OK);
    assert_eq!(
        error(&desk.put("/demo/a", "x").await),
        (StatusCode::BAD_REQUEST, "InvalidRequest".into())
    );
    desk.delete("/demo/a/b").await;
    assert_eq!(
        desk.put("/demo/a", "x").await.status(),
        StatusCode::OK,
        "an empty folder is in nobody's way"
    );
}

#[tokio::test]
async fn a_deleted_object_leaves_nothing_behind() {
    let desk = Desk::new().await;
    let files = || fs::read_dir(desk.folder.path()).unwrap().count();
    let before = files();
    desk.put("/demo/x/y/k", "1").await;
    assert!(files() > before);
    desk.delete("/demo/x/y/k").await;
    assert_eq!(
        (files(), desk.folder.path().join("demo/x").exists()),
        (before, false)
    );

    desk.put("/demo/one", "1").await;
    let list = "<Delete><Object><Key>one</Key></Object><Object><Key>none</Key></Object></Delete>";
    let md5 = STANDARD.encode(Md5::digest(list));
    let deleted = desk
        .send(Method::POST, "/demo?delete=", &[("content-md5", &md5)], list)
        .await;
    assert_eq!((element(&deleted, "Key").len(), files()), (2, before));
}

#[tokio::test]
async fn a_bucket_with_objects_is_not_deleted() {
    let desk = Desk::new().await;
    desk.put("/other", "").await;
    assert_eq!(
        error(&desk.put("/other", "").await),
        (StatusCode::CONFLICT, "BucketAlreadyOwnedByYou".into())
    );
    desk.put("/other/k", "x").await;
    assert_eq!(
        error(&desk.delete("/other").await),
        (StatusCode::CONFLICT, "BucketNotEmpty".into())
    );
    desk.delete("/other/k").await;
    assert_eq!(desk.delete("/other").await.status(), StatusCode::NO_CONTENT);
    assert_eq!(element(&desk.get("/").await, "Name"), ["demo"]);
}

#[tokio::test]
async fn strangers_and_wrong_secrets_are_refused() {
    let desk = Desk::new().await;
    desk.put("/demo/k", "x").await;
    assert_eq!(desk.get_as("/demo/k", None).await.status(), StatusCode::FORBIDDEN);
    let wrong = desk.get_as("/demo/k", Some("guess")).await;
    assert_eq!(
        error(&wrong),
        (StatusCode::FORBIDDEN, "SignatureDoesNotMatch".into())
    );
}

#[tokio::test]
async fn versions_and_parts_of_objects_are_refused_and_not_made_up() {
    let desk = Desk::new().await;
    desk.put("/demo/k", "x").await;
    assert_eq!(error(&desk.get("/demo/k?versionId=abc").await).1, "NoSuchVersion");
    assert_eq!(desk.get("/demo/k?versionId=null").await.status(), StatusCode::OK);
    assert_eq!(error(&desk.get("/demo/k?partNumber=2").await).1, "NotImplemented");
}

#[tokio::test]
async fn a_folder_serves_one_lake_at_a_time() {
    let desk = Desk::new().await;
    let second = EmbeddedLake::start(desk.folder.path(), desk.lake.address())
        .await
        .unwrap_err();
    assert!(
        second.to_string().starts_with("cannot use the folder "),
        "{second}"
    );
}

#[tokio::test]
async fn a_restart_keeps_objects_and_clears_what_was_unfinished() {
    let desk = Desk::new().await;
    desk.put("/demo/k", "x").await;
    let torn = desk.folder.path().join(".staging/7");
    fs::write(&torn, "half").unwrap();
    let desk = desk.restarted().await;
    assert_eq!(header(&desk.get("/demo/k").await, "etag"), etag(b"x"));
    assert!(!torn.exists());
}
