//! Asks a node which nodes are alive: `GET /members` on its admin port.

use std::time::Duration;

use shoal_node::admin::client::{
    AccessError, AdminAccess, AdminClient, AdminErrorKind, AdminResponse, AdminUrl,
};
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
    /// Makes a poller for the node whose admin port is at `url`, to which it shows what `access` says.
    ///
    /// # Errors
    ///
    /// Fails if a file of `access` cannot be used.
    pub fn new(url: AdminUrl, access: &AdminAccess) -> Result<Self, AccessError> {
        let client = AdminClient::new(&url, access)?.within(DEADLINE);
        Ok(Self { url, client })
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
