//! The socket of a connection, which misbehaves on command as no HTTP library would.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Orders of a response to its socket: reset the connection, or send other bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct WireControl(Arc<Orders>);

#[derive(Debug, Default)]
struct Orders {
    resets: AtomicBool,
    raw: Mutex<Option<Bytes>>,
}

impl WireControl {
    /// The connection is reset when it is written to or closed.
    pub(super) fn reset(&self) {
        self.0.resets.store(true, Ordering::SeqCst);
    }

    /// The next write puts these bytes on the wire instead and closes.
    pub(super) fn replace(&self, raw: Bytes) {
        *self.0.raw.lock() = Some(raw);
    }
}

pub(super) struct Wire {
    stream: TcpStream,
    control: WireControl,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, control: WireControl) -> Self {
        Self { stream, control }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.control.0.resets.load(Ordering::SeqCst) {
            // A socket that is closed with no time to linger sends RST.
            SockRef::from(&self.stream)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, control } = self.get_mut();
        if control.0.resets.load(Ordering::SeqCst) {
            return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
        }
        let mut raw = control.0.raw.lock();
        let Some(left) = raw.as_mut() else {
            return Pin::new(stream).poll_write(cx, buf);
        };
        while left.has_remaining() {
            let written = ready!(Pin::new(&mut *stream).poll_write(cx, left))?;
            left.advance(written);
        }
        Poll::Ready(Err(ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.control.0.resets.load(Ordering::SeqCst) {
            // A farewell would come before the reset.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
