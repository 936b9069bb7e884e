//! A stream that is read in large pieces, however little its reader takes at a time.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, Join, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Size of one read. The TLS library by itself asks for as little as 4 KiB.
const READ_BYTES: usize = 64 << 10;

/// A socket that is read ahead. Writes go straight to it.
pub(super) type ReadAheadSocket = Join<ReadAhead, OwnedWriteHalf>;

/// The reading half of a socket, and bytes that were read and not taken.
pub(super) struct ReadAhead {
    socket: OwnedReadHalf,
    bytes: BytesMut,
}

/// Reads `socket` ahead.
pub(super) fn read_ahead(socket: TcpStream) -> ReadAheadSocket {
    let (socket, writer) = socket.into_split();
    let bytes = BytesMut::new();
    tokio::io::join(ReadAhead { socket, bytes }, writer)
}

impl ReadAhead {
    /// Reads more bytes once all are taken. Returns how many arrived.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.bytes.reserve(READ_BYTES);
        let mut room = (&mut self.bytes).limit(READ_BYTES);
        let polled = pin!(self.socket.read_buf(&mut room)).poll(cx);
        if polled.is_pending() {
            // An idle connection keeps no buffer.
            self.bytes = BytesMut::new();
        }
        polled
    }
}

impl AsyncRead for ReadAhead {
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
