//! The admin listener. It serves the health, metrics and status pages, and accepts orders: drain, undrain,
//! flush. It never serves S3.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{BoxFuture, FutureExt};
use http::header::ORIGIN;
use http::{Method, Request, StatusCode};
use hyper::service::Service;
use parking_lot::Mutex;
use serde_json::Value;
use shoal_net::conditions::Condition;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::listener::{RemoteEnd, serve};
use shoal_net::http::pages::{self, LIMITS, Page, not_allowed, page, text};
use shoal_net::http::tls::TlsReloader;
use shoal_net::metrics::{self, ConnectionMetrics};
use shoal_net::shutdown::Shutdown;
use shoal_s3::operation::Query;
use shoal_s3::uri::S3Uri;
use shoal_writeback::FlushProgress;
use tokio::net::TcpListener;

use super::allowed_hosts::AllowedHosts;
use super::auth::{AdminAuth, Asker, Wish};
use super::explain::{ExplainQuery, Explanation};
use super::members::Members;
use super::other_nodes::OtherPage;
use super::task_pages::{TaskPage, json_page, message_page};
use crate::handoff::Handoff;

/// The parts of this node that must be running before it is ready. External conditions are checked in
/// addition ([`shoal_net::conditions`]).
#[derive(Debug)]
pub struct Readiness {
    missing: Mutex<Vec<&'static str>>,
}

impl Readiness {
    /// Creates the readiness of a node that waits for each of `parts`.
    pub fn awaiting(parts: &[&'static str]) -> Self {
        Self {
            missing: Mutex::new(parts.to_vec()),
        }
    }

    /// Marks `part` as running.
    pub fn reached(&self, part: &str) {
        self.missing.lock().retain(|missing| *missing != part);
    }

    /// Marks `part` as no longer running, such as the S3 listener during shutdown.
    pub fn lost(&self, part: &'static str) {
        let mut missing = self.missing.lock();
        if !missing.contains(&part) {
            missing.push(part);
        }
    }

    /// Returns the parts that are not running.
    pub fn missing(&self) -> Vec<&'static str> {
        self.missing.lock().clone()
    }
}

/// The content of the pages of a node, and what orders act on.
pub trait Pages: Send + Sync {
    /// Returns `/metrics`.
    fn metrics(self: Arc<Self>) -> String;

    /// Returns `/status`.
    fn status(self: Arc<Self>) -> BoxFuture<'static, Value>;

    /// Returns the conditions that hold, for `/readyz`.
    fn conditions(&self) -> Vec<Condition>;

    /// Returns the living nodes, for `/members`.
    fn members(&self) -> Members;

    /// Returns `/explain`.
    fn explain(&self, query: ExplainQuery) -> BoxFuture<'_, Explanation>;

    /// Answers a request for another node's page, `/nodes/NAME/PAGE`.
    fn other<'a>(&'a self, page: OtherPage, query: Option<&'a str>) -> BoxFuture<'a, Page>;

    /// Answers a request for `/tasks`, a path below it, or `/plan`.
    fn tasks(&self, page: TaskPage, request: Request<ClientBody>) -> BoxFuture<'_, Page>;

    /// Starts to flush what is written back below a prefix, or all of it.
    fn flush(&self, below: Option<S3Uri>) -> FlushProgress;

    /// Returns the handoff, for `/drain` and `/undrain`; `None` on a node that caches alone, because it
    /// cannot hand its blocks over.
    fn handoff(&self) -> Option<&Arc<Handoff>>;
}

const EXPLAIN: &str = "/explain";

/// An order of an operator.
#[derive(Clone, Copy, Debug)]
enum AdminCommand {
    Drain,
    Undrain,
    Flush,
}

impl AdminCommand {
    fn at(path: &str) -> Option<Self> {
        match path {
            "/drain" => Some(Self::Drain),
            "/undrain" => Some(Self::Undrain),
            "/flush" => Some(Self::Flush),
            _ => None,
        }
    }
}

/// The admin listener.
#[derive(Clone)]
pub struct Admin {
    /// The content of its pages.
    pub pages: Arc<dyn Pages>,
    /// For `/readyz`.
    pub readiness: Arc<Readiness>,
    /// The host names under which the pages are served.
    pub hosts: AllowedHosts,
    /// Authorizes requests.
    pub auth: Arc<AdminAuth>,
}

impl Admin {
    /// Serves until `shutdown` begins, on the same guarded connections as S3, with limits of their own.
    pub async fn serve(self, listener: TcpListener, tls: Option<Arc<TlsReloader>>, shutdown: Shutdown) {
        if let Some(tls) = &tls {
            let (tls, shutdown) = (Arc::clone(tls), shutdown.clone());
            tokio::spawn(tls.watch(shutdown));
        }
        let admin = Arc::new(self);
        let counted = ConnectionMetrics::default();
        let connection = move |remote| Connection(Arc::clone(&admin), remote);
        serve(listener, tls, LIMITS, counted, shutdown, connection).await;
    }

