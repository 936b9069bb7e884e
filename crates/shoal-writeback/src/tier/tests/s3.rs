//! The S3 store: the conformance suite, and failing stores.
//!
//! The suite runs on the embedded lake, or on the store at `SHOAL_TEST_S3` (a URL) with the key pair
//! `SHOAL_TEST_S3_KEYS` (`access:secret`).

use std::any::Any;
use std::time::Duration;

use http::{Method, StatusCode};
use shoal_base::chance;
use shoal_base::secret::Secret;
use shoal_embedded_lake::{ACCESS_KEY, EmbeddedLake, SECRET_KEY};
use shoal_net::clock;
use shoal_net::endpoint::{Endpoint, EndpointRequest, LakeConfig, NodeCredentials};
use shoal_net::limits::Limits;
use shoal_s3::identity::NODE;
use tempfile::TempDir;

use super::conformance::conforms;
use super::scripted::{Answer, Asked, ScriptedStore};
use super::{Arc, ByteStore, Bytes, Opened, StoreError, body, data, get, new_key, piece, whole};
use crate::tier::probe;
use crate::tier::s3::{S3Store, StorageClasses};
use crate::tier::store::{PieceMd5, PutError};

const SECRET: &str = "a-secret-that-nobody-may-see";

async fn open() -> Opened {
    let (endpoint, rest): (_, Box<dyn Any>) = if let Ok(url) = std::env::var("SHOAL_TEST_S3") {
        let keys = std::env::var("SHOAL_TEST_S3_KEYS").expect("SHOAL_TEST_S3_KEYS=access:secret");
        let (access, secret) = keys.split_once(':').expect("access:secret");
        (endpoint(&url, access, secret), Box::new(()))
    } else {
        let folder = TempDir::new().unwrap();
        let lake = EmbeddedLake::start(folder.path(), ([127, 0, 0, 1], 0).into()).await;
        let lake = lake.unwrap();
        let url = format!("http://{}", lake.address());
        (endpoint(&url, ACCESS_KEY, SECRET_KEY), Box::new((folder, lake)))
    };
    let bucket = format!("tier-{:016x}", chance::bits());
    create_bucket(&endpoint, &bucket).await;
    Opened {
        store: Arc::new(S3Store::new(endpoint, &bucket, StorageClasses::default())),
        _rest: rest,
    }
}

conforms!(open);

fn endpoint(url: &str, access: &str, secret: &str) -> Arc<Endpoint> {
    let config = LakeConfig {
        endpoint: url.into(),
        access_key: Some(access.into()),
        secret_key: Some(Secret::new(secret)),
        ..LakeConfig::default()
    };
    let credentials = NodeCredentials::of_config(&config).unwrap();
    Arc::new(Endpoint::new(&config, &Limits::default(), credentials).unwrap())
}

