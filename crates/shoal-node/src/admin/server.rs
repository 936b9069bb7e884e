//! The admin listener. It serves the health, metrics and status pages, and accepts orders: drain, undrain,
//! flush. It never serves S3.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::FutureExt;
use http::header::ORIGIN;
use http::{Method, Request, StatusCode};
use hyper::service::service_fn;
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
use super::auth::{AdminAuth, Wish};
use super::explain::{ExplainQuery, Explanation};
use super::members::Members;
use super::other_nodes::OtherPage;
use super::task_pages::{TaskPage, json_page, message_page};
use crate::handoff::Handoff;

/// The parts of this node that must be running before it is ready, and are not. External conditions are
/// checked in addition ([`shoal_net::conditions`]).
pub type MissingParts = Mutex<&'static [&'static str]>;

/// The content of the pages of a node, and what orders act on.
pub trait Pages: Send + Sync + 'static {
    /// Returns `/metrics`.
    fn metrics(self: Arc<Self>) -> String;

    /// Returns `/status`.
    fn status(self: Arc<Self>) -> impl Future<Output = Value> + Send;

    /// Returns the conditions that hold, for `/readyz`.
    fn conditions(&self) -> Vec<Condition>;

    /// Returns the living nodes, for `/members`.
    fn members(&self) -> Members;

    /// Returns `/explain`.
    fn explain(&self, query: ExplainQuery) -> impl Future<Output = Explanation> + Send;

    /// Answers a request for another node's page, `/nodes/NAME/PAGE`.
    fn other(&self, page: OtherPage, query: Option<&str>) -> impl Future<Output = Page> + Send;

    /// Answers a request for `/tasks`, a path below it, or `/plan`.
    fn tasks(&self, page: TaskPage, request: Request<ClientBody>) -> impl Future<Output = Page> + Send;

    /// Starts to flush what is written back below a prefix, or all of it.
    fn flush(&self, below: Option<S3Uri>) -> FlushProgress;

    /// Returns the handoff, for `/drain` and `/undrain`; `None` on a node that caches alone, because it
    /// cannot hand its blocks over.
    fn handoff(&self) -> Option<&Arc<Handoff>>;
}

/// A path of the admin port.
enum Route {
    Healthz,
    Readyz,
    Metrics,
    Status,
    Members,
    Explain,
    Drain,
    Undrain,
    Flush,
    Tasks(TaskPage),
    Other(OtherPage),
}

impl Route {
    fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/healthz" => Self::Healthz,
            "/readyz" => Self::Readyz,
            "/metrics" => Self::Metrics,
            "/status" => Self::Status,
            "/members" => Self::Members,
            "/explain" => Self::Explain,
            "/drain" => Self::Drain,
            "/undrain" => Self::Undrain,
            "/flush" => Self::Flush,
            _ => {
                let tasks = TaskPage::at(path).map(Self::Tasks);
                return tasks.or_else(|| OtherPage::at(path).map(Self::Other));
            }
        })
    }

    /// Returns what a request with this method does.
    fn wish(&self, method: &Method) -> Wish {
        match self {
            Self::Healthz | Self::Readyz => Wish::Probe,
            Self::Drain | Self::Undrain | Self::Flush => Wish::Order,
            Self::Tasks(page) if page.is_order(method) => Wish::Order,
            _ => Wish::Look,
        }
    }

    /// Rejects a method that the path does not have, and an order of a web page. Pages of tasks have methods
    /// of their own.
    fn refuse(&self, request: &Request<ClientBody>) -> Option<Page> {
        match (self, self.wish(request.method())) {
            (Self::Tasks(_), Wish::Order) => of_web_page(request),
            (Self::Tasks(_), _) => None,
            (_, Wish::Order) if *request.method() != Method::POST => {
                Some(not_allowed("only POST is understood here\n", "POST"))
            }
            (_, Wish::Order) => of_web_page(request),
            (_, Wish::Probe | Wish::Look) => pages::only_read(request.method()),
        }
    }
}

