//! Pages for operators and probes: the limits of their listener, and common responses.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::http::connection::Timeouts;
use crate::http::listener::ConnectionLimits;
use crate::metrics::conditions::Condition;

/// Limits of a listener for pages. Operators, scrapers and probes are few and fast; slow clients must not
/// crowd them out.
pub const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 64,
    timeouts: Timeouts {
        header: Duration::from_secs(5),
        idle: Duration::from_mins(1),
        stall: Duration::from_secs(10),
    },
    shutdown_grace: Duration::from_secs(1),
};

/// A page.
pub type Page = Response<Full<Bytes>>;

/// Returns a page of any content type, marked as not cacheable.
pub fn page(status: StatusCode, content_type: &'static str, body: impl fmt::Display) -> Page {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns a line of text.
pub fn text(status: StatusCode, body: &'static str) -> Page {
    page(status, "text/plain; charset=utf-8", body)
}

/// Returns the response of `/readyz` while the `missing` parts are not ready.
pub fn ready(missing: &[&str]) -> Page {
    let is_ready = missing.is_empty();
    readiness(is_ready, json!({ "ready": is_ready, "missing": missing }))
}

/// Returns the response of `/readyz` while the `missing` parts are not ready and these conditions hold.
pub fn ready_under(missing: &[&str], conditions: &[Condition]) -> Page {
    let is_ready = missing.is_empty() && !conditions.iter().any(|condition| condition.unready);
    let said = json!({ "ready": is_ready, "missing": missing, "conditions": conditions });
    readiness(is_ready, said)
}

fn readiness(is_ready: bool, said: Value) -> Page {
    let status = if is_ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    page(status, "application/json", said)
}

/// Returns a refusal unless the method is GET or HEAD.
pub fn only_read(method: &Method) -> Option<Page> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    (!reads).then(|| not_allowed("only GET and HEAD are understood here\n", "GET, HEAD"))
}

/// Refuses a method; `allowed` lists the accepted ones.
pub fn not_allowed(body: &'static str, allowed: &'static str) -> Page {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, body);
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
