//! The probe of copies, on stores that copy incorrectly or not at all.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;

use super::Arc;
use super::s3::{etag, scripted};
use super::scripted::{Answer, Asked};
use crate::tier::probe;
use crate::tier::store::ProbeError;

/// Marks an object as a link to another one, whose name follows.
const LINK: &str = "link to ";

type Objects = BTreeMap<String, Bytes>;

/// Returns a store's response to a copy of the first name to the second.
type Copies = fn(&mut Objects, &str, &str) -> Answer;

/// Returns the response to a copy of these bytes.
fn copied(bytes: &Bytes) -> Answer {
    let etag = etag(bytes);
    Answer::new(200).body(format!(
        "<CopyObjectResult><ETag>{etag}</ETag></CopyObjectResult>"
    ))
}

fn refusal(status: u16, code: &str) -> Answer {
    Answer::new(status).body(format!("<Error><Code>{code}</Code></Error>"))
}

/// Returns the bytes under a name, which may be a link to another one.
fn find<'a>(objects: &'a Objects, name: &str) -> Option<&'a Bytes> {
    let bytes = objects.get(name)?;
    match bytes.strip_prefix(LINK.as_bytes()) {
        Some(source) => objects.get(std::str::from_utf8(source).unwrap()),
        None => Some(bytes),
    }
}

/// Answers as any store does, except for copies.
fn answer(objects: &mut Objects, asked: &Asked, copies: Copies) -> Answer {
    let name = asked.path().to_owned();
    match (&*asked.method, asked.header("x-amz-copy-source")) {
        ("PUT", Some(source)) => copies(objects, &format!("/{source}"), &name),
        ("PUT", None) => {
            let bytes = Bytes::from(asked.data());
            let etag = etag(&bytes);
            objects.insert(name, bytes);
            Answer::new(200).header("etag", &etag)
        }
        ("DELETE", _) => {
            objects.remove(&name);
            Answer::new(204)
        }
        (method, _) => match find(objects, &name) {
            None => refusal(404, "NoSuchKey"),
            Some(bytes) if method == "HEAD" => Answer::new(200)
                .header("etag", &etag(bytes))
                .header("content-length", &bytes.len().to_string()),
            Some(bytes) => {
                let range = asked.header("range").unwrap();
                let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
                let (first, last) = (first.parse::<usize>().unwrap(), last.parse::<usize>().unwrap());
                Answer::new(206)
                    .header("etag", &etag(bytes))
                    .header("content-range", &format!("bytes {first}-{last}/{}", bytes.len()))
                    .body(bytes[first..=last].to_vec())
            }
        },
    }
}

/// Returns the outcome of the probe on such a store, and the names of the objects that it leaves behind.
async fn probed(copies: Copies) -> (Result<(), ProbeError>, Vec<String>) {
    let objects = Arc::<Mutex<Objects>>::default();
    let (store, _scripted) = scripted({
        let objects = Arc::clone(&objects);
        move |asked| answer(&mut objects.lock(), asked, copies)
    })
    .await;
    let probed = probe::probe_copy(&store).await;
    let left = objects.lock().keys().cloned().collect();
    (probed, left)
}

#[tokio::test]
async fn a_store_that_copies_passes() {
    let (probed, left) = probed(|objects, from, to| {
        let bytes = objects[from].clone();
        let answer = copied(&bytes);
        objects.insert(to.into(), bytes);
        answer
    })
    .await;
    assert_eq!(probed, Ok(()));
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_store_that_copies_wrongly_or_not_at_all_is_told_with_a_hint() {
    let table: [(Copies, &str); 6] = [
        (
            |_, _, _| refusal(501, "NotImplemented"),
            "does not copy a piece: the store refuses: it answered 501 NotImplemented",
        ),
        (
            |_, _, _| refusal(403, "AccessDenied"),
            "does not copy a piece: the store refuses: it answered 403 AccessDenied",
        ),
        (
            // Treats the request as a PUT of an empty object.
            |objects, _, to| {
                objects.insert(to.into(), Bytes::new());
                Answer::new(200).header("etag", &etag(b""))
            },
            "does not copy a piece: the store refuses: its answer is not that of a copy",
        ),
        (
            |objects, from, _| copied(&objects[from]),
            "says that it has copied a piece, and then does not return a piece: the store has no such piece",
        ),
        (
            // A link: it can be read while its source exists.
            |objects, from, to| {
                let answer = copied(&objects[from]);
                objects.insert(to.into(), format!("{LINK}{from}").into());
                answer
            },
            "says that it has copied a piece, and then does not return a piece: the store has no such piece",
        ),
        (
            |objects, from, to| {
                let answer = copied(&objects[from]);
                objects.insert(to.into(), vec![0; objects[from].len()].into());
                answer
            },
            "says that it has copied a piece, and then returns other bytes than it was given",
        ),
    ];
    for (copies, told) in table {
        let (probed, left) = probed(copies).await;
        let error = probed.unwrap_err();
        assert!(!error.is_outage, "{error}");
        assert!(error.problem.ends_with(told), "{error}");
        assert!(error.hint.contains("use a store that has CopyObject"), "{error}");
        assert!(left.is_empty(), "{told}: {left:?}");
    }
}

#[tokio::test]
async fn a_store_that_has_no_time_to_copy_may_pass_later() {
    let (probed, left) = probed(|_, _, _| refusal(503, "SlowDown")).await;
    let error = probed.unwrap_err();
    assert!(error.is_outage, "{error}");
    assert!(error.problem.contains("does not copy a piece"), "{error}");
    assert!(error.hint.contains("check that the store runs"), "{error}");
    assert!(left.is_empty(), "{left:?}");
}
