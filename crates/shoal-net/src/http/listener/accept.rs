//! Accepts connections from the kernel, and survives a lack of resources.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tracing::{debug, error};

use crate::metrics::ConnectionMetrics;
use crate::time::clock;
use crate::time::log_throttle::LogThrottle;

/// Pause when the kernel has no descriptor or memory for another connection. The connection stays in the
/// kernel's queue and keeps the socket readable, so an immediate retry would spin.
const BACK_OFF: Duration = Duration::from_millis(100);

/// How often a continuing shortage is logged.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(30);

/// A listening socket that continues after errors of `accept`.
pub(super) struct Acceptor {
    listener: TcpListener,
    complaints: LogThrottle,
}

impl Acceptor {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            complaints: LogThrottle::every(COMPLAINT_INTERVAL),
        }
    }

    /// Returns the next connection. Cancel-safe: no connection is lost.
    pub(super) async fn next(&self, metrics: &ConnectionMetrics) -> (TcpStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    // Without this option, the second of two small writes waits 40 ms for the client's
                    // acknowledgement.
                    if let Err(error) = stream.set_nodelay(true) {
                        debug!(%address, %error, "the client disconnected before it was served");
                        continue;
                    }
                    return (stream, address);
                }
                Err(error) if is_shortage(&error) => {
                    metrics.refusals.count("accept");
                    if self.complaints.admit(clock::instant()).is_some() {
                        error!(
                            %error,
                            "cannot accept connections\nhint: raise the limit of open files (LimitNOFILE, ulimit -n), or lower limits.requests"
                        );
                    }
                    sleep(BACK_OFF).await;
                }
                // The client disconnected while it was in the queue.
                Err(error) => debug!(%error, "a connection was closed before it was accepted"),
            }
        }
    }
}

/// Returns true if `accept` failed for lack of a resource, and not because of one connection.
fn is_shortage(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}
