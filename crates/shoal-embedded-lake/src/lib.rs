//! A lake for a developer's desk: a folder served as S3, for `shoal dev` and for tests.
//!
//! `s3s` speaks the protocol and `s3s-fs` keeps the files. Behind a cache that is not enough: the decorator
//! in [`lake`] adds conditional reads, makes an object's bytes and its ETag change in one step, and adds
//! ETags to listings. Files that are put into `<folder>/<bucket>/` by hand are objects too.
//!
//! Its limits are those of a desk: one account, no versions, no policies, no reads of single parts, no
//! listing of uploads, only single ranges; parts are numbered from 1 without gaps. Objects are files, so keys
//! `a` and `a/b` cannot both exist, keys have no empty, `.` or `..` parts, and they end near 160 bytes.
//! Checksums of parts are not verified.

mod conditions;
mod lake;
mod layout;
mod list;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::fs::{File, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use lake::DirectoryLake;

/// Access key of the one account.
pub const ACCESS_KEY: &str = "shoaldev";
/// The account's secret. It is public: the lake listens where no other machine can reach it.
pub const SECRET_KEY: &str = "shoaldev-secret";
/// The bucket that is there from the start.
pub const BUCKET: &str = "demo";

/// Requests that are still running after this time are broken off.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);
/// The pause that lets a full file table drain, instead of spinning on `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running lake. Dropping it breaks off its requests; [`Self::shutdown`] lets them finish.
#[derive(Debug)]
pub struct EmbeddedLake {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
    /// Keeps other lakes off the folder.
    _lock: File,
}

/// Why a lake does not start.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedLakeError {
    /// The port is taken, or this process may not take it.
    #[error("cannot listen on {address}")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// The folder cannot be made or read.
    #[error("cannot use the folder {}", folder.display())]
    Folder {
        /// The configured folder.
        folder: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl EmbeddedLake {
    /// Serves `folder` on `address`; port 0 stands for any free one. Requests are answered once this returns.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be used, another process has locked it, or the address cannot be bound.
    pub async fn start(folder: &Path, address: SocketAddr) -> Result<Self, EmbeddedLakeError> {
        let unusable = |source| EmbeddedLakeError::Folder {
            folder: folder.into(),
            source,
        };
        let lock = lock(folder).map_err(unusable)?;
        let lake = DirectoryLake::open(folder).map_err(unusable)?;
        std::fs::create_dir_all(folder.join(BUCKET)).map_err(unusable)?;
        let mut service = S3ServiceBuilder::new(lake);
        service.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));

        let deaf = |source| EmbeddedLakeError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(deaf)?;
        let address = listener.local_addr().map_err(deaf)?;
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(serve(listener, service.build(), stopped));
        Ok(Self {
            address,
            stop,
            server,
            _lock: lock,
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no new connection and returns when the requests in flight are done, or after a few seconds.
    pub async fn shutdown(self) {
        // A server that has stopped by itself needs no signal.
        let _ = self.stop.send(());
        if let Err(error) = self.server.await {
            tracing::error!(%error, "the embedded lake failed");
        }
    }
}

/// Locks the folder for one lake: another one would clear away the objects that this one is still receiving.
fn lock(folder: &Path) -> io::Result<File> {
    std::fs::create_dir_all(folder)?;
    let lock = File::create(folder.join(".lock"))?;
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::new(io::ErrorKind::ResourceBusy, "another lake uses it"),
        TryLockError::Error(error) => error,
    })?;
    Ok(lock)
}

async fn serve(listener: TcpListener, service: S3Service, mut stopped: oneshot::Receiver<()>) {
    let connections = GracefulShutdown::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => serve_connection(socket, service.clone(), &connections),
                Err(error) => {
                    tracing::warn!(%error, "the embedded lake cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            _ = &mut stopped => break,
        }
    }
    // Past the deadline the connections end with the runtime.
    let _ = tokio::time::timeout(SHUTDOWN_PATIENCE, connections.shutdown()).await;
}

fn serve_connection(socket: TcpStream, service: S3Service, connections: &GracefulShutdown) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY: small answers of the embedded lake will be slow");
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(socket), service);
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the embedded lake broke off");
        }
    });
}
