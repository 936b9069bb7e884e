//! Stories of retries: the requests that the endpoint sends again, and those that it does not.

use http::{Method, StatusCode};
use shoal_net::endpoint::{Failure, RequestBody};
use shoal_node::config;

use super::{
    PATIENCE, STALL_TIMEOUT, endpoint, endpoint_with, failure, get, patient_endpoint, put, read_text,
    request, whole,
};
use crate::lake::{ACCESS_KEY, Access, Fault, Lake, Request};

#[tokio::test]
async fn passing_trouble_is_tried_again_and_the_client_never_knows() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    let endpoint = patient_endpoint(&lake);
    for fault in [
        Fault::status(500),
        Fault::status(502),
        Fault::status(503),
        Fault::status(504),
        Fault::reset(),
    ] {
        lake.misbehave(fault.times(2));
        assert_eq!(
            read_text(&endpoint, get("/bucket/key")).await,
            (StatusCode::OK, "x".into())
        );
    }
    let counts = endpoint.counters();
    // Of each pair of resets the first may befall a connection that was open before: that one is not counted.
    assert!((9..=10).contains(&counts.retries.get()), "{counts:?}");
    assert_eq!(
        counts.requests.counts()["Test"],
        lake.count(Request::is_get) as u64
    );
    assert_eq!(lake.count(Request::is_get), 15);
}

#[tokio::test]
async fn trouble_that_stays_is_given_as_it_is() {
    let lake = Lake::start().await;
    let endpoint = patient_endpoint(&lake);
    lake.misbehave(Fault::status(503).always());
    let (status, text) = read_text(&endpoint, get("/bucket/key")).await;
    assert_eq!(
        (status, lake.count(Request::is_get)),
        (StatusCode::SERVICE_UNAVAILABLE, 3)
    );
    assert!(text.contains("SlowDown"), "{text}");
    assert_eq!(
        endpoint.counters().connections.get(),
        1,
        "error bodies are read to their end"
    );
}

#[tokio::test]
async fn a_lake_that_asks_for_more_time_than_we_have_is_not_asked_again() {
    let lake = Lake::start().await;
    lake.misbehave(Fault::status(503).with_header("retry-after", "60").always());
    let response = endpoint(&lake).send(get("/bucket/key")).await.unwrap();
    assert_eq!(response.headers()["retry-after"], "60");
    assert_eq!(lake.count(Request::is_get), 1);
}

#[tokio::test]
async fn denials_and_writes_are_never_repeated() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    lake.deny(ACCESS_KEY, Access::Read, "bucket/secret");
    let endpoint = endpoint(&lake);
    for target in ["/bucket/none", "/bucket/secret"] {
        endpoint.send(get(target)).await.unwrap();
        lake.misbehave(Fault::status(503));
        let body = RequestBody::Stream {
            length: Some(1),
            body: whole("y"),
        };
        assert_eq!(
            read_text(&endpoint, put(target, body)).await.0,
            StatusCode::SERVICE_UNAVAILABLE
        );
        lake.misbehave(Fault::status(503));
        let delete = request(Method::DELETE, target);
        assert_eq!(
            read_text(&endpoint, delete).await.0,
            StatusCode::SERVICE_UNAVAILABLE
        );
        lake.misbehave(Fault::reset());
        assert_eq!(
            failure(endpoint.send(put(target, RequestBody::Empty)).await),
            Failure::BrokenOff
        );
    }
    assert_eq!((lake.count(|_| true), endpoint.counters().retries.get()), (8, 0));
}

#[tokio::test]
async fn retries_end_with_their_budget() {
    let lake = Lake::start().await;
    lake.misbehave(Fault::status(503).always());
    let endpoint = endpoint(&lake);
    for _ in 0..30 {
        read_text(&endpoint, get("/bucket/key")).await;
    }
    // A burst of ten, and one more for every ten requests.
    let retries = endpoint.counters().retries.get();
    assert!((10..=13).contains(&retries), "{retries}");
    assert_eq!(lake.count(Request::is_get) as u64, 30 + retries);
}

#[tokio::test]
async fn no_try_begins_when_the_client_has_waited_long() {
    let lake = Lake::start().await;
    lake.misbehave(Fault::reset().late(PATIENCE * 5 / 8).always());
    let endpoint = patient_endpoint(&lake);
    assert_eq!(
        failure(endpoint.send(get("/bucket/key")).await),
        Failure::BrokenOff
    );
    assert_eq!(
        lake.count(Request::is_get),
        2,
        "after the second try the time for one answer is over"
    );
}

#[tokio::test]
async fn a_connection_that_went_stale_is_replaced_without_a_retry() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    let limits = config::Limits {
        retry_budget_percent: 0,
        ..config::Limits::default()
    };
    let endpoint = endpoint_with(&lake, STALL_TIMEOUT, &limits);
    read_text(&endpoint, get("/bucket/key")).await;

    // Closed while idle: noticed before anything is sent, so that writes are safe too.
    lake.stop().await;
    lake.resume().await;
    let body = RequestBody::Stream {
        length: Some(1),
        body: whole("y"),
    };
    assert_eq!(
        read_text(&endpoint, put("/bucket/key", body)).await.0,
        StatusCode::OK
    );

    // Closed while the request was under way.
    lake.misbehave(Fault::reset());
    assert_eq!(
        read_text(&endpoint, get("/bucket/key")).await,
        (StatusCode::OK, "y".into())
    );
    assert_eq!(endpoint.counters().retries.get(), 0);

    // On a new connection it is the lake's fault.
    lake.misbehave(Fault::reset().times(2));
    assert_eq!(
        failure(endpoint.send(get("/bucket/key")).await),
        Failure::BrokenOff
    );
}
