//! The name server's admin listener: liveness, readiness and metrics over HTTP, not DNS.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::service::Service;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::listener;
use shoal_net::http::pages::{self, LIMITS, Page, page, text};
use shoal_net::metrics::{self, ConnectionMetrics};
use shoal_net::shutdown::Shutdown;
use shoal_node::admin::allowed_hosts::AllowedHosts;
use tokio::net::TcpListener;

use super::Shared;

/// The part reported as missing while no living node is known and every question is answered with SERVFAIL.
const NODES: &str = "nodes";

/// Serves until `shutdown` begins.
pub(super) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    hosts: AllowedHosts,
    shutdown: Shutdown,
) {
    let counted = ConnectionMetrics::default();
    let pages = move |_| Pages(Arc::clone(&shared), hosts.clone());
    listener::serve(listener, None, LIMITS, counted, shutdown, pages).await;
}

/// The service of one connection.
struct Pages(Arc<Shared>, AllowedHosts);

impl Service<Request<ClientBody>> for Pages {
    type Response = Page;
    type Error = Infallible;
    type Future = Ready<Result<Page, Infallible>>;

    fn call(&self, request: Request<ClientBody>) -> Self::Future {
        let refusal = self.1.refuse(&request);
        ready(Ok(refusal.unwrap_or_else(|| {
            answer(&self.0, request.method(), request.uri().path())
        })))
    }
}

fn answer(shared: &Shared, method: &Method, path: &str) -> Page {
    if !matches!(path, "/healthz" | "/readyz" | "/metrics") {
        return text(
            StatusCode::NOT_FOUND,
            "not found: /healthz, /readyz and /metrics are here\n",
        );
    }
    if let Some(refusal) = pages::only_read(method) {
        return refusal;
    }
    match path {
        "/healthz" => text(StatusCode::OK, "alive\n"),
        "/readyz" if shared.knows_a_node() => pages::ready(&[]),
        "/readyz" => pages::ready(&[NODES]),
        _ => page(StatusCode::OK, metrics::CONTENT_TYPE, shared.counted()),
    }
}
