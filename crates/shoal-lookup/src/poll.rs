//! Asks a node which nodes are alive: `GET /members` on its admin port.

use std::time::Duration;

use shoal_node::admin::client::{AdminClient, AdminErrorKind, AdminResponse, AdminUrl, InvalidAdminUrl};
use shoal_node::admin::members::Members;

/// A node that takes longer does not count; others are asked at the same time.
const DEADLINE: Duration = Duration::from_millis(500);

/// Asks one node, on one connection for as long as the connection lasts.
#[derive(Debug)]
pub struct Poller {
    url: AdminUrl,
    client: AdminClient,
}

impl Poller {
    /// Makes a poller for the node whose admin port is at `url`.
    ///
    /// # Errors
    ///
    /// Fails if `url` is not the URL of an admin port.
    pub fn new(url: &str) -> Result<Self, InvalidAdminUrl> {
        Ok(Self {
            url: url.parse()?,
            client: AdminClient::within(DEADLINE),
        })
    }

    /// The URL of the node that it asks.
    pub fn url(&self) -> &AdminUrl {
        &self.url
    }

    /// Asks once.
    ///
    /// # Errors
    ///
    /// Fails if the node does not answer in time, refuses the request, or answers with another document.
    pub async fn ask(&self) -> Result<AdminResponse<Members>, AdminErrorKind> {
        self.client.ask(&self.url, "/members").await
    }
}
