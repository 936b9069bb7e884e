//! Asks nodes on their admin ports, as operators' commands do.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;

/// A node that takes longer is shown as one that does not answer.
const DEADLINE: Duration = Duration::from_secs(1);

/// A page of a thousand nodes, or of some thousand blocks.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// Where a node's admin port is: `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminUrl(String);

/// Why a text is not an [`AdminUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write it as http://host:port, such as http://127.0.0.1:9100; admin ports speak plain HTTP")]
pub struct NotAdminUrl;

impl FromStr for AdminUrl {
    type Err = NotAdminUrl;

    fn from_str(text: &str) -> Result<Self, NotAdminUrl> {
        let place = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let url = format!("http://{place}");
        let uri: Uri = url.parse().map_err(|_| NotAdminUrl)?;
        let is_plain = uri.host().is_some_and(|host| !host.is_empty())
            && uri
                .authority()
                .is_some_and(|authority| !authority.as_str().contains('@'))
            && uri.path() == "/"
            && uri.query().is_none();
        is_plain.then_some(Self(url)).ok_or(NotAdminUrl)
    }
}

impl From<SocketAddr> for AdminUrl {
    fn from(address: SocketAddr) -> Self {
        Self(format!("http://{address}"))
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a node has not said what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Too slow, or nobody there.
    #[error("{0} did not answer within a second")]
    Deadline(AdminUrl),
    /// Nobody listens there, or the connection broke.
    #[error("{url} cannot be reached")]
    Unreachable {
        /// Who was asked.
        url: AdminUrl,
        /// What the connection says.
        source: hyper_util::client::legacy::Error,
    },
    /// The node does not do what it was asked; it says why.
    #[error("{url} answered {status}: {said}")]
    Refused {
        /// Who was asked.
        url: AdminUrl,
        /// Its status.
        status: StatusCode,
        /// The beginning of its page.
        said: String,
    },
    /// A page that broke off or does not end.
    #[error("{url} sent a page that cannot be read")]
    Page {
        /// Who was asked.
        url: AdminUrl,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Asks nodes, each on one connection for as long as that holds.
#[derive(Clone, Debug)]
pub struct AdminClient(Client<HttpConnector, Empty<Bytes>>);

impl Default for AdminClient {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(DEADLINE));
        Self(Client::builder(TokioExecutor::new()).build(connector))
    }
}

impl AdminClient {
    /// A page in JSON.
    pub async fn get<T: DeserializeOwned>(&self, url: &AdminUrl, path: &str) -> Result<T, AskError> {
        self.call(Method::GET, url, path)
            .await
            .and_then(|page| json(url, &page))
    }

    /// A page in any form.
    pub async fn text(&self, url: &AdminUrl, path: &str) -> Result<String, AskError> {
        let page = self.call(Method::GET, url, path).await?;
        Ok(String::from_utf8_lossy(&page).into_owned())
    }

    /// An order, and what the node says to it in JSON.
    pub async fn post<T: DeserializeOwned>(&self, url: &AdminUrl, path: &str) -> Result<T, AskError> {
        self.call(Method::POST, url, path)
            .await
            .and_then(|page| json(url, &page))
    }

    async fn call(&self, method: Method, url: &AdminUrl, path: &str) -> Result<Bytes, AskError> {
        match tokio::time::timeout(DEADLINE, self.exchange(method, url, path)).await {
            Ok(answered) => answered,
            Err(_) => Err(AskError::Deadline(url.clone())),
        }
    }

    async fn exchange(&self, method: Method, url: &AdminUrl, path: &str) -> Result<Bytes, AskError> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = method;
        *request.uri_mut() = format!("{url}{path}")
            .parse()
            .expect("a checked URL with a path of ours is a URL");
        let unreachable = |source| AskError::Unreachable {
            url: url.clone(),
            source,
        };
        let response = self.0.request(request).await.map_err(unreachable)?;
        let status = response.status();
        let page = Limited::new(response.into_body(), PAGE_BYTES_MAX).collect();
        let page = page.await.map_err(|source| AskError::Page {
            url: url.clone(),
            source,
        })?;
        let page = page.to_bytes();
        if !status.is_success() {
            let said = String::from_utf8_lossy(&page[..page.len().min(200)]);
            return Err(AskError::Refused {
                url: url.clone(),
                status,
                said: said.trim_end().into(),
            });
        }
        Ok(page)
    }
}

fn json<T: DeserializeOwned>(url: &AdminUrl, page: &[u8]) -> Result<T, AskError> {
    serde_json::from_slice(page).map_err(|error| AskError::Page {
        url: url.clone(),
        source: error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::AdminUrl;

    #[test]
    fn the_address_of_a_member_is_one() {
        let of = |address: &str| AdminUrl::from(address.parse::<std::net::SocketAddr>().unwrap());
        for address in ["10.0.0.1:9100", "[::1]:9100"] {
            assert_eq!(of(address), address.parse().unwrap());
        }
    }

    #[test]
    fn an_admin_port_is_named_by_host_and_port() {
        let url = |text: &str| text.parse::<AdminUrl>().map(|url| url.to_string());
        for text in ["http://10.0.0.1:9100", "10.0.0.1:9100", "http://10.0.0.1:9100/"] {
            assert_eq!(url(text).as_deref(), Ok("http://10.0.0.1:9100"), "{text}");
        }
        for text in [
            "https://h:1",
            "http://",
            "",
            "h:1/status",
            "http://a@h:1",
            "h:1?x",
            "h o:1",
        ] {
            assert!(url(text).is_err(), "{text}");
        }
    }
}
