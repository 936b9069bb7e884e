//! The admin listener. It serves the health, metrics and status pages, and accepts orders: drain, undrain,
//! flush, unpack, rebuild. It never serves S3.

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
use shoal_writeback::{OrderRefused, PackOrder};
use tokio::net::TcpListener;

use super::auth::{AdminAuth, Wish};
use super::console::Console;
use super::explain::{BLOCKS_MAX, ExplainQuery};
use super::hint_pages::HintPage;
use super::history::History;
use super::observer::Observer;
use super::other_nodes::OtherPage;
use super::task_pages::{TaskPage, json_page, message_page};
use shoal_net::http::allowed_hosts::AllowedHosts;

/// Returns what a request with this method does to a path; `None` if there is no such path.
fn wish(path: &str, method: &Method) -> Option<Wish> {
    match path {
        "/healthz" | "/readyz" => Some(Wish::Probe),
        _ if Console::at(path).is_some() => Some(Wish::Probe),
        "/metrics" | "/status" | "/members" | "/explain" | "/history" => Some(Wish::Look),
        "/drain" | "/undrain" | "/flush" | "/unpack" | "/rebuild" => Some(Wish::Order),
        _ if HintPage::at(path).is_some_and(HintPage::is_for_engines) => Some(Wish::Hint),
        _ if HintPage::at(path).is_some() => Some(Wish::Look),
        _ => match TaskPage::at(path) {
            Some(page) if page.is_order(method) => Some(Wish::Order),
            Some(_) => Some(Wish::Look),
            None => OtherPage::at(path).map(|_| Wish::Look),
        },
    }
}

