//! The admin listener. It serves the health, metrics and status pages, and accepts orders: drain, undrain,
//! flush. It never serves S3.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{BoxFuture, FutureExt};
use http::header::ORIGIN;
use http::{Method, Request, StatusCode};
use hyper::service::Service;
use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_net::conditions::Condition;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::listener::{RemoteEnd, serve};
use shoal_net::http::pages::{self, LIMITS, Page, not_allowed, page, text};
use shoal_net::http::tls::TlsReloader;
use shoal_net::metrics::{self, ConnectionMetrics};
use shoal_net::shutdown::Shutdown;
use shoal_s3::operation::Query;
use shoal_s3::uri::S3Uri;
use shoal_writeback::dirty::FlushOrders;
use tokio::net::TcpListener;

use super::allowed_hosts::AllowedHosts;
use super::auth::{AdminAuth, Asker, Wish};
use super::explain::{ExplainQuery, Explanation};
use super::members::Members;
use super::other_nodes::OtherPage;
use super::task_pages::TaskPage;
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

/// Returns the page `/status`.
pub type StatusSource = Arc<dyn Fn() -> BoxFuture<'static, Value> + Send + Sync>;

/// Returns the conditions that hold, for `/readyz`.
pub type ConditionsSource = Arc<dyn Fn() -> Vec<Condition> + Send + Sync>;

/// Returns the living nodes, for `/members`.
pub type MembersSource = Arc<dyn Fn() -> Members + Send + Sync>;

/// Returns the page `/explain`.
pub type ExplanationSource = Arc<dyn Fn(ExplainQuery) -> BoxFuture<'static, Explanation> + Send + Sync>;

/// Answers requests for the task pages.
pub type TaskPages = Arc<dyn Fn(TaskPage, Request<ClientBody>) -> BoxFuture<'static, Page> + Send + Sync>;

/// Answers requests for other nodes' pages, given their query.
pub type OtherPages = Arc<dyn Fn(OtherPage, Option<String>) -> BoxFuture<'static, Page> + Send + Sync>;

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

/// The admin listener, with the sources of its pages.
#[derive(Clone)]
pub struct Admin {
    /// For `/metrics`.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// For `/readyz`.
    pub readiness: Arc<Readiness>,
    /// Also for `/readyz`.
    pub conditions: ConditionsSource,
    /// For `/status`.
    pub status: StatusSource,
    /// For `/members`.
    pub members: MembersSource,
    /// For `/explain`.
    pub explain: ExplanationSource,
    /// For `/nodes/NAME/PAGE`.
    pub others: OtherPages,
    /// For `/drain` and `/undrain`. `None` on a node that caches alone, because it cannot hand its blocks
    /// over.
    pub handoff: Option<Arc<Handoff>>,
    /// The host names under which the pages are served.
    pub hosts: AllowedHosts,
    /// For `/flush`.
    pub flushes: Arc<FlushOrders>,
    /// For `/tasks` and paths below it, and for `/plan`.
    pub tasks: TaskPages,
    /// Authorizes requests.
    pub auth: Arc<AdminAuth>,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("readiness", &self.readiness)
            .finish_non_exhaustive()
    }
}

impl Admin {
    /// Serves until `shutdown` begins, on the same guarded connections as S3, with limits of their own.
    pub async fn serve(self, listener: TcpListener, tls: Option<Arc<TlsReloader>>, shutdown: Shutdown) {
        if let Some(tls) = &tls {
            let (tls, shutdown) = (Arc::clone(tls), shutdown.clone());
            tokio::spawn(tls.watch(shutdown));
        }
        let admin = Arc::new(self);
        serve(
            listener,
            tls,
            LIMITS,
            ConnectionMetrics::default(),
            shutdown,
            move |remote| Pages(Arc::clone(&admin), remote),
        )
        .await;
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
        let Some(handoff) = &self.handoff else {
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
        page(
            StatusCode::ACCEPTED,
            "application/json",
            json!(handoff.progress()),
        )
    }

    /// Starts a flush below `below=s3://bucket/prefix`, or of everything if that is absent or empty.
    fn flush(&self, query: &str) -> Page {
        let query = match Query::parse(Some(query)) {
            Ok(query) => query,
            Err(error) => {
                let message = format!("{}\n", error.message);
                return page(StatusCode::BAD_REQUEST, "text/plain; charset=utf-8", message);
            }
        };
        let below = query.get("below").filter(|below| !below.is_empty());
        match below.map(S3Uri::from_str).transpose() {
            Ok(below) => {
                let progress = self.flushes.begin(below);
                page(StatusCode::ACCEPTED, "application/json", json!(progress))
            }
            Err(error) => page(
                StatusCode::BAD_REQUEST,
                "text/plain; charset=utf-8",
                format!("below= does not name what to flush: {error}\n"),
            ),
        }
    }

    async fn explained(&self, query: &str) -> Page {
        match ExplainQuery::parse(query) {
            Ok(query) => {
                let explanation = (self.explain)(query).await;
                page(StatusCode::OK, "application/json", json!(explanation))
            }
            Err(error) => page(
                StatusCode::BAD_REQUEST,
                "text/plain; charset=utf-8",
                format!("{error}\n"),
            ),
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
            "/readyz" => pages::ready_under(&self.readiness.missing(), &(self.conditions)()),
            "/metrics" => page(StatusCode::OK, metrics::CONTENT_TYPE, (self.metrics)()),
            "/members" => page(StatusCode::OK, "application/json", json!((self.members)())),
            _ => page(StatusCode::OK, "application/json", (self.status)().await),
        }
    }
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
struct Pages(Arc<Admin>, RemoteEnd);

impl Service<Request<ClientBody>> for Pages {
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
                    None => (admin.tasks)(tasks, request).await,
                });
            }
            if let Some(other) = OtherPage::at(path) {
                let query = request.uri().query().map(str::to_owned);
                return Ok(match pages::only_read(method) {
                    Some(refusal) => refusal,
                    None => (admin.others)(other, query).await,
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
