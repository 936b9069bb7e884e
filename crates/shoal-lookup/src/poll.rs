//! Asks a node which nodes are alive: `GET /members` on its admin port.

use std::time::Duration;

use shoal_node::admin::client::{
    AccessError, AdminAccess, AdminClient, AdminErrorKind, AdminResponse, AdminUrl,
};
use shoal_node::admin::members::Members;

/// Timeout of a poll. Nodes are polled concurrently.
const DEADLINE: Duration = Duration::from_millis(500);

/// Polls one node, reusing its connection.
#[derive(Debug)]
pub struct Poller {
    url: AdminUrl,
    client: AdminClient,
}

impl Poller {
    /// Creates a poller for the node with the admin port at `url`, with the credentials of `access`.
    ///
    /// # Errors
    ///
    /// Fails if a file of `access` cannot be used.
    pub fn new(url: AdminUrl, access: &AdminAccess) -> Result<Self, AccessError> {
        let client = AdminClient::new(&url, access)?.within(DEADLINE);
        Ok(Self { url, client })
    }

    /// The URL of the polled node.
    pub fn url(&self) -> &AdminUrl {
        &self.url
    }

    /// Polls the node once.
    ///
    /// # Errors
    ///
    /// Fails if the node does not answer in time, rejects the request, or answers with an unexpected
    /// document.
    pub async fn ask(&self) -> Result<AdminResponse<Members>, AdminErrorKind> {
        self.client.ask(&self.url, "/members").await
    }
}
