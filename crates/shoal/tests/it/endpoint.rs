//! The endpoint against a lake that checks signatures and misbehaves.

mod connecting;
mod expecting;
mod receiving;
mod retrying;
mod sending;
mod session;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Collected, Full};
use shoal_net::endpoint::{
    Endpoint, EndpointError, EndpointRequest, Failure, LakeAccount, LakeBody, NodeCredentials, RequestBody,
    RequestStream,
};
use shoal_node::config;
use shoal_s3::identity::{Account, NODE};
use shoal_s3::sigv4::PayloadHash;

use crate::lake::{ACCESS_KEY, Lake, REGION, SECRET_KEY};

const STALL_TIMEOUT: Duration = Duration::from_millis(400);

/// Longer than three tries and the pauses between them, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(4);

fn endpoint_with(lake: &Lake, answer_timeout: Duration, limits: &config::Limits) -> Endpoint {
    let config = config::LakeConfig {
        endpoint: lake.url(),
        region: REGION.into(),
        answer_timeout,
        write_timeout: STALL_TIMEOUT,
        long_write_timeout: STALL_TIMEOUT * 20,
        stall_timeout: Some(STALL_TIMEOUT),
        ..config::LakeConfig::default()
    };
    let credentials = NodeCredentials::of_config(&config).unwrap();
    Endpoint::new(&config, limits, credentials).unwrap()
}

fn endpoint(lake: &Lake) -> Endpoint {
    endpoint_with(lake, STALL_TIMEOUT, &config::Limits::default())
}

/// An endpoint that has the time for every try.
fn patient_endpoint(lake: &Lake) -> Endpoint {
    endpoint_with(lake, PATIENCE, &config::Limits::default())
}

fn account() -> LakeAccount {
    LakeAccount::Signed(Arc::new(Account::new(ACCESS_KEY, SECRET_KEY)))
}

fn request(method: Method, target: &str) -> EndpointRequest {
    EndpointRequest {
        operation: "Test",
        method,
        target: PathAndQuery::try_from(target).unwrap(),
        headers: HeaderMap::new(),
        body: RequestBody::Empty,
        expects_continue: false,
        payload: PayloadHash::empty(),
        account: account(),
        payer: NODE,
    }
}

fn get(target: &str) -> EndpointRequest {
    request(Method::GET, target)
}

fn put(target: &str, body: RequestBody) -> EndpointRequest {
    EndpointRequest {
        body,
        payload: PayloadHash::Unsigned,
        ..request(Method::PUT, target)
    }
}

fn whole(body: impl Into<Bytes>) -> RequestStream {
    Full::new(body.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

async fn read(body: LakeBody) -> Result<Bytes, EndpointError> {
    body.collect().await.map(Collected::to_bytes)
}

async fn read_text(endpoint: &Endpoint, request: EndpointRequest) -> (StatusCode, String) {
    let response = endpoint.send(request).await.unwrap();
    let status = response.status();
    (
        status,
        String::from_utf8(read(response.into_body()).await.unwrap().to_vec()).unwrap(),
    )
}

fn failure<T>(outcome: Result<T, EndpointError>) -> Failure {
    outcome.err().expect("it was to fail").kind()
}
