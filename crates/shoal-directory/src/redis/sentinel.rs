//! Finds the master through Sentinels: queries them in turn, and checks that the named server is a master.

use std::time::Duration;

use redis::{AsyncConnectionConfig, ConnectionInfo, ErrorKind, RedisError, RedisResult, cmd};
use tokio_rustls::TlsConnector;

use super::node::Node;

/// Timeout after which a Sentinel is skipped.
const PATIENCE: Duration = Duration::from_millis(500);

/// The Sentinels, and the name of the master that they watch.
pub(super) struct Sentinels {
    /// The addresses of the Sentinels.
    pub(super) hosts: Vec<ConnectionInfo>,
    /// The name of the master.
    pub(super) name: String,
    /// Builds the connection settings of the master from its address.
    pub(super) master: Box<dyn Fn(String, u16) -> RedisResult<ConnectionInfo> + Send + Sync>,
    /// TLS of the Sentinels and of the master.
    pub(super) tls: Option<TlsConnector>,
}

impl Sentinels {
    /// Connects to the master.
    pub(super) async fn connect(&self) -> RedisResult<Node> {
        let mut last = RedisError::from((ErrorKind::InvalidClientConfig, "there is no Sentinel"));
        for host in &self.hosts {
            match tokio::time::timeout(4 * PATIENCE, self.by(host)).await {
                Ok(Ok(node)) => return Ok(node),
                Ok(Err(error)) => last = error,
                Err(_) => last = silent("a Sentinel does not answer"),
            }
        }
        Err(last)
    }

    /// Connects to the master that one Sentinel names.
    async fn by(&self, sentinel: &ConnectionInfo) -> RedisResult<Node> {
        let mut sentinel = self.connect_to(sentinel, PATIENCE).await?;
        let mut question = cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let named: Option<(String, u16)> = question.query_async(&mut sentinel).await?;
        let (host, port) = named.ok_or_else(|| silent("a Sentinel knows no master of this name"))?;
        let mut master = self.connect_to(&(self.master)(host, port)?, 2 * PATIENCE).await?;
        let role: redis::Value = cmd("ROLE").query_async(&mut master).await?;
        match role {
            redis::Value::Array(role) if role.first().is_some_and(is_master) => Ok(master),
            _ => Err(silent("the server that a Sentinel names is no master")),
        }
    }

    async fn connect_to(&self, server: &ConnectionInfo, within: Duration) -> RedisResult<Node> {
        Node::connect(server, self.tls.as_ref(), within, AsyncConnectionConfig::new()).await
    }
}

fn is_master(word: &redis::Value) -> bool {
    matches!(word, redis::Value::BulkString(word) if word == b"master")
}

fn silent(why: &'static str) -> RedisError {
    std::io::Error::other(why).into()
}
