//! A stream that is read in large pieces, however little its reader takes at a time.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// Size of one read. The TLS library by itself asks for as little as 4 KiB.
const READ_BYTES: usize = 64 << 10;

/// A stream, and bytes of it that were read and not taken. Writes go straight to the stream.
pub(super) struct ReadAhead<S> {
    stream: S,
    bytes: BytesMut,
}

impl<S> ReadAhead<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            bytes: BytesMut::new(),
        }
    }
}

impl<S: AsyncRead + Unpin> ReadAhead<S> {
    /// Reads more bytes once all are taken. Returns how many arrived.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.bytes.reserve(READ_BYTES);
        let mut room = (&mut self.bytes).limit(READ_BYTES);
        let polled = pin!(self.stream.read_buf(&mut room)).poll(cx);
        if polled.is_pending() {
            // An idle connection keeps no buffer.
            self.bytes = BytesMut::new();
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.bytes.is_empty() && ready!(this.poll_more(cx))? == 0 {
            return Poll::Ready(Ok(()));
        }
        let count = this.bytes.len().min(buf.remaining());
        buf.put_slice(&this.bytes[..count]);
        this.bytes.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
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
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