    /// Carries out an order.
    async fn execute(&self, command: AdminCommand, request: &Request<ClientBody>) -> Page {
        if *request.method() != Method::POST {
            return not_allowed("only POST is understood here\n", "POST");
        }
        if let Some(refusal) = of_web_page(request) {
            return refusal;
        }
        if let AdminCommand::Flush = command {
            return self.flush(request.uri().query().unwrap_or_default());
        }
        let Some(handoff) = self.pages.handoff() else {
            return text(
                StatusCode::CONFLICT,
                "this node caches alone: no other node can take its blocks. Stop it without a drain: it finds them on its disk when it starts again\n",
            );
        };
        match command {
            AdminCommand::Drain => handoff.begin().await,
            AdminCommand::Undrain => handoff.end().await,
            AdminCommand::Flush => {}
        }
        json_page(StatusCode::ACCEPTED, handoff.progress())
    }

    /// Starts a flush below `below=s3://bucket/prefix`, or of everything if that is absent or empty.
    fn flush(&self, query: &str) -> Page {
        let query = match Query::parse(Some(query)) {
            Ok(query) => query,
            Err(error) => return refused(&error.message),
        };
        let below = query.get("below").filter(|below| !below.is_empty());
        match below.map(S3Uri::from_str).transpose() {
            Ok(below) => json_page(StatusCode::ACCEPTED, self.pages.flush(below)),
            Err(error) => refused(&format!("below= does not name what to flush: {error}")),
        }
    }

    async fn explained(&self, query: &str) -> Page {
        match ExplainQuery::parse(query) {
            Ok(query) => json_page(StatusCode::OK, self.pages.explain(query).await),
            Err(error) => refused(&error.to_string()),
        }
    }

    /// Returns the page at `path`.
    async fn answer(&self, method: &Method, path: &str) -> Page {
        let known = matches!(
            path,
            "/healthz" | "/readyz" | "/metrics" | "/status" | "/members" | EXPLAIN
        );
        if !known {
            return text(
                StatusCode::NOT_FOUND,
                "not found: /healthz, /readyz, /metrics, /status, /members, /explain, /nodes, /tasks, /plan, /drain, /undrain and /flush are here\n",
            );
        }
        if let Some(refusal) = pages::only_read(method) {
            return refusal;
        }
        match path {
            "/healthz" => text(StatusCode::OK, "alive\n"),
            "/readyz" => pages::ready_under(&self.readiness.missing(), &self.pages.conditions()),
            "/metrics" => page(
                StatusCode::OK,
                metrics::CONTENT_TYPE,
                Arc::clone(&self.pages).metrics(),
            ),
            "/members" => json_page(StatusCode::OK, self.pages.members()),
            _ => json_page(StatusCode::OK, Arc::clone(&self.pages).status().await),
        }
    }
}

fn refused(why: &str) -> Page {
    message_page(StatusCode::BAD_REQUEST, why)
}

/// Rejects an order sent by a web page in an operator's browser. Such a request carries an `Origin`.
fn of_web_page(request: &Request<ClientBody>) -> Option<Page> {
    let is_of_page = request.headers().contains_key(ORIGIN);
    is_of_page.then(|| text(StatusCode::FORBIDDEN, "orders are not taken from web pages\n"))
}

/// Returns what a request with this method and path does.
fn wish(method: &Method, path: &str) -> Wish {
    match path {
        "/healthz" | "/readyz" => Wish::Probe,
        _ if AdminCommand::at(path).is_some() => Wish::Order,
        _ => match TaskPage::at(path) {
            Some(tasks) if tasks.is_order(method) => Wish::Order,
            _ => Wish::Look,
        },
    }
}

/// The service of one connection.
struct Connection(Arc<Admin>, RemoteEnd);

impl Service<Request<ClientBody>> for Connection {
    type Response = Page;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<ClientBody>) -> Self::Future {
        let (admin, remote) = (Arc::clone(&self.0), self.1.clone());
        async move {
            if let Some(refusal) = admin.hosts.refuse(&request) {
                return Ok(refusal);
            }
            let (method, path) = (request.method(), request.uri().path());
            let asker = Asker {
                address: remote.address.ip(),
                is_certified: remote.certified.load(Ordering::Acquire),
                headers: request.headers(),
            };
            if let Some(refusal) = admin.auth.refuse(&asker, wish(method, path)) {
                return Ok(refusal);
            }
            if let Some(tasks) = TaskPage::at(path) {
                let is_order = tasks.is_order(method);
                return Ok(match of_web_page(&request).filter(|_| is_order) {
                    Some(refusal) => refusal,
                    None => admin.pages.tasks(tasks, request).await,
                });
            }
            if let Some(other) = OtherPage::at(path) {
                return Ok(match pages::only_read(method) {
                    Some(refusal) => refusal,
                    None => admin.pages.other(other, request.uri().query()).await,
                });
            }
            Ok(match AdminCommand::at(path) {
                Some(command) => admin.execute(command, &request).await,
                None if path == EXPLAIN && matches!(*method, Method::GET | Method::HEAD) => {
                    admin.explained(request.uri().query().unwrap_or_default()).await
                }
                None => admin.answer(method, path).await,
            })
        }
        .boxed()
    }
}
