//! A stream of Redis replies that fails before a reply becomes too large.
//!
//! The client keeps a reply in memory until it is complete. The server may be broken or not a Redis at all,
//! and an endless line or array must not fill the memory of a node.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// The maximum size of a reply. The states of all nodes of a large cluster take a few hundred kilobytes.
const REPLY_BYTES_MAX: u64 = 8 << 20;

/// The maximum number of announced values of a reply.
const VALUES_MAX: u64 = 1 << 20;

/// The maximum length of a line of a reply: a length, an error, or a short value.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A stream whose replies are bounded.
pub(super) struct Bounded<S> {
    stream: S,
    scanner: Scanner,
}

/// Parses the framing of replies.
#[derive(Debug, Default)]
struct Scanner {
    /// Bytes of the reply so far, including announced strings.
    bytes: u64,
    /// Remaining values of the reply.
    pending: u64,
    /// Remaining bytes of a string, including its line end.
    text: u64,
    /// The line so far.
    line: Vec<u8>,
}

impl<S> Bounded<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            scanner: Scanner::default(),
        }
    }
}

impl Scanner {
    /// Scans the next bytes.
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        while !bytes.is_empty() {
            if self.text > 0 {
                let part = bytes.len().min(usize::try_from(self.text).unwrap_or(usize::MAX));
                self.text -= part as u64;
                bytes = &bytes[part..];
                self.end_reply();
                continue;
            }
            if self.pending == 0 && self.line.is_empty() {
                (self.bytes, self.pending) = (0, 1);
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = end.map_or(bytes.len(), |end| end + 1);
            self.line
                .extend_from_slice(&bytes[..part.min(LINE_BYTES_MAX + 1)]);
            if self.line.len() > LINE_BYTES_MAX {
                return Err("a reply has a line of more than 64 KiB");
            }
            bytes = &bytes[part..];
            if end.is_some() {
                self.line_ends()?;
                self.line.clear();
                self.end_reply();
            }
        }
        Ok(())
    }

    /// Parses a line, which is a value or announces one.
    fn line_ends(&mut self) -> Result<(), &'static str> {
        self.bytes += self.line.len() as u64;
        let (kind, rest) = self.line.split_first().expect("a line has its end");
        let number = || {
            let text = std::str::from_utf8(rest).unwrap_or_default().trim_ascii();
            // -1 means null.
            text.parse::<i64>().map(|number| u64::try_from(number).ok())
        };
        let unreadable = "a reply cannot be read";
        let mut values = 0;
        match kind {
            b'$' | b'!' | b'=' => {
                if let Some(length) = number().map_err(|_| unreadable)? {
                    self.text = length.saturating_add(2);
                }
            }
            b'*' | b'~' | b'>' => values = number().map_err(|_| unreadable)?.unwrap_or_default(),
            b'%' => {
                let pairs = number().map_err(|_| unreadable)?.unwrap_or_default();
                values = pairs.saturating_mul(2);
            }
            // Attributes precede a value.
            b'|' => {
                let attributes = number().map_err(|_| unreadable)?.unwrap_or_default();
                values = attributes.saturating_mul(2).saturating_add(1);
            }
            _ => {}
        }
        self.bytes = self.bytes.saturating_add(self.text);
        let others = self.pending.checked_sub(1).ok_or(unreadable)?;
        self.pending = others.saturating_add(values);
        if self.bytes > REPLY_BYTES_MAX || self.pending > VALUES_MAX {
            return Err("a reply has more than 8 MiB or a million values");
        }
        Ok(())
    }

    fn end_reply(&mut self) {
        if self.pending == 0 && self.text == 0 {
            self.bytes = 0;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let taken = self.scanner.take(&buffer.filled()[before..]);
        Poll::Ready(taken.map_err(io::Error::other))
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, REPLY_BYTES_MAX, Scanner};

    /// Takes bytes in pieces of every size.
    fn take(bytes: &[u8]) -> Result<Scanner, &'static str> {
        let mut whole = Scanner::default();
        whole.take(bytes)?;
        for size in 1..bytes.len().min(9) {
            let mut scanner = Scanner::default();
            for piece in bytes.chunks(size) {
                scanner.take(piece)?;
            }
            assert_eq!(format!("{scanner:?}"), format!("{whole:?}"));
        }
        Ok(whole)
    }

    #[test]
    fn replies_of_every_kind_end_where_the_next_begins() {
        let replies = b"+OK\r\n:7\r\n$-1\r\n$3\r\na\nb\r\n*2\r\n$0\r\n\r\n*1\r\n-ERR no\r\n*-1\r\n*0\r\n\
                        %1\r\n+a\r\n_\r\n|1\r\n+k\r\n,1.5\r\n#t\r\n>2\r\n+x\r\n(99\r\n=7\r\ntxt:abc\r\n";
        let scanner = take(replies).unwrap();
        assert_eq!((scanner.pending, scanner.text, scanner.bytes), (0, 0, 0));
        let many: Vec<u8> = replies.repeat(1_000_000 / replies.len());
        let mut scanner = Scanner::default();
        for _ in 0..20 {
            scanner.take(&many).unwrap();
        }
    }

    #[test]
    fn a_reply_beyond_all_bounds_is_an_error_before_it_has_come() {
        let line = [b"+".as_slice(), &b"x".repeat(LINE_BYTES_MAX)].concat();
        let texts = [b"*9\r\n".to_vec(), b"$1048570\r\n".to_vec()].concat();
        for bytes in [
            &line[..],
            b"$8388608\r\n",
            b"$99999999999999999\r\n",
            b"$18446744073709551616\r\n",
            b"*1048577\r\n",
            b"%9223372036854775807\r\n",
            b"$?\r\n",
        ] {
            assert!(
                take(bytes).is_err(),
                "{:?}",
                String::from_utf8_lossy(&bytes[..20.min(bytes.len())])
            );
        }
        let mut scanner = Scanner::default();
        scanner.take(&texts).unwrap();
        let mut taken = Ok(());
        for _ in 0..8 {
            taken = taken.and_then(|()| scanner.take(&b"x".repeat(1_048_570)));
            taken = taken.and_then(|()| scanner.take(b"\r\n$1048570\r\n"));
        }
        assert!(taken.is_err(), "nine texts are more than {REPLY_BYTES_MAX} bytes");
    }
}
