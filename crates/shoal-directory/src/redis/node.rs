//! A connection to one server of Redis, whose replies are bounded.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::Connect;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, RedisError,
    RedisFuture, RedisResult, Value,
};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::bounded::Bounded;

/// Timeout for connecting, and time without an answer after which a connection is dropped.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// TLS of the connections to a cluster. The client of clusters opens connections by a function without state,
/// and a process has one directory.
static TLS_OF_CLUSTER: Mutex<Option<TlsConnector>> = Mutex::new(None);

/// A connection that many requests share.
#[derive(Clone)]
pub(super) struct Node {
    connection: MultiplexedConnection,
    /// The task that drives the connection, aborted on drop because a silent server would keep it alive.
    _driver: Arc<JoinSet<()>>,
}

/// Sets TLS of all further connections to a cluster.
pub(super) fn set_tls_of_cluster(tls: Option<TlsConnector>) {
    *TLS_OF_CLUSTER.lock() = tls;
}

impl Node {
    /// Connects to a server, by `tls` if its address asks for TLS, and authenticates.
    pub(super) async fn connect(
        info: &ConnectionInfo,
        tls: Option<&TlsConnector>,
        within: Duration,
        config: AsyncConnectionConfig,
    ) -> RedisResult<Self> {
        let config = config.set_response_timeout(Some(PATIENCE));
        let slow = || io(std::io::ErrorKind::TimedOut, "it takes too long to connect to it");
        let connecting = Self::connect_now(info, tls, config);
        timeout(within, connecting).await.unwrap_or_else(|_| Err(slow()))
    }

    async fn connect_now(
        info: &ConnectionInfo,
        tls: Option<&TlsConnector>,
        config: AsyncConnectionConfig,
    ) -> RedisResult<Self> {
        match info.addr() {
            ConnectionAddr::Tcp(host, port) => Self::over(tcp(host, *port).await?, info, config).await,
            ConnectionAddr::TcpTls { host, port, .. } => {
                let name = ServerName::try_from(host.clone());
                let name =
                    name.map_err(|_| io(std::io::ErrorKind::InvalidInput, "its name is none of TLS"))?;
                let tls = tls.ok_or_else(|| io(std::io::ErrorKind::Other, "TLS is not set up"))?;
                let stream = tls.connect(name, tcp(host, *port).await?).await?;
                Self::over(stream, info, config).await
            }
            _ => Err(io(std::io::ErrorKind::Unsupported, "it is reached by TCP only")),
        }
    }

    async fn over<S>(stream: S, info: &ConnectionInfo, config: AsyncConnectionConfig) -> RedisResult<Self>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (replies, requests) = tokio::io::split(stream);
        let stream = tokio::io::join(Bounded::new(replies), requests);
        let made = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await;
        let (connection, driver) = made?;
        let mut driving = JoinSet::new();
        driving.spawn(driver);
        Ok(Self {
            connection,
            _driver: Arc::new(driving),
        })
    }
}

impl Connect for Node {
    fn connect_with_config<'a, T>(info: T, config: AsyncConnectionConfig) -> RedisFuture<'a, Self>
    where
        T: IntoConnectionInfo + Send + 'a,
    {
        Box::pin(async move {
            let info = info.into_connection_info()?;
            let tls = TLS_OF_CLUSTER.lock().clone();
            Self::connect(&info, tls.as_ref(), PATIENCE, config).await
        })
    }
}

impl ConnectionLike for Node {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        self.connection.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

async fn tcp(host: &str, port: u16) -> RedisResult<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn io(kind: std::io::ErrorKind, why: &'static str) -> RedisError {
    std::io::Error::new(kind, why).into()
}
