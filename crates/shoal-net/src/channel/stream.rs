//! A connection whose ends have proven themselves to each other.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

use super::auth_failure::{AuthFailure, AuthFailures, RemoteNode};
use super::read_ahead::ReadAheadSocket;
use crate::sockets::sigbus_guard::SigbusGuard;

/// A connection to another node, or from one. An altered byte ends it.
pub struct NodeStream {
    stream: Stream,
    /// The error that ended the stream, kept until the bytes read before it are delivered.
    broken: Option<io::Error>,
    other: RemoteNode,
    auth_failures: Arc<AuthFailures>,
}

/// The carrier of the bytes.
pub(super) type Stream = Box<SigbusGuard<TlsStream<ReadAheadSocket>>>;

impl NodeStream {
    pub(super) fn new(stream: Stream, other: RemoteNode, auth_failures: Arc<AuthFailures>) -> Self {
        Self {
            stream,
            broken: None,
            other,
            auth_failures,
        }
    }

    fn poll_record(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        polled.map_err(|error| match AuthFailure::of_broken(&error) {
            Some(failure) => self.auth_failures.note(failure, &self.other),
            None => error,
        })
    }
}

impl AsyncRead for NodeStream {
    /// Reads all records that are here and fit. Each by itself would be passed on as a piece of 16 KiB.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(error) = this.broken.take() {
            return Poll::Ready(Err(error));
        }
        let start = buf.filled().len();
        loop {
            let before = buf.filled().len();
            match this.poll_record(cx, buf) {
                Poll::Ready(Ok(())) if buf.filled().len() > before && buf.remaining() > 0 => {}
                Poll::Ready(Err(error)) if before > start => {
                    this.broken = Some(error);
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending if before > start => return Poll::Ready(Ok(())),
                polled => return polled,
            }
        }
    }
}

impl AsyncWrite for NodeStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
