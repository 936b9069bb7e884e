//! A plain socket that uses `sendfile` for pages of mapped files where that is cheaper than copying.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::sendfile;
use rustix::net::{SendFlags, send};
use shoal_store::mapped_files;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// A client socket without TLS.
#[derive(Debug)]
pub struct SendfileStream(TcpStream);

impl SendfileStream {
    /// Wraps `stream`.
    pub fn new(stream: TcpStream) -> Self {
        Self(stream)
    }
}

/// Sends the slices in `before`, then pages of `file`.
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
        // Some bytes have been sent; the caller gets the error with its next call.
        Err(_) if sent > 0 => Ok(sent),
        Err(error) => Err(error.into()),
    }
}

impl AsyncWrite for SendfileStream {
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
            .find_map(|(at, slice)| Some((at, mapped_files::find(slice)?)));
        // A response head is one slice. With pipelined requests there may be more slices before the pages;
        // these are written without `sendfile`.
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

impl AsyncRead for SendfileStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buf)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// The bytes in memory differ from those of the file, so that the received bytes show which of them were
    /// sent.
    const COPIED: u8 = b'c';
    const SENT: u8 = b's';
    const LENGTH: usize = 400 << 10;

    async fn received(head: &'static [u8], registered: bool) -> Vec<u8> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![SENT; LENGTH]).unwrap();
        let bytes = vec![COPIED; LENGTH];
        let guard = registered.then(|| mapped_files::register(&bytes, &file).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let sending = async {
            let mut stream = SendfileStream::new(stream);
            let mut left = [head, bytes.as_slice()];
            while left.iter().any(|slice| !slice.is_empty()) {
                let slices = left.map(IoSlice::new);
                let from = usize::from(left[0].is_empty());
                let mut count = stream.write_vectored(&slices[from..]).await.unwrap();
                assert!(count > 0);
                for slice in &mut left {
                    let taken = count.min(slice.len());
                    *slice = &slice[taken..];
                    count -= taken;
                }
            }
            stream.shutdown().await.unwrap();
        };
        let mut all = Vec::new();
        // A socket may accept fewer bytes at once; the sender then waits for the reader.
        tokio::join!(sending, async { client.read_to_end(&mut all).await.unwrap() });
        drop(guard);
        all
    }

    #[tokio::test]
    async fn pages_of_a_known_file_are_sent_from_it_behind_their_head() {
        for head in [b"".as_slice(), b"head"] {
            let all = received(head, true).await;
            assert_eq!(all.len(), head.len() + LENGTH);
            assert!(all.starts_with(head));
            // The last few bytes may be too few for `sendfile`.
            let body = &all[head.len()..];
            assert!(
                body[..LENGTH / 2].iter().all(|&byte| byte == SENT),
                "from the file"
            );
        }
    }

    #[tokio::test]
    async fn other_bytes_are_copied() {
        let all = received(b"head", false).await;
        assert!(all[4..].iter().all(|&byte| byte == COPIED) && all.len() == 4 + LENGTH);
    }
}
