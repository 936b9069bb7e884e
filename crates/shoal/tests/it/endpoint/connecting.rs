//! Connections: kept, shared, refused, trusted.

use std::sync::Arc;

use http::{Method, StatusCode};
use shoal_net::endpoint::{Endpoint, Failure, NodeCredentials};
use shoal_node::config;

use super::{endpoint, failure, get, patient_endpoint, read, read_text, request};
use crate::lake::{Content, Lake, Request};
use crate::tls;

#[tokio::test]
async fn connections_are_kept_and_shared() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", Content::synthetic(100_000, 1));
    let endpoint = Arc::new(endpoint(&lake));
    for target in ["/bucket/key", "/bucket/none", "/bucket/key"] {
        read(endpoint.send(get(target)).await.unwrap().into_body())
            .await
            .unwrap();
        read(
            endpoint
                .send(request(Method::HEAD, target))
                .await
                .unwrap()
                .into_body(),
        )
        .await
        .unwrap();
    }
    assert_eq!(endpoint.counters().connections.get(), 1);

    let gate = lake.hold(Request::is_get);
    for round in 0..2 {
        let readers: Vec<_> = (0..64)
            .map(|_| {
                let endpoint = Arc::clone(&endpoint);
                tokio::spawn(async move {
                    read(endpoint.send(get("/bucket/key")).await.unwrap().into_body()).await
                })
            })
            .collect();
        if round == 0 {
            gate.arrived(64).await;
            gate.open();
        }
        for reader in readers {
            assert_eq!(
                reader.await.unwrap().unwrap(),
                Content::synthetic(100_000, 1).all()
            );
        }
    }
    assert_eq!(endpoint.counters().connections.get(), 64);
}

#[tokio::test]
async fn a_lake_that_cannot_be_reached_is_said_so() {
    let lake = Lake::start().await;
    let endpoint = patient_endpoint(&lake);
    lake.stop().await;
    let error = endpoint
        .send(get("/bucket/secret-key?token=hidden"))
        .await
        .err()
        .unwrap();
    assert_eq!(error.kind(), Failure::Unreachable);
    assert_eq!(
        error.to_string(),
        format!("Test /bucket/secret-key: {} cannot be reached", lake.url())
    );
    assert!(!format!("{error:?}").contains("hidden"), "{error:?}");
    assert_eq!(endpoint.counters().requests.counts()["Test"], 3);
}

#[tokio::test]
async fn https_is_spoken_to_a_lake_that_the_system_trusts_and_to_no_other() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    let address = tls::in_front_of(lake.address()).await;
    let config = config::LakeConfig {
        endpoint: format!("https://{address}"),
        ..config::LakeConfig::default()
    };
    let credentials = NodeCredentials::of_config(&config).unwrap();
    let endpoint = Endpoint::new(&config, &config::Limits::default(), credentials);

    if std::env::var("SSL_CERT_FILE").as_deref() == Ok(tls::CERTIFICATE) {
        let endpoint = endpoint.unwrap();
        for _ in 0..2 {
            assert_eq!(
                read_text(&endpoint, get("/bucket/key")).await,
                (StatusCode::OK, "x".into())
            );
        }
        assert_eq!(endpoint.counters().connections.get(), 1);
        let plain = config::LakeConfig {
            endpoint: format!("https://{}", lake.address()),
            ..config::LakeConfig::default()
        };
        let credentials = NodeCredentials::of_config(&plain).unwrap();
        let endpoint = Endpoint::new(&plain, &config::Limits::default(), credentials).unwrap();
        assert_eq!(failure(endpoint.send(get("/bucket/key")).await), Failure::NoTls);
        return;
    }
    // A system without any root refuses to start; one with others refuses the connection.
    let refused = match endpoint {
        Ok(endpoint) => failure(endpoint.send(get("/bucket/key")).await),
        Err(error) => error.kind(),
    };
    assert!(
        matches!(refused, Failure::Untrusted | Failure::Misconfigured),
        "{refused:?}"
    );
    assert_eq!(lake.count(|_| true), 0);

    // A process reads its trusted roots from the environment once, so other roots need another process.
    let trusting = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "endpoint::connecting::https_is_spoken_to_a_lake_that_the_system_trusts_and_to_no_other",
        ])
        .env("SSL_CERT_FILE", tls::CERTIFICATE)
        .output()
        .unwrap();
    assert!(
        trusting.status.success(),
        "{}",
        String::from_utf8_lossy(&trusting.stdout)
    );
    assert!(String::from_utf8_lossy(&trusting.stdout).contains("1 passed"));
}
