//! The name server's admin listener: liveness, readiness and metrics over HTTP, not DNS.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::service::service_fn;
use shoal_net::http::allowed_hosts::AllowedHosts;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::listener;
use shoal_net::http::pages::{self, LIMITS, Page, page, text};
use shoal_net::metrics::{self, ConnectionMetrics, render};
use shoal_net::shutdown::Shutdown;
use tokio::net::TcpListener;

use super::Shared;
use super::answer::responder::can_answer;
use super::metrics::TABLE;

/// The part reported as missing while no living node is known and every question is answered with SERVFAIL.
const NODES: &str = "nodes";

/// Serves until `shutdown` begins.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>, shutdown: Shutdown) {
    let (hosts, counted) = (AllowedHosts::default(), ConnectionMetrics::default());
    let pages = move |_| {
        let (shared, hosts) = (Arc::clone(&shared), hosts.clone());
        service_fn(move |request: Request<ClientBody>| {
            let refusal = hosts.refuse(&request);
            let answer = || answer(&shared, request.method(), request.uri().path());
            ready(Ok::<_, Infallible>(refusal.unwrap_or_else(answer)))
        })
    };
    listener::serve(listener, None, LIMITS, counted, shutdown, pages).await;
}

fn answer(shared: &Arc<Shared>, method: &Method, path: &str) -> Page {
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
        "/readyz" if can_answer(&shared.live()) => pages::ready(&[]),
        "/readyz" => pages::ready(&[NODES]),
        _ => page(
            StatusCode::OK,
            metrics::CONTENT_TYPE,
            render(TABLE, Arc::clone(shared)),
        ),
    }
}
