//! The socket of a connection to an endpoint, the last place where a request can be stopped.
//!
//! A node may send a change only while its session with the registry lasts. A check above a buffer does not
//! cover the moment when the bytes leave: a node that was suspended in between would overwrite what other
//! nodes have written since. So the socket checks before each of its system calls.
//!
//! A socket is reset however it closes, also by the kernel when the process is killed, so that nothing more
//! leaves the kernel's buffer. After an orderly end in the middle of a body, a lake may store a part as the
//! whole object.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use shoal_base::send_permit::SendPermit;
use socket2::SockRef;
use tokio::net::TcpStream;

/// Maximum number of unsent bytes of a change in the kernel. The kernel sends them without the node, so they
/// should be gone within the fence.
const UNSENT_BYTES_MAX: u32 = 64 << 10;

/// The permission under which a connection currently sends. Its socket and its user share it.
#[derive(Clone, Default)]
pub(in crate::endpoint) struct CurrentPermit(Arc<Mutex<Option<SendPermit>>>);

/// The node may no longer send.
#[derive(Debug, thiserror::Error)]
#[error("the session of this node with the registry ended")]
pub(in crate::endpoint) struct PermitOver;

/// A socket that sends changes only while the node may.
pub(in crate::endpoint) struct Socket {
    tcp: TokioIo<TcpStream>,
    permit: CurrentPermit,
    /// How long the kernel keeps bytes of a change that the endpoint's side does not acknowledge.
    undelivered_max: Duration,
    /// True if the kernel's buffer is limited for a change.
    is_bounded: bool,
}

impl CurrentPermit {
    /// Sets the permission that the next bytes need; `None` if they need none.
    pub(in crate::endpoint) fn set(&self, permit: Option<SendPermit>) {
        *self.0.lock() = permit;
    }

    fn is_needed(&self) -> bool {
        self.0.lock().is_some()
    }

    fn check(&self) -> Result<(), PermitOver> {
        let may_send = self.0.lock().as_ref().is_none_or(SendPermit::may_send);
        may_send.then_some(()).ok_or(PermitOver)
    }
}

impl Socket {
    /// Takes over a connection. `undelivered_max` limits how long the kernel keeps unacknowledged bytes of a
    /// change.
    pub(in crate::endpoint) fn new(tcp: TokioIo<TcpStream>, undelivered_max: Duration) -> io::Result<Self> {
        tcp.inner().set_zero_linger()?;
        Ok(Self {
            tcp,
            permit: CurrentPermit::default(),
            undelivered_max,
            is_bounded: false,
        })
    }

    /// Returns the permission under which the socket sends.
    pub(in crate::endpoint) fn permit(&self) -> CurrentPermit {
        self.permit.clone()
    }

    /// Writes, if the node may.
    fn poll_permitted(
        &mut self,
        write: impl FnOnce(Pin<&mut TokioIo<TcpStream>>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.permit.is_needed() != self.is_bounded {
            self.bound(!self.is_bounded)?;
        }
        // Nothing may come between this check and the system call.
        self.permit.check().map_err(io::Error::other)?;
        write(Pin::new(&mut self.tcp))
    }

    /// Limits the number of bytes in the kernel and their age, or removes the limits.
    fn bound(&mut self, is_bounded: bool) -> io::Result<()> {
        let socket = SockRef::from(self.tcp.inner());
        // Zero selects the system's default.
        let (time, bytes) = if is_bounded {
            (Some(self.undelivered_max), UNSENT_BYTES_MAX)
        } else {
            (None, 0)
        };
        socket.set_tcp_user_timeout(time)?;
        socket.set_tcp_notsent_lowat(bytes)?;
        self.is_bounded = is_bounded;
        Ok(())
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buffer)
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_permitted(|tcp| tcp.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_permitted(|tcp| tcp.poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
