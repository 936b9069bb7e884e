//! The admin listener. It serves the health, metrics and status pages, and accepts orders: drain, undrain,
//! flush. It never serves S3.

use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::FutureExt;
use http::header::ORIGIN;
use http::{Method, Request, StatusCode};
use hyper::service::service_fn;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::listener::{RemoteEnd, serve};
use shoal_net::http::pages::{self, LIMITS, Page, not_allowed, page, text};
use shoal_net::http::tls::TlsReloader;
use shoal_net::metrics::{self, ConnectionMetrics};
use shoal_net::shutdown::Shutdown;
use shoal_s3::operation::Query;
use shoal_s3::uri::S3Uri;
use tokio::net::TcpListener;

use super::allowed_hosts::AllowedHosts;
use super::auth::{AdminAuth, Wish};
use super::explain::ExplainQuery;
use super::observer::Observer;
use super::other_nodes::OtherPage;
use super::task_pages::{TaskPage, json_page, message_page};

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
pub struct Admin {
    /// The content of its pages, and what orders act on.
    pub node: Arc<Observer>,
    /// The host names under which the pages are served.
    pub hosts: AllowedHosts,
    /// Authorizes requests.
    pub auth: Arc<AdminAuth>,
    /// Begins when the node stops.
    pub stopping: Shutdown,
}

impl Admin {
    /// Serves until the node stops, on the same guarded connections as S3, with limits of their own.
    pub async fn serve(self, listener: TcpListener, tls: Option<Arc<TlsReloader>>) {
        let stopping = self.stopping.clone();
        if let Some(tls) = &tls {
            tokio::spawn(Arc::clone(tls).watch(stopping.clone()));
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
        serve(listener, tls, LIMITS, counted, stopping, connection).await;
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
                // The admin port opens when all parts of the node run.
                let missing: &[_] = if self.stopping.has_begun() { &["s3"] } else { &[] };
                pages::ready_under(missing, &self.node.conditions())
            }
            Route::Metrics => {
                let metrics = Arc::clone(&self.node).metrics();
                page(StatusCode::OK, metrics::CONTENT_TYPE, metrics)
            }
            Route::Status => json_page(StatusCode::OK, Arc::clone(&self.node).status().await),
            Route::Members => json_page(StatusCode::OK, self.node.members()),
            Route::Explain => match ExplainQuery::parse(query.unwrap_or_default()) {
                Ok(query) => json_page(StatusCode::OK, self.node.explain(&query).await),
                Err(error) => refused(&error.to_string()),
            },
            Route::Drain | Route::Undrain => {
                let Some(handoff) = &self.node.handoff else {
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
            Route::Other(other) => other.get(&self.node.core.cooperation, query).await,
            Route::Tasks(tasks) => tasks.answer(&self.node.tasks, request).await,
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
            Ok(below) => json_page(StatusCode::ACCEPTED, self.node.write_back.flushes.begin(below)),
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