/// The admin listener.
pub struct Admin<P> {
    /// The content of its pages.
    pub pages: Arc<P>,
    /// For `/readyz`.
    pub missing: Arc<MissingParts>,
    /// The host names under which the pages are served.
    pub hosts: AllowedHosts,
    /// Authorizes requests.
    pub auth: Arc<AdminAuth>,
}

impl<P: Pages> Admin<P> {
    /// Serves until `shutdown` begins, on the same guarded connections as S3, with limits of their own.
    pub async fn serve(self, listener: TcpListener, tls: Option<Arc<TlsReloader>>, shutdown: Shutdown) {
        if let Some(tls) = &tls {
            let (tls, shutdown) = (Arc::clone(tls), shutdown.clone());
            tokio::spawn(tls.watch(shutdown));
        }
        let admin = Arc::new(self);
        let counted = ConnectionMetrics::default();
        let connection = move |remote: RemoteEnd| {
            let admin = Arc::clone(&admin);
            service_fn(move |request| {
                let (admin, remote) = (Arc::clone(&admin), remote.clone());
                async move { Ok::<_, Infallible>(admin.respond(request, &remote).await) }.boxed()
            })
        };
        serve(listener, tls, LIMITS, counted, shutdown, connection).await;
    }

    /// Answers a request if its host and its caller are allowed.
    async fn respond(&self, request: Request<ClientBody>, remote: &RemoteEnd) -> Page {
        if let Some(refusal) = self.hosts.refuse(&request) {
            return refusal;
        }
        let route = Route::at(request.uri().path());
        let wish = route
            .as_ref()
            .map_or(Wish::Look, |route| route.wish(request.method()));
        let is_certified = remote.certified.load(Ordering::Acquire);
        let address = remote.address.ip();
        match self.auth.refuse(address, is_certified, request.headers(), wish) {
            Some(refusal) => refusal,
            None => self.answer(route, request).await,
        }
    }

    async fn answer(&self, route: Option<Route>, request: Request<ClientBody>) -> Page {
        let Some(route) = route else {
            return text(
                StatusCode::NOT_FOUND,
                "not found: /healthz, /readyz, /metrics, /status, /members, /explain, /nodes, /tasks, /plan, /drain, /undrain and /flush are here\n",
            );
        };
        if let Some(refusal) = route.refuse(&request) {
            return refusal;
        }
        let query = request.uri().query();
        match route {
            Route::Healthz => text(StatusCode::OK, "alive\n"),
            Route::Readyz => {
                let missing = *self.missing.lock();
                pages::ready_under(missing, &self.pages.conditions())
            }
            Route::Metrics => {
                let metrics = Arc::clone(&self.pages).metrics();
                page(StatusCode::OK, metrics::CONTENT_TYPE, metrics)
            }
            Route::Status => json_page(StatusCode::OK, Arc::clone(&self.pages).status().await),
            Route::Members => json_page(StatusCode::OK, self.pages.members()),
            Route::Explain => match ExplainQuery::parse(query.unwrap_or_default()) {
                Ok(query) => json_page(StatusCode::OK, self.pages.explain(query).await),
                Err(error) => refused(&error.to_string()),
            },
            Route::Drain | Route::Undrain => {
                let Some(handoff) = self.pages.handoff() else {
                    return text(
                        StatusCode::CONFLICT,
                        "this node caches alone: no other node can take its blocks. Stop it without a drain: it finds them on its disk when it starts again\n",
                    );
                };
                match route {
                    Route::Drain => handoff.begin().await,
                    _ => handoff.end().await,
                }
                json_page(StatusCode::ACCEPTED, handoff.progress())
            }
            Route::Flush => self.flush(query.unwrap_or_default()),
            Route::Other(other) => self.pages.other(other, query).await,
            Route::Tasks(tasks) => self.pages.tasks(tasks, request).await,
        }
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
}

fn refused(why: &str) -> Page {
    message_page(StatusCode::BAD_REQUEST, why)
}

/// Rejects an order sent by a web page in an operator's browser. Such a request carries an `Origin`.
fn of_web_page(request: &Request<ClientBody>) -> Option<Page> {
    let is_of_page = request.headers().contains_key(ORIGIN);
    is_of_page.then(|| text(StatusCode::FORBIDDEN, "orders are not taken from web pages\n"))
}