async fn create_bucket(endpoint: &Endpoint, bucket: &str) {
    let target = format!("/{bucket}").try_into().unwrap();
    let account = endpoint.credentials.own().unwrap();
    let request = EndpointRequest::new("other_write", Method::PUT, target, account, NODE);
    let answer = endpoint.send(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

fn store_at(url: &str, classes: StorageClasses) -> S3Store {
    S3Store::new(endpoint(url, "access", SECRET), "b", classes)
}

/// Starts a store that answers by the script.
pub(super) async fn scripted(
    script: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
) -> (S3Store, ScriptedStore) {
    let scripted = ScriptedStore::start(script).await;
    (store_at(&scripted.url(), StorageClasses::default()), scripted)
}

/// Returns the ETag that S3 computes.
pub(super) fn etag(bytes: &[u8]) -> String {
    use md5::Digest as _;
    shoal_s3::etag::of_md5(&md5::Md5::digest(bytes))
}

fn date() -> String {
    httpdate::fmt_http_date(clock::utc_now())
}

async fn put(store: &S3Store, bytes: &Bytes) -> Result<PieceMd5, PutError> {
    store.put(&new_key(), bytes.len() as u64, whole(bytes)).await
}

fn of_store(result: Result<PieceMd5, PutError>) -> StoreError {
    match result {
        Err(PutError::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_piece_that_the_store_confirms_wrongly_is_removed() {
    for wrong in [Some("\"00000000000000000000000000000000\""), None] {
        let (store, scripted) = scripted(move |asked| match (&*asked.method, wrong) {
            ("PUT", Some(etag)) => Answer::new(200).header("etag", etag),
            _ => Answer::new(204),
        })
        .await;
        let error = of_store(put(&store, &data(1000)).await);
        assert!(matches!(&error, StoreError::Refused(_)), "{error}");
        let asked = scripted.asked();
        assert_eq!(
            (&*asked[0].method, &*asked[1].method, asked.len()),
            ("PUT", "DELETE", 2)
        );
        assert_eq!(asked[0].path(), asked[1].path());
    }
}

#[tokio::test]
async fn a_piece_that_the_store_received_and_did_not_confirm_is_removed() {
    let (store, scripted) = scripted(|asked| match &*asked.method {
        "PUT" => Answer::new(500),
        _ => Answer::new(204),
    })
    .await;
    let error = of_store(put(&store, &data(1000)).await);
    assert!(matches!(&error, StoreError::Unavailable(_)), "{error}");
    for _ in 0..500 {
        if scripted.asked().len() == 2 {
            assert_eq!(scripted.asked()[1].method, "DELETE");
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it stays");
}

#[tokio::test]
async fn the_error_of_a_store_names_its_code_and_no_secret() {
    let table = [
        (
            507,
            "XMinioStorageFull",
            "the store is full: it answered 507 XMinioStorageFull",
        ),
        (
            403,
            "QuotaExceeded",
            "the store is full: it answered 403 QuotaExceeded",
        ),
        (
            503,
            "SlowDown",
            "the store is not available: it answered 503 SlowDown",
        ),
        (
            403,
            "AccessDenied",
            "the store refuses: it answered 403 AccessDenied",
        ),
        (
            404,
            "NoSuchBucket",
            "the store refuses: it answered 404 NoSuchBucket",
        ),
    ];
    for (status, code, told) in table {
        let (store, _scripted) = scripted(move |_| {
            let document = format!("<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>");
            Answer::new(status).body(document)
        })
        .await;
        let error = of_store(put(&store, &data(10)).await);
        assert_eq!(error.to_string(), told);
        let error = get(&store, &new_key(), 0, 10).await.unwrap_err();
        assert_eq!(error.to_string(), told);
        let error = store.list(None, 10).await.unwrap_err();
        assert_eq!(error.to_string(), told);
    }
}

#[tokio::test]
async fn a_store_that_refuses_the_account_is_no_missing_piece() {
    let (store, _scripted) =
        scripted(|_| Answer::new(403).body("<Error><Code>SignatureDoesNotMatch</Code></Error>")).await;
    let error = get(&store, &new_key(), 0, 10).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(_)), "{error}");
    assert!(!format!("{error:?}").contains(SECRET), "{error:?}");
}

#[tokio::test]
async fn a_store_that_is_not_there_fails_at_once() {
    let began = clock::instant();
    let store = store_at("http://127.0.0.1:1", StorageClasses::default());
    let mut errors = vec![of_store(put(&store, &data(10)).await)];
    errors.push(get(&store, &new_key(), 0, 10).await.unwrap_err());
    errors.push(store.list(None, 10).await.unwrap_err());
    errors.push(store.remove(&[new_key()]).await.unwrap_err());
    let many: Vec<_> = (0..1_000).map(|_| new_key()).collect();
    errors.push(store.remove(&many).await.unwrap_err());
    for error in errors {
        assert!(matches!(&error, StoreError::Unavailable(_)), "{error}");
        assert!(!format!("{error:?}").contains(SECRET), "{error:?}");
    }
    let probed = probe::probe(&store).await.unwrap_err().to_string();
    assert!(probed.contains("\nhint: check that the store runs"), "{probed}");
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn a_body_that_breaks_goes_on_where_it_broke() {
    let bytes = data(100);
    let (store, scripted) = scripted({
        let bytes = bytes.clone();
        move |asked| {
            let range = asked.header("range").unwrap();
            let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
            let (first, end) = (
                first.parse::<usize>().unwrap(),
                last.parse::<usize>().unwrap() + 1,
            );
            let part = &bytes[first..end];
            Answer::new(206)
                .header("etag", "\"e\"")
                .header("content-range", &format!("bytes {first}-{last}/100"))
                .header("content-length", &part.len().to_string())
                .body(part[..part.len().div_ceil(2)].to_vec())
        }
    })
    .await;
    // Each response carries half of the missing bytes and then ends: after the third break the read fails.
    let read = get(&store, &new_key(), 10, 100).await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    let ranges: Vec<_> = scripted
        .asked()
        .iter()
        .map(|asked| asked.header("range"))
        .collect();
    assert_eq!(
        ranges[..2],
        [Some("bytes=10-99".into()), Some("bytes=55-99".into())]
    );
    assert!(get(&store, &new_key(), 10, 12).await.unwrap() == bytes[10..12]);
}

#[tokio::test]
async fn a_store_that_answers_another_question_is_an_error() {
    type Change = fn(Answer) -> Answer;
    let ten = || Answer::new(206).header("etag", "\"e\"").body(vec![1; 10]);
    let answers: [(Change, &str); 5] = [
        (|answer| answer, "no range"),
        (
            |answer| answer.header("content-range", "bytes 1-10/100"),
            "another range",
        ),
        (
            |answer| answer.header("content-range", "bytes 0-4/100"),
            "a shorter range",
        ),
        (|answer| answer.status(200), "the whole"),
        (
            |answer| {
                answer
                    .header("content-range", "bytes 0-9/100")
                    .header("content-encoding", "gzip")
            },
            "other bytes",
        ),
    ];
    for (change, what) in answers {
        let (store, _scripted) = scripted(move |_| change(ten())).await;
        let read = get(&store, &new_key(), 0, 10).await;
        assert!(matches!(read, Err(StoreError::Refused(_))), "{what}: {read:?}");
    }
    let (store, _scripted) = scripted(move |_| ten().header("content-range", "bytes 0-8/9")).await;
    let read = get(&store, &new_key(), 0, 10).await;
    assert!(matches!(read, Err(StoreError::Damaged(_))), "{read:?}");
    let (store, _scripted) = scripted(move |_| ten().header("content-range", "bytes 0-8/100")).await;
    let read = get(&store, &new_key(), 0, 9).await;
    assert!(
        matches!(read, Err(StoreError::Damaged(_))),
        "too many bytes: {read:?}"
    );
}

#[tokio::test]
async fn pieces_go_to_the_storage_class_of_their_length() {
    let confirms = |asked: &Asked| Answer::new(200).header("etag", &etag(&asked.data()));
    let scripted = ScriptedStore::start(confirms).await;
    let classes = StorageClasses {
        large: Some("EC42".into()),
        large_bytes: 100,
    };
    let store = store_at(&scripted.url(), classes);
    for size_bytes in [0, 99, 100] {
        put(&store, &data(size_bytes)).await.unwrap();
    }
    let classes: Vec<_> = scripted
        .asked()
        .iter()
        .map(|asked| asked.header("x-amz-storage-class"))
        .collect();
    assert_eq!(classes, [None, None, Some("EC42".into())]);
    let bad = StorageClasses {
        large: Some("a\nb".into()),
        large_bytes: 1,
    };
    let error = of_store(put(&store_at(&scripted.url(), bad), &data(1)).await);
    assert!(matches!(&error, StoreError::Refused(_)), "{error}");
}

#[tokio::test]
async fn pieces_that_a_batch_did_not_remove_are_removed_one_by_one() {
    let keys: Vec<_> = (0..5).map(|_| new_key()).collect();
    let (store, scripted) = scripted({
        let keys = keys.clone();
        move |asked| match &*asked.method {
            "POST" => {
                let deleted = keys[1..4]
                    .iter()
                    .map(|key| format!("<Deleted><Key>pieces/{key}</Key></Deleted>"));
                let deleted = deleted.collect::<Vec<_>>().concat();
                let error = format!(
                    "<Error><Key>pieces/{}</Key><Code>InternalError</Code></Error>",
                    keys[0]
                );
                Answer::new(200).body(format!("<DeleteResult>{deleted}{error}</DeleteResult>"))
            }
            _ if asked.target.ends_with(&*keys[4]) => Answer::new(503),
            _ => Answer::new(204),
        }
    })
    .await;
    let removed = store.remove(&keys).await;
    assert!(matches!(removed, Err(StoreError::Unavailable(_))), "{removed:?}");
    let asked = scripted.asked();
    assert!(asked[0].header("content-md5").is_some());
    let mut single: Vec<_> = asked[1..].iter().map(Asked::path).collect();
    single.sort_unstable();
    let mut expected = [&keys[0], &keys[4]].map(|key| format!("/b/pieces/{key}"));
    expected.sort_unstable();
    assert_eq!(single, expected);
    store.remove(&keys[..4]).await.unwrap();
}

#[tokio::test]
async fn a_listing_without_order_or_date_is_an_error() {
    let page = |keys: &[&str]| {
        let contents = keys.iter().map(|key| {
            format!(
                "<Contents><Key>{key}</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified>\
                 <Size>1</Size></Contents>"
            )
        });
        let contents = contents.collect::<Vec<_>>().concat();
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>")
    };
    let at = |answer: Answer| {
        scripted(move |asked| {
            // The end of a listing is a page without objects.
            let is_beginning = asked.target.ends_with("start-after=");
            let end = Answer::new(200).header("date", &date()).body(page(&[]));
            if is_beginning { answer.clone() } else { end }
        })
    };
    let keys = ["pieces/", "pieces/a", "pieces/b c", "pieces/d"];
    let (store, _scripted) = at(Answer::new(200).header("date", &date()).body(page(&keys))).await;
    let listed = store.list(None, 10).await.unwrap();
    let listed: Vec<_> = listed.pieces.iter().map(|piece| &*piece.key).collect();
    assert_eq!(listed, ["a", "d"], "other objects are left alone");
    let dated = Answer::new(200).header("date", "Thu, 02 Jan 2020 00:00:00 GMT");
    let (store, _scripted) = at(dated.body(page(&["pieces/a"]))).await;
    let listed = store.list(None, 10).await.unwrap();
    assert_eq!(
        listed.pieces[0].age,
        Duration::from_hours(24),
        "by the store's own clock"
    );
    let wrong = [
        Answer::new(200).body(page(&["pieces/a"])),
        Answer::new(200)
            .header("date", &date())
            .body(page(&["pieces/b", "pieces/a"])),
        Answer::new(200)
            .header("date", &date())
            .body(page(&["pieces/a", "pieces/a"])),
        Answer::new(200).header("date", &date()).body("<html/>"),
        Answer::new(200)
            .header("date", &date())
            .body("<ListBucketResult/>"),
        Answer::new(200)
            .header("date", &date())
            .body(page(&["pieces/a"]).replace("2020-01-01T00:00:00.000Z", "now")),
    ];
    for answer in wrong {
        let (store, _scripted) = at(answer).await;
        let listed = store.list(None, 10).await;
        assert!(matches!(listed, Err(StoreError::Refused(_))), "{listed:?}");
    }
}

#[tokio::test]
async fn a_bucket_that_loses_or_hoards_pieces_is_refused() {
    let settings = [
        (
            "?versioning",
            "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>",
            "keeps versions",
        ),
        (
            "?object-lock",
            "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>",
            "object lock",
        ),
        (
            "?lifecycle",
            "<LifecycleConfiguration><Rule><Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule>\
             </LifecycleConfiguration>",
            "lifecycle rule",
        ),
    ];
    for (question, document, told) in settings {
        let (store, _scripted) = scripted(move |asked| {
            if asked.target.ends_with(question) {
                Answer::new(200).body(document.to_owned())
            } else {
                Answer::new(501)
            }
        })
        .await;
        let refused = probe::probe(&store).await.unwrap_err().to_string();
        assert!(
            refused.contains(told) && refused.contains("\nhint: "),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn a_bucket_that_hides_its_settings_is_found_out_and_left_as_it_was() {
    let (store, scripted) = scripted(|asked| match &*asked.method {
        "PUT" => Answer::new(200)
            .header("etag", &etag(&asked.data()))
            .header("x-amz-version-id", "v/1"),
        "DELETE" => Answer::new(204),
        _ => Answer::new(403).body("<Error><Code>AccessDenied</Code></Error>"),
    })
    .await;
    let refused = probe::probe(&store).await.unwrap_err().to_string();
    assert!(refused.contains("keeps versions"), "{refused}");
    let asked = scripted.asked();
    assert!(asked.last().unwrap().target.ends_with("?versionId=v%2F1"));
}

#[tokio::test]
async fn an_early_answer_is_no_confirmation() {
    // The server answers before it reads the body.
    let scripted = ScriptedStore::impatient(|_| Answer::new(200).header("etag", &etag(&data(4 << 20)))).await;
    let store = store_at(&scripted.url(), StorageClasses::default());
    let never = futures_util::StreamExt::boxed(futures_util::stream::pending());
    let early = store.put(&new_key(), 4 << 20, never).await;
    let error = of_store(early);
    assert!(matches!(&error, StoreError::Unavailable(_)), "{error}");
    let empty = store.put(&new_key(), 0, body(vec![])).await;
    assert!(empty.is_err(), "the ETag is not that of nothing");
}

#[tokio::test]
async fn a_copy_is_what_the_store_says_it_is_or_removed() {
    let bytes = data(1000);
    let right = etag(&bytes);
    let result = |etag: &str| format!("<CopyObjectResult><ETag>{etag}</ETag></CopyObjectResult>");
    let late = "<Error><Code>SlowDown</Code></Error>".to_owned();
    for (status, body, is_copied, is_removed) in [
        (200, result(&right), true, false),
        (200, result("\"other\""), false, true),
        (200, late, false, true),
        (500, String::new(), false, true),
        (403, String::new(), false, false),
    ] {
        let right = right.clone();
        let scripted = ScriptedStore::start(move |asked| match &*asked.method {
            "HEAD" => Answer::new(200)
                .header("etag", &right)
                .header("content-length", "1000"),
            "PUT" => Answer::new(status).body(body.clone()),
            _ => Answer::new(204),
        })
        .await;
        let classes = StorageClasses {
            large: Some("EC42".into()),
            large_bytes: 1000,
        };
        let store = store_at(&scripted.url(), classes);
        let (from, to) = (new_key(), new_key());
        let copied = store.copy(&piece(&from, 1000), &to).await;
        assert_eq!(copied.is_ok(), is_copied, "{status}: {copied:?}");
        let asked = scripted.asked();
        let put = asked.iter().find(|asked| asked.method == "PUT").unwrap();
        let source = put.header("x-amz-copy-source").unwrap();
        assert_eq!(source, format!("b/pieces/{from}"));
        assert_eq!(put.header("x-amz-copy-source-if-match"), Some(etag(&bytes)));
        assert_eq!(put.header("x-amz-storage-class").unwrap(), "EC42");
        let is_deletion = |asked: &Asked| asked.method == "DELETE" && asked.path().ends_with(&*to);
        for _ in 0..100 {
            if is_removed == scripted.asked().iter().any(is_deletion) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(scripted.asked().iter().any(is_deletion), is_removed, "{status}");
    }
}
