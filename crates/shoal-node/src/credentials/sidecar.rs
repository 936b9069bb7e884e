//! Keys over loopback, for clients in the same pod or on the same machine that take `http` URLs there only.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{Method, Request, StatusCode};
use hyper::service::service_fn;
use serde_json::{Value, json};
use shoal_net::http::connection::ClientBody;
use shoal_net::http::listener::{RemoteEnd, serve};
use shoal_net::http::pages::{LIMITS, Page, not_allowed, page};
use shoal_net::metrics::ConnectionMetrics;
use shoal_net::shutdown::Shutdown;
use tokio::net::TcpListener;

use shoal_net::http::allowed_hosts::AllowedHosts;

/// Returns a key in the form that SDKs read, or says why there is none.
pub type KeyGetter = Arc<dyn Fn() -> BoxFuture<'static, Result<Value, String>> + Send + Sync>;

/// Answers each GET at a loopback address with a key of `source`, until `stopping` begins. Every client that
/// reaches the address gets the key.
pub async fn serve_keys(listener: TcpListener, source: KeyGetter, stopping: Shutdown) {
    let connection = move |_: RemoteEnd| {
        let source = Arc::clone(&source);
        service_fn(move |request| {
            let source = Arc::clone(&source);
            async move { Ok::<_, Infallible>(respond(&source, &request).await) }.boxed()
        })
    };
    serve(
        listener,
        None,
        LIMITS,
        ConnectionMetrics::default(),
        stopping,
        connection,
    )
    .await;
}

async fn respond(source: &KeyGetter, request: &Request<ClientBody>) -> Page {
    // A page of another site must not read keys by a name that it points here.
    if let Some(refusal) = AllowedHosts::default().refuse(request) {
        return refusal;
    }
    if *request.method() != Method::GET {
        return not_allowed("only GET is understood here\n", "GET");
    }
    let (status, document) = match source().await {
        Ok(key) => (StatusCode::OK, key),
        Err(why) => {
            let document = json!({ "code": "CredentialsUnavailable", "message": why });
            (StatusCode::SERVICE_UNAVAILABLE, document)
        }
    };
    page(status, "application/json", document)
}
