//! A plain socket that sends pages of files where that is cheaper than copying them.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::sendfile;
use rustix::net::{SendFlags, send};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::backing;

/// A client's socket without TLS.
#[derive(Debug)]
pub struct Sending(TcpStream);

impl Sending {
    /// Sends through `stream`.
    pub fn new(stream: TcpStream) -> Self {
        Self(stream)
    }
}

/// Sends the pages at `slices[at]`, and before them what stands before them.
fn send_pages(
    socket: BorrowedFd<'_>,
    before: &[IoSlice<'_>],
    file: BorrowedFd<'_>,
    mut offset: u64,
    length: usize,
) -> io::Result<usize> {
    let mut sent = 0;
    for slice in before {
        let count = send(socket, slice, SendFlags::MORE | SendFlags::NOSIGNAL)?;
        sent += count;
        if count < slice.len() {
            return Ok(sent);
        }
    }
    match sendfile(socket, file, Some(&mut offset), length) {
        Ok(pages) => Ok(sent + pages),
        // What has been sent has been sent; the caller comes again and is told then.
        Err(_) if sent > 0 => Ok(sent),
        Err(error) => Err(error.into()),
    }
}

impl AsyncWrite for Sending {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = &mut self.get_mut().0;
        let pages = slices
            .iter()
            .enumerate()
            .find_map(|(at, slice)| Some((at, backing::find(slice)?)));
        // A head is one slice. More of them before the pages come from a client that asks ahead; they go out as they are.
        let Some((at @ 0..=1, (file, offset))) = pages else {
            return Pin::new(stream).poll_write_vectored(cx, slices);
        };
        loop {
            ready!(stream.poll_write_ready(cx))?;
            let write = || {
                send_pages(
                    stream.as_fd(),
                    &slices[..at],
                    file.as_fd(),
                    offset,
                    slices[at].len(),
                )
            };
            match stream.try_io(Interest::WRITABLE, write) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}

impl AsyncRead for Sending {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buf)
    }
}
