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

    /// Returns the stream itself. All bytes that were read must have been taken.
    pub(super) fn into_inner(self) -> S {
        debug_assert!(self.bytes.is_empty(), "bytes that were read ahead are lost");
        self.stream
    }

    /// Returns the bytes that were read and not taken.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes the first `count` of the bytes.
    pub(super) fn take(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl<S: AsyncRead + Unpin> ReadAhead<S> {
    /// Reads more bytes, at most `at_most`, behind those that are here. Returns how many arrived.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>, at_most: usize) -> Poll<io::Result<usize>> {
        self.bytes.reserve(at_most);
        let mut room = (&mut self.bytes).limit(at_most);
        let polled = pin!(self.stream.read_buf(&mut room)).poll(cx);
        if polled.is_pending() && self.bytes.is_empty() {
            // An idle connection keeps no buffer.
            self.bytes = BytesMut::new();
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.bytes.is_empty() && ready!(this.poll_more(cx, READ_BYTES))? == 0 {
            return Poll::Ready(Ok(()));
        }
        let count = this.bytes.len().min(buf.remaining());
        buf.put_slice(&this.bytes[..count]);
        this.take(count);
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
