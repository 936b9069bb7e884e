//! Asks nodes who is alive: `GET /members` on their admin ports.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{HttpConnector, HttpInfo};
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use crate::admin::members::Members;

/// A node that takes longer is no help; others are asked at the same time.
const DEADLINE: Duration = Duration::from_millis(500);
/// A page of a thousand nodes has 200 kB.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// Why a node has not said who is alive.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// The URL of the configuration.
    #[error("is not a URL")]
    Url(#[source] http::uri::InvalidUri),
    /// Too slow, or nobody there.
    #[error("did not answer within {} ms", DEADLINE.as_millis())]
    Deadline,
    /// Nobody listens there, or the connection broke.
    #[error("cannot be reached")]
    Unreachable(#[source] hyper_util::client::legacy::Error),
    /// Something else than a node, or an older one.
    #[error("answered with status {0}")]
    Status(StatusCode),
    /// A page that broke off or does not end.
    #[error("sent a page that cannot be read")]
    Page(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Something else than a list of nodes.
    #[error("sent no list of nodes")]
    NoMembers(#[source] serde_json::Error),
}

/// What a node has said.
#[derive(Debug)]
pub struct Said {
    /// Who is alive.
    pub members: Members,
    /// The address at which the node was reached.
    pub reached: IpAddr,
}

/// Asks one node, on one connection for as long as it holds.
#[derive(Debug)]
pub struct Poller {
    url: String,
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl Poller {
    /// For the node whose admin port is at `url`, without a path.
    pub fn new(url: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(DEADLINE));
        Self {
            url: url.into(),
            client: Client::builder(TokioExecutor::new()).build(connector),
        }
    }

    /// Whom it asks.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Asks once.
    pub async fn ask(&self) -> Result<Said, PollError> {
        timeout(DEADLINE, self.fetch())
            .await
            .map_err(|_| PollError::Deadline)?
    }

    async fn fetch(&self) -> Result<Said, PollError> {
        let uri: Uri = format!("{}/members", self.url).parse().map_err(PollError::Url)?;
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri;
        let response = self
            .client
            .request(request)
            .await
            .map_err(PollError::Unreachable)?;
        if response.status() != StatusCode::OK {
            return Err(PollError::Status(response.status()));
        }
        let reached = response
            .extensions()
            .get::<HttpInfo>()
            .map(|connection| connection.remote_addr().ip())
            .expect("the connector notes where it connected to");
        let page = Limited::new(response.into_body(), PAGE_BYTES_MAX).collect();
        let page = page.await.map_err(PollError::Page)?.to_bytes();
        let members = serde_json::from_slice(&page).map_err(PollError::NoMembers)?;
        Ok(Said { members, reached })
    }
}
