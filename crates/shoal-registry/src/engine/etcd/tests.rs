//! Members that lose answers, send others elsewhere, and do not stop talking.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use super::{Etcd, Settings};
use crate::engine::{Change, Condition, Engine, EngineError, Outcome, Revision, SessionId, Transaction};

const TIMEOUT: Duration = Duration::from_secs(1);

/// Answers each request with the same bytes, then closes the connection. Returns its URL and the number of
/// requests it has seen.
async fn member(answer: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    member_with(vec![answer]).await
}

/// Answers requests with these bytes in turn, all later ones with the last of them.
async fn member_with(answers: Vec<Vec<u8>>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}") && client.read_buf(&mut request).await.unwrap_or(0) > 0 {}
            let number = counted.fetch_add(1, Ordering::Relaxed);
            let answer = &answers[number.min(answers.len() - 1)];
            // The client may have had enough.
            let _ = client.write_all(answer).await;
        }
    });
    (url, seen)
}

fn http(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into()
}

fn healthy() -> Vec<u8> {
    http("200 OK", r#"{"header":{"revision":"7"},"succeeded":true}"#)
}

fn etcd(members: &[&str]) -> Etcd {
    Etcd::new(&Settings {
        timeout: TIMEOUT,
        ..Settings::at(members.join(","))
    })
    .unwrap()
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_unknown_and_is_not_sent_again() {
    let (second, asked) = member(healthy()).await;
    for answer in [
        Vec::new(),
        b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{\"header\"".to_vec(),
        http("200 OK", "not JSON"),
        http(
            "503 Service Unavailable",
            r#"{"message":"etcdserver: request timed out"}"#,
        ),
        http("502 Bad Gateway", "<html>"),
    ] {
        let (first, _) = member(answer.clone()).await;
        let unknown = etcd(&[&first, &second]).commit(Transaction::default()).await;
        assert!(
            matches!(unknown, Err(EngineError::Unknown(_))),
            "{unknown:?} after {answer:?}"
        );
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        assert_eq!(
            etcd(&[&first, &second]).get(b"a").await,
            Ok(None),
            "another member can be read from"
        );
        assert_eq!(asked.swap(0, Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn a_commit_that_surely_did_not_happen_goes_to_the_next_member() {
    // Holds its port and does not listen. A port that is free could go to a member of another test.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let unreachable = format!("http://{}", closed.local_addr().unwrap());
    let (leaderless, _) = member(http(
        "503 Service Unavailable",
        r#"{"message":"etcdserver: no leader"}"#,
    ))
    .await;
    let (third, asked) = member(healthy()).await;
    let engine = etcd(&[&unreachable, &leaderless, &third]);
    for commits in 1..4 {
        let outcome = engine.commit(Transaction::default()).await;
        assert_eq!(outcome, Ok(Outcome::Committed(Revision(7))));
        assert_eq!(asked.load(Ordering::Relaxed), commits);
    }
    let unavailable = etcd(&[&unreachable, &leaderless])
        .commit(Transaction::default())
        .await;
    assert!(
        matches!(unavailable, Err(EngineError::Unavailable(_))),
        "{unavailable:?}"
    );
}

#[tokio::test]
async fn a_commit_without_room_did_not_happen_only_if_its_key_is_as_it_was() {
    let full = http(
        "429 Too Many Requests",
        r#"{"message":"etcdserver: mvcc: database space exceeded"}"#,
    );
    let at = |revision: u64| {
        let found = format!(
            r#"{{"header":{{"revision":"9"}},"kvs":[{{"key":"YQ==","value":"","mod_revision":"{revision}"}}]}}"#
        );
        http("200 OK", &found)
    };
    let key = Bytes::from_static(b"a");
    let change = Change::put(key.clone(), Bytes::new());
    let expecting = |revision| Transaction {
        conditions: vec![Condition {
            key: key.clone(),
            revision,
        }],
        changes: vec![change.clone()],
    };
    for (transaction, now, happened_perhaps) in [
        (expecting(Some(Revision(7))), at(7), false),
        (expecting(Some(Revision(7))), at(8), true),
        (expecting(Some(Revision(7))), healthy(), true),
        (expecting(None), healthy(), false),
        (expecting(None), at(8), true),
        (expecting(None), http("502 Bad Gateway", "<html>"), true),
        (Transaction::from(change.clone()), healthy(), true),
    ] {
        let (only, _) = member_with(vec![full.clone(), now.clone()]).await;
        let error = etcd(&[&only]).commit(transaction.clone()).await.unwrap_err();
        let is_as_expected = match &error {
            EngineError::Full(_) => !happened_perhaps,
            EngineError::Unknown(_) => happened_perhaps,
            _ => false,
        };
        assert!(is_as_expected, "{error:?} for {transaction:?}");
        assert!(error.to_string().contains("NOSPACE"), "{error}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (elsewhere, asked) = member(healthy()).await;
    let redirect =
        format!("HTTP/1.1 307 Moved\r\nlocation: {elsewhere}/v3/kv/txn\r\ncontent-length: 0\r\n\r\n");
    let (first, _) = member(redirect.into()).await;
    let refused = etcd(&[&first]).commit(Transaction::default()).await;
    assert!(matches!(refused, Err(EngineError::Refused(_))), "{refused:?}");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_endless_answer_and_a_silent_member_end_in_time() {
    let endless = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b' '; 33 << 20]].concat();
    let (endless, _) = member(endless).await;
    let refused = etcd(&[&endless]).get(b"a").await;
    assert!(refused.is_err(), "{refused:?}");
    // The kernel accepts the connection; the test never does.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let engine = etcd(&[&format!("http://{}", silent.local_addr().unwrap())]);
    let began = tokio::time::Instant::now();
    let unknown = engine.commit(Transaction::default()).await;
    assert!(matches!(unknown, Err(EngineError::Unknown(_))), "{unknown:?}");
    let unread = engine.get(b"a").await;
    assert!(matches!(unread, Err(EngineError::Unavailable(_))), "{unread:?}");
    assert!(began.elapsed() < TIMEOUT * 4, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_transaction_is_written_as_etcd_reads_it() {
    let transaction = Transaction {
        conditions: vec![
            Condition {
                key: Bytes::from_static(b"a\xff"),
                revision: Some(Revision(7)),
            },
            Condition::absent(Bytes::from_static(b"b")),
        ],
        changes: vec![
            Change::Put {
                key: Bytes::from_static(b"a\xff"),
                value: Bytes::new(),
                session: Some(SessionId(1 << 60)),
            },
            Change::delete(Bytes::from_static(b"b")),
        ],
    };
    let engine = Etcd::new(&Settings {
        prefix: "p/".into(),
        ..Settings::at("http://127.0.0.1:9")
    });
    let expected = r#"{"compare":[{"key":"cC9h/w==","mod_revision":"7","result":"EQUAL","target":"MOD"},{"key":"cC9i","mod_revision":"0","result":"EQUAL","target":"MOD"}],"success":[{"request_put":{"key":"cC9h/w==","lease":"1152921504606846976","value":""}},{"request_delete_range":{"key":"cC9i"}}]}"#;
    assert_eq!(engine.unwrap().request_of(&transaction).to_string(), expected);
}
