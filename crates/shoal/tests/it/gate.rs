//! Stories of requests that a node must not let in.

use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use shoal_net::clock;
use shoal_node::config::Anonymous;
use shoal_s3::identity::Account;

use crate::chunks::Checksum;
use crate::client::{Client, Payload, Reply};
use crate::lake::{ACCESS_KEY, ANONYMOUS, Access, SECRET_KEY};
use crate::node::{Node, OTHER_KEY};

/// Changes a request after it was signed.
type Tamper = fn(&mut http::Request<bytes::Bytes>);

const MINUTE: Duration = Duration::from_mins(1);

pub(crate) fn refused(reply: &Reply, status: StatusCode, code: &str) {
    assert_eq!((reply.status, reply.code()), (status, code), "{}", reply.text());
    assert!(reply.header("x-amz-request-id").is_some());
}

#[tokio::test]
async fn wrong_keys_and_wrong_signatures_are_told_apart_as_s3_does() {
    let node = Node::start().await;
    node.lake.put("b", "k", "x");
    let stranger = Client::signing(node.address(), "nobody", "nothing");
    refused(
        &stranger.get("/b/k").send().await,
        StatusCode::FORBIDDEN,
        "InvalidAccessKeyId",
    );
    let impostor = Client::signing(node.address(), ACCESS_KEY, "guess");
    refused(
        &impostor.get("/b/k").send().await,
        StatusCode::FORBIDDEN,
        "SignatureDoesNotMatch",
    );
    assert!(node.lake.requests().is_empty(), "the lake was not even asked");
    let metrics = node.admin("/metrics").await;
    for code in ["InvalidAccessKeyId", "SignatureDoesNotMatch"] {
        let counted = format!("shoal_refusals_total{{reason=\"{code}\"}} 1");
        assert!(metrics.text().contains(&counted), "{counted}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_request_changed_after_signing_is_refused() {
    let node = Node::start().await;
    node.lake.put("b", "k", "x");
    let tamper: [(&str, Tamper); 4] = [
        ("path", |request| {
            *request.uri_mut() = request
                .uri()
                .to_string()
                .replace("/b/k", "/b/other")
                .parse()
                .unwrap();
        }),
        ("method", |request| *request.method_mut() = http::Method::DELETE),
        ("host", |request| {
            request
                .headers_mut()
                .insert("host", HeaderValue::from_static("elsewhere"));
        }),
        ("query", |request| {
            *request.uri_mut() = format!("{}?versionId=7", request.uri()).parse().unwrap();
        }),
    ];
    for (what, tamper) in tamper {
        let reply = node.client().get("/b/k").tampered(tamper).send().await;
        assert_eq!(reply.code(), "SignatureDoesNotMatch", "{what}");
    }
    node.stop().await;
}

#[tokio::test]
async fn unsigned_amz_headers_are_refused() {
    let node = Node::start().await;
    node.lake.put("b", "k", "x");
    for call in [
        node.client().get("/b/k"),
        node.client().get("/b/k").presigned(MINUTE),
    ] {
        let call = call.tampered(|request| {
            request
                .headers_mut()
                .insert("x-amz-copy-source", HeaderValue::from_static("/b/secret"));
        });
        let reply = call.send().await;
        refused(&reply, StatusCode::FORBIDDEN, "AccessDenied");
        assert!(
            reply.text().contains("<HeadersNotSigned>x-amz-copy-source<"),
            "{}",
            reply.text()
        );
    }
    node.stop().await;
}

#[tokio::test]
async fn headers_about_the_body_alone_may_be_added_after_signing() {
    let node = Node::start().await;
    node.lake.create_bucket("b");
    for presigned in [false, true] {
        let put = node.client().put("/b/k", "bytes").payload(Payload::Unsigned);
        let put = if presigned { put.presigned(MINUTE) } else { put };
        let call = put.tampered(move |request| {
            let headers = request.headers_mut();
            headers.insert("x-amz-decoded-content-length", HeaderValue::from_static("5"));
            headers.insert("x-amz-checksum-algorithm", HeaderValue::from_static("CRC32"));
            headers.insert(
                "x-amz-content-sha256",
                HeaderValue::from_static("UNSIGNED-PAYLOAD"),
            );
        });
        let reply = call.send().await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    }
    let call = node.client().put("/b/k", "bytes").presigned(MINUTE);
    let chunks = call.tampered(|request| {
        let chunks = HeaderValue::from_static("STREAMING-UNSIGNED-PAYLOAD-TRAILER");
        request.headers_mut().insert("x-amz-content-sha256", chunks);
    });
    refused(&chunks.send().await, StatusCode::BAD_REQUEST, "InvalidRequest");
    node.stop().await;
}

#[tokio::test]
async fn a_client_with_temporary_credentials_is_told_what_to_do() {
    let node = Node::start().await;
    node.lake.put("b", "k", "x");
    let with_token = |client: Client| client.get("/b/k").header("x-amz-security-token", "token").send();
    let stranger = with_token(Client::signing(node.address(), "ASIANOBODY", "nothing")).await;
    refused(&stranger, StatusCode::FORBIDDEN, "InvalidAccessKeyId");
    assert!(
        stranger.text().contains("does not know the access key"),
        "{}",
        stranger.text()
    );
    let known = with_token(node.client()).await;
    refused(&known, StatusCode::BAD_REQUEST, "InvalidToken");
    node.stop().await;
}

#[tokio::test]
async fn clocks_may_differ_by_a_quarter_of_an_hour() {
    let node = Node::start().await;
    node.lake.put("b", "k", "x");
    let now = clock::utc_now();
    for (time, accepted) in [
        (now - 14 * MINUTE, true),
        (now + 14 * MINUTE, true),
        (now - 16 * MINUTE, false),
        (now + 16 * MINUTE, false),
    ] {
        let reply = node.client().get("/b/k").at(time).send().await;
        if accepted {
            assert_eq!(reply.status, StatusCode::OK);
        } else {
            refused(&reply, StatusCode::FORBIDDEN, "RequestTimeTooSkewed");
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn presigned_urls_work_until_their_end_and_not_before_their_time() {
    let node = Node::start().await;
    node.lake.put("b", "k", "x");
    let now = clock::utc_now();
    let get = || node.client().get("/b/k");
    assert_eq!(get().presigned(MINUTE).send().await.text(), "x");
    assert_eq!(
        get().presigned(MINUTE).at(now - 2 * MINUTE).send().await.code(),
        "AccessDenied"
    );
    assert_eq!(
        get()
            .presigned(MINUTE)
            .at(now + 24 * 60 * MINUTE)
            .send()
            .await
            .code(),
        "AccessDenied"
    );
    let week = 7 * 24 * 60 * MINUTE;
    assert_eq!(get().presigned(week).send().await.text(), "x");
    let longer = get().presigned(week + MINUTE).send().await;
    assert_eq!(longer.code(), "AccessDenied", "as Ceph answers; AWS says 400");
    let put = node
        .client()
        .put("/b/new", "uploaded")
        .presigned(MINUTE)
        .send()
        .await;
    assert_eq!(put.status, StatusCode::OK, "{}", put.text());
    assert_eq!(node.lake.object("b", "new").unwrap().content.all(), "uploaded");
    node.stop().await;
}

#[tokio::test]
async fn a_presigned_url_leaves_its_credentials_here_however_their_names_are_spelled() {
    let node = Node::start().await;
    node.lake.put("b", "k", "x");
    for spelled in ["X%2DAmz%2D", "%58-Amz-", "X-%41%6d%7A-"] {
        let call = node.client().get("/b/k?acl").presigned(MINUTE);
        let call = call.tampered(move |request| {
            let url = request.uri().to_string().replace("X-Amz-", spelled);
            *request.uri_mut() = url.parse().unwrap();
        });
        // The lake refuses two kinds of credentials, and the node brings one of its own.
        let reply = call.send().await;
        assert_eq!(reply.status, StatusCode::OK, "{spelled}: {}", reply.text());
        assert_eq!(node.lake.last_request().query, "acl", "{spelled}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_signs_with_version_2_is_told_what_to_use() {
    let node = Node::start().await;
    node.lake.put("b", "k", "x");
    let stranger = node.stranger();
    let url = format!("/b/k?AWSAccessKeyId={ACCESS_KEY}&Signature=c2ln&Expires=1175139620");
    let authorization = format!("AWS {ACCESS_KEY}:c2ln");
    for call in [
        stranger.get(&url),
        stranger.put(&url, "y"),
        stranger.get("/b/k").header("authorization", &authorization),
    ] {
        let reply = call.send().await;
        refused(&reply, StatusCode::BAD_REQUEST, "InvalidRequest");
        assert!(reply.text().contains("AWS4-HMAC-SHA256"), "{}", reply.text());
    }
    assert!(node.lake.requests().is_empty(), "the lake was not even asked");
    node.stop().await;
}

#[tokio::test]
async fn a_browser_that_asks_about_a_presigned_url_names_its_signer_and_proves_nothing() {
    let node = Node::start_with(|config| {
        config.identities[1].lake_account = Some(Account::new(ACCESS_KEY, SECRET_KEY).into());
    })
    .await;
    let no_proof = format!("&X-Amz-Signature={}", "0".repeat(64));
    for ((from, to), expected) in [
        (("", ""), Some(ACCESS_KEY)),
        (("X-Amz-Signature=", "X-Amz-Signature=00"), Some(ACCESS_KEY)),
        ((OTHER_KEY, "nobody-we-know"), None),
    ] {
        let url = node.other().get("/b/k?versionId=1").presigned(MINUTE);
        let question = url.tampered(move |request| {
            *request.method_mut() = Method::OPTIONS;
            *request.uri_mut() = request.uri().to_string().replace(from, to).parse().unwrap();
        });
        question.send().await;
        let seen = node.lake.last_request();
        assert_eq!(
            (seen.method, seen.access_key.as_deref()),
            (Method::OPTIONS, expected)
        );
        assert!(
            !seen.headers.contains_key("authorization"),
            "nothing is signed for it"
        );
        match expected {
            Some(_) => assert!(seen.query.ends_with(&no_proof), "{}", seen.query),
            None => assert_eq!(seen.query, "versionId=1", "a stranger"),
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn two_kinds_of_credentials_are_one_too_many() {
    let node = Node::start().await;
    node.lake.put("b", "k", "x");
    let call = node.client().get("/b/k").presigned(MINUTE).tampered(|request| {
        let value = "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00";
        request.headers_mut().insert("authorization", HeaderValue::from_static(value));
    });
    let reply = call.send().await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text());
    node.stop().await;
}

#[tokio::test]
async fn a_streaming_body_needs_credentials_in_the_header() {
    let node = Node::start().await;
    let put = Client::anonymous(node.address()).put("/b/k", "x");
    let reply = put
        .payload(Payload::UnsignedTrailer(1024, Checksum::ALL[0]))
        .send()
        .await;
    assert!(reply.status.is_client_error(), "{}", reply.status);
    let presigned = node
        .client()
        .put("/b/k", "x")
        .presigned(MINUTE)
        .tampered(|request| {
            let value = HeaderValue::from_static("STREAMING-UNSIGNED-PAYLOAD-TRAILER");
            request.headers_mut().insert("x-amz-content-sha256", value);
        });
    assert!(presigned.send().await.status.is_client_error());
    assert!(node.lake.object("b", "k").is_none());
    node.stop().await;
}

#[tokio::test]
async fn strangers_may_do_what_the_lake_lets_strangers_do() {
    let node = Node::start().await;
    node.lake.put("b", "k", "x");
    assert_eq!(node.stranger().get("/b/k").send().await.code(), "AccessDenied");
    node.lake.allow(ANONYMOUS, Access::Read, "b");
    assert_eq!(node.stranger().get("/b/k").send().await.text(), "x");
    assert_eq!(
        node.lake.last_request().access_key,
        None,
        "a stranger stays a stranger"
    );
    node.stop().await;
}

#[tokio::test]
async fn an_identity_may_have_another_account_at_the_lake() {
    let node = Node::start_with(|config| {
        config.identities[0].access_key = "local".into();
        config.identities[0].secret_key = shoal_base::secret::Secret::new("local-secret");
        config.identities[0].lake_account = Some(Account::new(ACCESS_KEY, crate::lake::SECRET_KEY).into());
    })
    .await;
    node.lake.put("b", "k", "x");
    let client = Client::signing(node.address(), "local", "local-secret");
    assert_eq!(client.get("/b/k").send().await.text(), "x");
    assert_eq!(node.lake.last_request().access_key.as_deref(), Some(ACCESS_KEY));
    node.stop().await;
}

#[tokio::test]
async fn secrets_are_not_told() {
    let node = Node::start().await;
    node.lake.put("b", "k", "x");
    node.client().get("/b/k").send().await;
    for page in ["/metrics", "/status", "/readyz", "/healthz"] {
        let reply = node.admin(page).await;
        assert_eq!(reply.status, StatusCode::OK, "{page}");
        assert!(!reply.text().contains(crate::lake::SECRET_KEY), "{page}");
    }
    let on_s3 = node.stranger().get("/metrics").send().await;
    assert!(!on_s3.text().contains("shoal_"), "metrics are not on the S3 port");
    node.stop().await;
}

#[tokio::test]
async fn the_metrics_have_the_names_that_dashboards_know() {
    let node = Node::start().await;
    node.lake.put("b", "k", "x");
    node.client().get("/b/k").send().await;
    node.settle().await;
    node.client().get("/b/k").send().await;
    let metrics = node.admin("/metrics").await;
    for line in [
        "shoal_requests_total{operation=\"get_object\",status=\"200\"} 2",
        "shoal_read_bytes_total{source=\"local\"} 1",
        "shoal_read_bytes_total{source=\"lake\"} 1",
        "shoal_lake_requests_total{operation=\"get_object\"} 1",
        "shoal_lake_requests_total{operation=\"head_object\"} 1",
        "shoal_coalesced_requests_total 0",
        "shoal_corrupt_blocks_total 0",
        "shoal_capacity_bytes 67108864",
        "shoal_resident_bytes ",
        "shoal_request_duration_seconds_count{operation=\"get_object\"} 2",
        "shoal_evictions_total{reason=",
        "shoal_refusals_total{reason=",
    ] {
        assert!(
            metrics.text().contains(line),
            "{line} is not in\n{}",
            metrics.text()
        );
    }
    node.stop().await;
}

#[tokio::test]
async fn too_many_requests_of_one_identity_are_slowed_down_and_anothers_are_not() {
    let node = Node::start_with(|config| config.limits.requests_per_identity = Some(1)).await;
    node.lake.put("b", "k", "x");
    let gate = node
        .lake
        .hold(|request| request.access_key.as_deref() == Some(ACCESS_KEY));
    let first = tokio::spawn({
        let client = node.client();
        async move { client.get("/b/k").send().await }
    });
    gate.arrived(1).await;
    let second = node.client().get("/b/k").send().await;
    refused(&second, StatusCode::SERVICE_UNAVAILABLE, "SlowDown");
    assert!(second.header("retry-after").is_some());
    gate.open();
    assert_eq!(first.await.unwrap().text(), "x");
    assert_eq!(node.other().get("/b/k").send().await.text(), "x");
    node.stop().await;
}

#[tokio::test]
async fn strangers_are_refused_before_anything_else_where_they_are_not_wanted() {
    let node = Node::start_with(|config| config.s3.anonymous = Anonymous::Refuse).await;
    node.lake.put("b", "k", "x");
    for who in [ANONYMOUS, ACCESS_KEY] {
        node.lake.allow(who, Access::Read, "b");
    }
    let stranger = node.stranger();
    for call in [
        stranger.get("/b/k"),
        stranger.put("/b/k", "y"),
        stranger.post("/b?delete", "<Delete/>"),
        stranger.get("/"),
    ] {
        refused(&call.send().await, StatusCode::FORBIDDEN, "AccessDenied");
    }
    assert!(node.lake.requests().is_empty(), "the lake was not even asked");
    assert_eq!(node.client().get("/b/k").send().await.status, StatusCode::OK);
    let presigned = node.client().get("/b/k").presigned(MINUTE);
    assert_eq!(presigned.send().await.status, StatusCode::OK);

    node.lake.forget_requests();
    let preflight = stranger
        .call(Method::OPTIONS, "/b/k")
        .header("origin", "http://page.example")
        .header("access-control-request-method", "GET");
    preflight.send().await;
    assert_eq!(
        node.lake.requests().len(),
        1,
        "a browser's question never carries credentials, and the lake answers it"
    );
    node.stop().await;
}
