//! Conditions: those of the client, and the one that the node adds.

use std::time::{Duration, SystemTime};

use http::{HeaderName, HeaderValue, StatusCode};

use shoal_node::config::Config;

use super::{GUEST, cached, guest, is_question, node, open, stored, with_account};
use crate::gate::refused;
use crate::lake::{Access, Fault, Object};

#[tokio::test]
async fn conditions_of_the_client_are_the_lakes_to_judge() {
    let node = node(with_account).await;
    let etag = node.lake.put("b", "k", "bytes");
    assert_eq!(guest(&node).get("/b/k").send().await.text(), "bytes");
    stored(&node, 1).await;
    let get = || guest(&node).get("/b/k");
    let unsigned = |name: &'static str, value: &str| {
        let value = HeaderValue::try_from(value).unwrap();
        get().tampered(move |request| {
            request.headers_mut().insert(HeaderName::from_static(name), value);
        })
    };
    for call in [
        get().header("if-none-match", &etag),
        unsigned("if-none-match", &etag),
    ] {
        let reply = call.send().await;
        assert_eq!((reply.status, reply.text()), (StatusCode::NOT_MODIFIED, ""));
    }
    for call in [get().header("if-match", "\"x\""), unsigned("if-match", "\"x\"")] {
        refused(
            &call.send().await,
            StatusCode::PRECONDITION_FAILED,
            "PreconditionFailed",
        );
    }
    for call in [get().header("if-match", &etag), unsigned("if-match", &etag)] {
        let reply = call.send().await;
        assert_eq!((cached(&reply), reply.text()), ("REVALIDATED", "bytes"));
    }
    // A stolen ETag opens nothing.
    node.lake.deny(GUEST, Access::Read, "b");
    for call in [
        get().header("if-none-match", &etag),
        unsigned("if-none-match", &etag),
        get().header("if-match", &etag),
    ] {
        refused(&call.send().await, StatusCode::FORBIDDEN, "AccessDenied");
    }
}

#[tokio::test]
async fn a_lake_that_does_not_combine_conditions_is_asked_with_both_once() {
    let node = node(with_account).await;
    let etag = node.lake.put("b", "k", "bytes");
    guest(&node).get("/b/k").send().await;
    stored(&node, 1).await;
    node.lake.misbehave(
        Fault::new()
            .and_ignores("if-none-match")
            .when(is_question)
            .always(),
    );
    node.lake.forget_requests();
    for _ in 0..3 {
        let reply = guest(&node).get("/b/k").header("if-match", &etag).send().await;
        assert_eq!((reply.status, reply.text()), (StatusCode::OK, "bytes"));
    }
    assert_eq!(node.lake.count(is_question), 1);

    // A lake that refuses both together says nothing about the object.
    let node = self::node(with_account).await;
    let etag = node.lake.put("b", "k", "bytes");
    guest(&node).get("/b/k").send().await;
    stored(&node, 1).await;
    node.lake.misbehave(Fault::status(412).when(is_question).always());
    let reply = guest(&node).get("/b/k").header("if-match", &etag).send().await;
    assert_eq!((reply.status, reply.text()), (StatusCode::OK, "bytes"));
}

#[tokio::test]
async fn a_lake_whose_304_has_no_date_is_asked_about_the_date() {
    let node = node(with_account).await;
    let put = |kind: &str, day: u64| {
        let time = std::time::UNIX_EPOCH + Duration::from_hours(24 * day);
        let object = Object::new("bytes").modified_at(time);
        node.lake.put("b", "k", object.header("x-amz-meta-kind", kind));
    };
    node.lake.misbehave(
        Fault::new()
            .without_header("last-modified")
            .when(is_question)
            .always(),
    );
    put("a", 1);
    guest(&node).get("/b/k").send().await;
    stored(&node, 1).await;
    node.lake.forget_requests();
    for questions in [2, 3] {
        let reply = guest(&node).get("/b/k").send().await;
        assert_eq!((cached(&reply), reply.text()), ("REVALIDATED", "bytes"));
        assert_eq!(node.lake.requests().len(), questions);
    }
    put("b", 2);
    let reply = guest(&node).get("/b/k").send().await;
    assert_eq!(reply.header("x-amz-meta-kind"), Some("b"));
}

#[tokio::test]
async fn headers_that_may_change_within_the_second_are_not_confirmed() {
    let date = "Tue, 06 Jan 2026 10:00:00 GMT";
    let second = httpdate::parse_http_date(date).unwrap();
    for change in [open as fn(&mut Config), with_account] {
        let node = node(change).await;
        let put = |kind: &str, time: SystemTime| {
            let object = Object::new("bytes").modified_at(time);
            node.lake.put("b", "k", object.header("x-amz-meta-kind", kind));
        };
        let read = async || {
            let reply = guest(&node).get("/b/k").send().await;
            assert_eq!((reply.status, reply.text()), (StatusCode::OK, "bytes"));
            let kind = reply.header("x-amz-meta-kind").unwrap().to_owned();
            (cached(&reply) == "REVALIDATED", kind)
        };
        // The lake's clock stands still in the second of the write.
        node.lake
            .misbehave(Fault::new().with_header("date", date).always());
        put("a", second);
        assert_eq!(read().await, (false, "a".to_owned()));
        stored(&node, 1).await;
        put("b", second);
        assert_eq!(read().await, (false, "b".to_owned()));
        assert_eq!(node.lake.count(is_question), 0);
        // A client with an identity gets the node's date, not the one that is kept with the version. Its read
        // was answered within the second, too, so the guest's next one is not confirmed.
        let reply = node.client().get("/b/k").send().await;
        assert_eq!(reply.header("x-amz-meta-kind"), Some("b"));
        assert_ne!(reply.header("date"), Some(date));
        put("c", second);
        assert_eq!(read().await, (false, "c".to_owned()));

        // Later the first read is enough, or a look of the node.
        put("d", second - Duration::from_secs(1));
        assert_eq!(read().await.1, "d");
        assert_eq!(read().await, (true, "d".to_owned()));
    }
}

#[tokio::test]
async fn a_304_about_another_etag_confirms_nothing() {
    let node = node(with_account).await;
    node.lake.put("b", "k", "bytes");
    guest(&node).get("/b/k").send().await;
    stored(&node, 1).await;
    let forged = Fault::new().with_header("etag", "\"another\"");
    node.lake.misbehave(forged.when(is_question).always());
    node.lake.forget_requests();
    let reply = guest(&node).get("/b/k").send().await;
    assert_eq!((reply.status, reply.text()), (StatusCode::OK, "bytes"));
    assert_ne!(cached(&reply), "REVALIDATED");
    assert_eq!(node.lake.requests().len(), 2, "the lake is asked for the bytes");
}

#[tokio::test]
async fn a_header_of_s3_that_may_change_the_answer_keeps_the_node_from_asking() {
    let node = node(with_account).await;
    node.lake.put("b", "k", "bytes");
    guest(&node).get("/b/k").send().await;
    stored(&node, 1).await;
    node.lake.forget_requests();
    let call = guest(&node).get("/b/k");
    let reply = call
        .header("x-amz-server-side-encryption", "aws:kms")
        .send()
        .await;
    assert_eq!((cached(&reply), reply.text()), ("BYPASS", "bytes"));
    assert_eq!(node.lake.count(is_question), 0);
}
