//! The connection to Redis: established in the background, and replaced when it no longer yields answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, ConnectionInfo, FromRedisValue, RedisError, RedisResult, ScriptInvocation,
};
use shoal_base::clock;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::node::{Node, PATIENCE};
use super::sentinel::Sentinels;
use crate::Silent;

/// The minimum pause between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// How to connect to the servers.
pub(super) enum Connector {
    Single {
        server: ConnectionInfo,
        tls: Option<TlsConnector>,
    },
    Cluster(Box<ClusterClient>),
    Sentinel(Sentinels),
}

/// A connection that many requests share.
#[derive(Clone)]
enum Connection {
    Single(Node),
    Cluster(ClusterConnection<Node>),
}

/// Keeps a connection while it works.
#[derive(Clone)]
pub(super) struct Link(Arc<Shared>);

struct Shared {
    connector: Connector,
    is_connecting: AtomicBool,
    /// Wakes the requests that wait for the first connection.
    tried: Notify,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// Counts connections, so that the outcome of a request on an old connection is not attributed to a new
    /// one.
    number: u64,
    tried_at: Option<Instant>,
    /// When requests began to go unanswered.
    silent_since: Option<Instant>,
    /// Why there is no connection.
    why: Option<String>,
}

/// A request in flight. If it is dropped without an answer, the link counts that as silence.
struct Pending<'a> {
    link: &'a Link,
    number: u64,
    is_answered: bool,
}

impl Connector {
    async fn connect(&self) -> RedisResult<Connection> {
        Ok(match self {
            Self::Single { server, tls } => {
                let config = AsyncConnectionConfig::new();
                Connection::Single(Node::connect(server, tls.as_ref(), PATIENCE, config).await?)
            }
            Self::Cluster(client) => Connection::Cluster(client.get_async_generic_connection().await?),
            Self::Sentinel(sentinels) => Connection::Single(sentinels.connect().await?),
        })
    }
}

impl Link {
    pub(super) fn new(connector: Connector) -> Self {
        Self(Arc::new(Shared {
            connector,
            is_connecting: AtomicBool::new(false),
            tried: Notify::new(),
            state: Mutex::default(),
        }))
    }

    /// Runs a script. Without a connection it fails at once and starts connecting, except that it waits for
    /// the very first connection.
    pub(super) async fn run<A: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<A, Silent> {
        let (connection, number) = self.first_connection().await?;
        let mut pending = Pending {
            link: self,
            number,
            is_answered: false,
        };
        let (answer, follows) = match connection {
            Connection::Single(mut connection) => (script.invoke_async(&mut connection).await, false),
            Connection::Cluster(mut connection) => (script.invoke_async(&mut connection).await, true),
        };
        pending.is_answered = true;
        answer
            .inspect(|_| self.0.state.lock().silent_since = None)
            .map_err(|error: RedisError| {
                // A cluster connection follows changes of its members itself.
                if !follows && is_over(&error) {
                    self.disconnect(number, &error.to_string());
                }
                Silent(error.to_string())
            })
    }

    /// Returns the connection, waiting for it only during the first attempt to connect.
    async fn first_connection(&self) -> Result<(Connection, u64), Silent> {
        let mut tried = std::pin::pin!(self.0.tried.notified());
        tried.as_mut().enable();
        let connection = self.connection();
        let is_first = {
            let state = self.0.state.lock();
            state.number == 0 && state.why.is_none()
        };
        if connection.is_err() && is_first {
            tried.await;
            return self.connection();
        }
        connection
    }

    fn connection(&self) -> Result<(Connection, u64), Silent> {
        let now = clock::instant();
        let mut state = self.0.state.lock();
        if let Some(connection) = &state.connection {
            return Ok((connection.clone(), state.number));
        }
        let is_due = state.tried_at.is_none_or(|tried| now >= tried + PAUSE);
        if is_due && !self.0.is_connecting.swap(true, Ordering::AcqRel) {
            state.tried_at = Some(now);
            tokio::spawn(self.clone().connect());
        }
        let why = state.why.as_deref().unwrap_or("it is being connected to");
        Err(Silent(why.to_owned()))
    }

    async fn connect(self) {
        let connected = timeout(2 * PATIENCE, self.0.connector.connect()).await;
        let mut state = self.0.state.lock();
        match connected {
            Ok(Ok(connection)) => {
                assert!(
                    state.connection.is_none(),
                    "there is one attempt to connect at a time"
                );
                state.connection = Some(connection);
                state.number += 1;
                state.silent_since = None;
                state.why = None;
            }
            Ok(Err(error)) => state.why = Some(error.to_string()),
            Err(_) => state.why = Some("it takes too long to connect to it".into()),
        }
        drop(state);
        self.0.is_connecting.store(false, Ordering::Release);
        self.0.tried.notify_waiters();
    }

    /// Drops a connection unless it has been replaced.
    fn disconnect(&self, number: u64, why: &str) {
        let mut state = self.0.state.lock();
        if state.number == number {
            state.connection = None;
            state.silent_since = None;
            state.why = Some(why.into());
        }
    }

    fn note_silence(&self, number: u64) {
        let now = clock::instant();
        let since = *self.0.state.lock().silent_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= PATIENCE {
            self.disconnect(number, "it sends nothing");
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.link.note_silence(self.number);
        }
    }
}

/// Returns true if a connection is broken, or leads to a server that is no longer master, or may not be
/// because it has lost its replicas.
fn is_over(error: &RedisError) -> bool {
    let is_elsewhere = matches!(
        error.code(),
        Some("READONLY" | "MASTERDOWN" | "NOAUTH" | "NOREPLICAS")
    );
    is_elsewhere || error.is_connection_dropped() || error.is_io_error() || error.is_unrecoverable_error()
}