/// Rejects a method that the path does not have, and an order of a web page. Pages of tasks have methods of
/// their own.
fn refuse(wish: Wish, request: &Request<ClientBody>) -> Option<Page> {
    let path = request.uri().path();
    let is_of_tasks = TaskPage::at(path).is_some() || HintPage::at(path).is_some();
    match wish {
        Wish::Order if !is_of_tasks && *request.method() != Method::POST => {
            Some(not_allowed("only POST is understood here\n", "POST"))
        }
        Wish::Order | Wish::Hint => of_web_page(request),
        Wish::Probe | Wish::Look if is_of_tasks => None,
        Wish::Probe | Wish::Look => pages::only_read(request.method()),
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
    /// Serves until the node stops, on the same guarded connections as S3, with limits of their own. Samples
    /// the counters of the node meanwhile.
    pub async fn serve(self, listener: TcpListener, tls: Option<Arc<TlsReloader>>) {
        let stopping = self.stopping.clone();
        tokio::spawn(History::run(Arc::clone(&self.node), stopping.clone()));
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

    /// Answers a request if its host, its caller and its method are allowed.
    async fn respond(&self, request: Request<ClientBody>, remote: &RemoteEnd) -> Page {
        let wish = wish(request.uri().path(), request.method());
        let is_certified = remote.certified.load(Ordering::Acquire);
        let unauthorized = || {
            let (address, wish) = (remote.address.ip(), wish.unwrap_or(Wish::Look));
            self.auth.refuse(address, is_certified, request.headers(), wish)
        };
        let refusal = self.hosts.refuse(&request).or_else(unauthorized);
        // A path without a wish is never answered, so that none escapes the check of its method.
        let refusal = refusal.or_else(|| match wish {
            Some(wish) => refuse(wish, &request),
            None => Some(not_found()),
        });
        match refusal {
            Some(refusal) => refusal,
            None => self.answer(request).await,
        }
    }

    async fn answer(&self, request: Request<ClientBody>) -> Page {
        let (path, query) = (request.uri().path(), request.uri().query());
        if let Some(tasks) = TaskPage::at(path) {
            return tasks.answer(&self.node.tasks, request).await;
        }
        if let Some(hints) = HintPage::at(path) {
            return hints.answer(&self.node.tasks, &self.node.hints, request).await;
        }
        if let Some(other) = OtherPage::at(path) {
            return other.get(&self.node.core.cooperation, query).await;
        }
        if let Some(part) = Console::at(path) {
            return part.page();
        }
        match path {
            "/healthz" => text(StatusCode::OK, "alive\n"),
            "/readyz" => {
                // The admin port opens when all parts of the node run.
                let missing: &[_] = if self.stopping.has_begun() { &["s3"] } else { &[] };
                pages::ready_under(missing, &self.node.conditions())
            }
            "/metrics" => {
                let metrics = Arc::clone(&self.node).metrics();
                page(StatusCode::OK, metrics::CONTENT_TYPE, metrics)
            }
            "/status" => json_page(StatusCode::OK, Arc::clone(&self.node).status().await),
            "/members" => json_page(StatusCode::OK, self.node.members()),
            "/history" => {
                let history = Arc::clone(&self.node).history(query.unwrap_or_default());
                json_page(StatusCode::OK, history)
            }
            "/explain" => match ExplainQuery::parse(query.unwrap_or_default()) {
                Some(query) => json_page(StatusCode::OK, self.node.explain(&query).await),
                None => refused(&format!(
                    "the query is understood as object=s3://bucket/key, percent-encoded, and version=ID, first=N and count=N (at most {BLOCKS_MAX})"
                )),
            },
            "/drain" | "/undrain" => {
                let Some(handoff) = &self.node.handoff else {
                    return text(
                        StatusCode::CONFLICT,
                        "this node caches alone: no other node can take its blocks. Stop it without a drain: it finds them on its disk when it starts again\n",
                    );
                };
                match path {
                    "/drain" => handoff.begin().await,
                    _ => handoff.end().await,
                }
                json_page(StatusCode::ACCEPTED, handoff.progress())
            }
            "/flush" => self.flush(query).unwrap_or_else(|why| refused(&why)),
            "/unpack" | "/rebuild" => self
                .order_of_packs(path, query)
                .unwrap_or_else(|why| refused(&why)),
            _ => not_found(),
        }
    }

    /// Starts a flush below `below=s3://bucket/prefix`, or of everything if that is absent or empty. An error
    /// says what is wrong with the query.
    fn flush(&self, query: Option<&str>) -> Result<Page, String> {
        let query = parsed(query)?;
        let below = query.get("below").filter(|below| !below.is_empty());
        let below = below.map(S3Uri::from_str).transpose();
        let below = below.map_err(|error| format!("below= does not name what to flush: {error}"))?;
        Ok(json_page(
            StatusCode::ACCEPTED,
            self.node.write_back.flushes.begin(below),
        ))
    }

    /// Starts to unpack the objects of the rule for `below=s3://bucket/prefix/`, or to rebuild their map,
    /// from packs with `from_packs=true`. An error says what is wrong with the query.
    fn order_of_packs(&self, path: &str, query: Option<&str>) -> Result<Page, String> {
        let query = parsed(query)?;
        let below = query.get("below").unwrap_or_default();
        let below =
            S3Uri::from_str(below).map_err(|error| format!("below= does not name a rule: {error}"))?;
        let what = match (path, query.get("from_packs")) {
            ("/unpack", None) => PackOrder::Unpack,
            ("/rebuild", None | Some("false")) => PackOrder::Rebuild,
            ("/rebuild", Some("true")) => PackOrder::RebuildFromPacks,
            _ => return Err("from_packs= is true or false, and of /rebuild".into()),
        };
        match self.node.write_back.packs.begin(what, &below) {
            Ok(begun) => Ok(json_page(StatusCode::ACCEPTED, begun)),
            Err(busy @ OrderRefused::Busy(_)) => {
                let busy =
                    format!("{busy}\nhint: wait for its end, which `write_back.packs` in /status shows");
                Ok(message_page(StatusCode::CONFLICT, &busy))
            }
            Err(no_rule @ OrderRefused::NoRule { .. }) => Err(no_rule.to_string()),
        }
    }
}

fn parsed(query: Option<&str>) -> Result<Query, String> {
    Query::parse(query).map_err(|error| error.message.to_string())
}

fn not_found() -> Page {
    text(
        StatusCode::NOT_FOUND,
        "not found: /, /healthz, /readyz, /metrics, /status, /members, /explain, /history, /nodes, /tasks, /plan, /cached, /hints, /runs, /api/v1/lineage, /drain, /undrain, /flush, /unpack and /rebuild are here\n",
    )
}

fn refused(why: &str) -> Page {
    message_page(StatusCode::BAD_REQUEST, why)
}

/// Rejects an order sent by a web page in an operator's browser. Such a request carries an `Origin`.
fn of_web_page(request: &Request<ClientBody>) -> Option<Page> {
    let is_of_page = request.headers().contains_key(ORIGIN);
    is_of_page.then(|| text(StatusCode::FORBIDDEN, "orders are not taken from web pages\n"))
}
