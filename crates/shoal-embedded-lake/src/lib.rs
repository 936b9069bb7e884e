//! A lake for development: serves a folder as S3, for `shoal dev` and for tests.
//!
//! `s3s` implements the protocol and `s3s-fs` stores the files. A cache needs more: the decorator in [`lake`]
//! adds conditional reads, changes an object's bytes and its ETag atomically, and adds ETags to listings.
//! Files placed in `<folder>/<bucket>/` by hand are objects, too.
//!
//! Limits: one account, no versions, no policies, no reads of single parts, no listing of uploads, only
//! single ranges; parts are numbered from 1 without gaps. Objects are files, so keys `a` and `a/b` cannot
//! both exist, keys have no empty, `.` or `..` segments, and they are limited to about 160 bytes. Checksums
//! of parts are not verified.

mod conditions;
mod lake;
mod layout;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::fs::{File, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
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

/// Access key of the only account.
pub const ACCESS_KEY: &str = "shoaldev";
/// Its secret key. Not a secret: the lake listens only on loopback.
pub const SECRET_KEY: &str = "shoaldev-secret";
/// The bucket that exists initially.
pub const BUCKET: &str = "demo";

/// Time limit for requests in flight during shutdown.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a failed `accept`, such as with a full file table.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running lake. Dropping it aborts its requests; [`Self::shutdown`] lets them finish.
#[derive(Debug)]
pub struct EmbeddedLake {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
    /// Locks the folder against other lakes.
    _lock: File,
}

/// Why a lake fails to start.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}")]
pub struct EmbeddedLakeError {
    /// The step that failed, as words that follow "cannot".
    step: String,
    source: io::Error,
}

impl EmbeddedLake {
    /// Serves `folder` on `address`; port 0 selects a free port. Requests are accepted once this returns.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be used, another process has locked it, or the address cannot be bound.
    pub async fn start(folder: &Path, address: SocketAddr) -> Result<Self, EmbeddedLakeError> {
        let unusable = |source| EmbeddedLakeError {
            step: format!("use the folder {}", folder.display()),
            source,
        };
        let lock = lock(folder).map_err(unusable)?;
        let lake = DirectoryLake::open(folder).map_err(unusable)?;
        std::fs::create_dir_all(folder.join(BUCKET)).map_err(unusable)?;
        let mut service = S3ServiceBuilder::new(lake);
        service.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));

        let deaf = |source| EmbeddedLakeError {
            step: format!("listen on {address}"),
            source,
        };
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

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting connections; returns once the requests in flight have finished, or after a few
    /// seconds.
    pub async fn shutdown(self) {
        // Fails if the server has already stopped.
        let _ = self.stop.send(());
        if let Err(error) = self.server.await {
            tracing::error!(%error, "the embedded lake failed");
        }
    }
}

/// Locks the folder, because a second lake would delete the objects that this one is receiving.
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
    // After the time limit, connections end with the runtime.
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
