//! Bytes between nodes in the open. Each record of them has a proof that no third party can create or reuse.
//!
//! ```text
//! | length u32 | proof 32 | bytes |
//! ```
//!
//! The proof is AEGIS-128X2 as a MAC over the record's bytes, with the record's number as its nonce; it also
//! covers the number of bytes. Each direction of each connection has a separate key, which both ends derived
//! from the handshake. So a record that is altered, left out, moved, or sent a second time ends the
//! connection, and the reader sees no byte of it. Bytes to send are not copied: proofs are sent between the
//! caller's bytes, and bytes that are pages of a file are sent as those. Received bytes are read into one
//! buffer, record after record, and copied once: to the reader.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use aegis::aegis128x2::Aegis128X2Mac;
use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::read_ahead::ReadAhead;

/// Maximum number of bytes of one record: the bytes of one read are still in the processor's cache when they
/// are used again.
const RECORD_BYTES_MAX: usize = 64 << 10;

const LENGTH_BYTES: usize = size_of::<u32>();
const PROOF_BYTES: usize = 32;
const HEAD_BYTES: usize = LENGTH_BYTES + PROOF_BYTES;

/// Number of records made ahead of the socket, for one write: together they are still in the processor's
/// cache when they are sent.
const AHEAD_MAX: usize = 4;

/// Minimum size of a read as long as the length of the record is not known: requests and heads are shorter.
const READ_BYTES_MIN: usize = 4 << 10;

/// The key of one direction of a connection.
pub(super) type Key = [u8; 16];

/// The proof of one record.
type Proof = [u8; PROOF_BYTES];

/// A stream of records over another stream. After a partial write, its writer has to offer the remaining
/// bytes again, as every writer does.
pub(super) struct RecordStream<S> {
    /// Bytes that were read: the rest of a record whose proof is right, then the received part of the next
    /// one.
    stream: ReadAhead<S>,
    sent: Prover,
    received: Prover,
    /// Records that are not completely sent, in order.
    ahead: VecDeque<Outgoing>,
    /// Number of the read bytes that are proven.
    proven_bytes: usize,
    /// Length of the last record, including its head: the next one is likely to be as long.
    last_bytes: usize,
}

/// Proves the records of one direction, in their order.
struct Prover {
    key: Key,
    number: u64,
}

/// The unsent part of a record: its head, of which some bytes may be sent, and `body_bytes` bytes.
struct Outgoing {
    head: [u8; HEAD_BYTES],
    head_sent: usize,
    body_bytes: usize,
}

impl Prover {
    fn new(key: Key) -> Self {
        Self { key, number: 0 }
    }

    /// Returns the proof of the next record.
    fn proof(&self, bytes: &[u8]) -> Proof {
        let nonce = u128::from(self.number).to_le_bytes();
        let mut mac = Aegis128X2Mac::new_with_nonce(&self.key, &nonce);
        mac.update(bytes);
        mac.finalize()
    }
}

impl Outgoing {
    fn new(bytes: &[u8], prover: &mut Prover) -> Self {
        let mut head = [0; HEAD_BYTES];
        head[..LENGTH_BYTES].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        head[LENGTH_BYTES..].copy_from_slice(&prover.proof(bytes));
        prover.number += 1;
        Self {
            head,
            head_sent: 0,
            body_bytes: bytes.len(),
        }
    }
}

impl<S> RecordStream<S> {
    /// Creates records over `stream`, with one key for sent and one for received records.
    pub(super) fn new(stream: S, sent: Key, received: Key) -> Self {
        Self {
            stream: ReadAhead::new(stream),
            sent: Prover::new(sent),
            received: Prover::new(received),
            ahead: VecDeque::new(),
            proven_bytes: 0,
            last_bytes: 0,
        }
    }

    /// Makes records of the bytes that have none yet: those behind the records already made.
    fn prove_ahead(&mut self, slices: &[IoSlice<'_>]) {
        let mut covered: usize = self.ahead.iter().map(|record| record.body_bytes).sum();
        for slice in slices {
            let skipped = covered.min(slice.len());
            covered -= skipped;
            for bytes in slice[skipped..].chunks(RECORD_BYTES_MAX) {
                if self.ahead.len() >= AHEAD_MAX {
                    return;
                }
                self.ahead.push_back(Outgoing::new(bytes, &mut self.sent));
            }
        }
    }

    /// Notes that `sent` bytes were sent, including heads. Returns how many of them are the caller's.
    fn advance(&mut self, mut sent: usize) -> usize {
        let mut taken = 0;
        while let Some(record) = self.ahead.front_mut() {
            let head = sent.min(HEAD_BYTES - record.head_sent);
            record.head_sent += head;
            sent -= head;
            let body = sent.min(record.body_bytes);
            record.body_bytes -= body;
            sent -= body;
            taken += body;
            if record.head_sent < HEAD_BYTES || record.body_bytes > 0 {
                break;
            }
            self.ahead.pop_front();
        }
        taken
    }

    /// Returns the length of the next record, if its head has arrived.
    fn next_length(&self) -> io::Result<Option<usize>> {
        let Some(length) = self.stream.bytes().first_chunk() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if (1..=RECORD_BYTES_MAX).contains(&length) {
            Ok(Some(length))
        } else {
            Err(altered())
        }
    }

    /// Proves the next record, if all of it is here. Otherwise returns how many bytes to read: those that it
    /// lacks, and the head behind it.
    fn prove_next(&mut self) -> io::Result<Option<usize>> {
        let Some(length) = self.next_length()? else {
            return Ok(Some(self.last_bytes.max(READ_BYTES_MIN)));
        };
        let record_bytes = HEAD_BYTES + length;
        let Some(record) = self.stream.bytes().get(..record_bytes) else {
            return Ok(Some(record_bytes + HEAD_BYTES - self.stream.bytes().len()));
        };
        let (head, bytes) = record.split_at(HEAD_BYTES);
        let is_right = self.received.proof(bytes).ct_eq(&head[LENGTH_BYTES..]);
        if !bool::from(is_right) {
            return Err(altered());
        }
        self.received.number += 1;
        self.stream.take(HEAD_BYTES);
        (self.proven_bytes, self.last_bytes) = (length, record_bytes);
        Ok(None)
    }
}

/// Returns the error that a reader gets in place of bytes whose proof is wrong.
fn altered() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the proof of a record is wrong")
}

impl<S: AsyncRead + Unpin> AsyncRead for RecordStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.proven_bytes == 0 {
            let Some(missing) = this.prove_next()? else {
                break;
            };
            if ready!(this.stream.poll_more(cx, missing))? == 0 {
                let is_whole = this.stream.bytes().is_empty();
                return Poll::Ready(is_whole.then_some(()).ok_or(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        let count = this.proven_bytes.min(buf.remaining());
        buf.put_slice(&this.stream.bytes()[..count]);
        this.stream.take(count);
        this.proven_bytes -= count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RecordStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if slices.iter().all(|slice| slice.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        loop {
            this.prove_ahead(slices);
            let parts = interleave(&this.ahead, slices);
            let sent = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, &parts))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let taken = this.advance(sent);
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
        }
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

/// Returns the parts to send next: heads, and the caller's bytes between them.
fn interleave<'a>(ahead: &'a VecDeque<Outgoing>, slices: &'a [IoSlice<'_>]) -> Vec<IoSlice<'a>> {
    let mut parts = Vec::with_capacity(3 * AHEAD_MAX);
    let mut slices = slices.iter().map(|slice| &**slice);
    let mut rest: &[u8] = &[];
    for record in ahead {
        if record.head_sent < HEAD_BYTES {
            parts.push(IoSlice::new(&record.head[record.head_sent..]));
        }
        let mut body_bytes = record.body_bytes;
        while body_bytes > 0 {
            if rest.is_empty() {
                let Some(next) = slices.next() else { return parts };
                rest = next;
            }
            let (part, behind) = rest.split_at(body_bytes.min(rest.len()));
            if !part.is_empty() {
                parts.push(IoSlice::new(part));
            }
            body_bytes -= part.len();
            rest = behind;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::{HEAD_BYTES, RECORD_BYTES_MAX, RecordStream};

    const KEY: super::Key = [7; 16];
    const OTHER: super::Key = [8; 16];

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    /// Returns the bytes on the wire for these bytes.
    async fn sealed(bytes: &[u8]) -> Vec<u8> {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut records = RecordStream::new(near, KEY, OTHER);
        records.write_all(bytes).await.unwrap();
        drop(records);
        let mut wire = Vec::new();
        far.read_to_end(&mut wire).await.unwrap();
        wire
    }

    /// Returns the bytes that a reader gets from these bytes of the wire, and whether the stream ends well. A
    /// reader that goes on gets nothing more.
    async fn opened(wire: &[u8]) -> (Vec<u8>, bool) {
        let mut records = RecordStream::new(wire, OTHER, KEY);
        let (mut bytes, mut more) = (Vec::new(), Vec::new());
        let ended = records.read_to_end(&mut bytes).await;
        let ended_again = records.read_to_end(&mut more).await;
        assert_eq!((more, ended_again.is_ok()), (Vec::new(), ended.is_ok()));
        (bytes, ended.is_ok())
    }

    #[tokio::test]
    async fn bytes_sent_arrive_however_little_the_socket_takes() {
        for (length, socket_bytes) in [(1, 1), (100, 7), (300_000, 1_000), (300_000, 1 << 20)] {
            let sent = bytes(length);
            let (near, far) = tokio::io::duplex(socket_bytes);
            let mut near = RecordStream::new(near, KEY, OTHER);
            let mut far = RecordStream::new(far, OTHER, KEY);
            let (head, body) = sent.split_at(length / 3);
            let sending = async {
                let mut left = [head, body];
                while left.iter().any(|slice| !slice.is_empty()) {
                    let mut count = near.write_vectored(&left.map(IoSlice::new)).await.unwrap();
                    for slice in &mut left {
                        let taken = count.min(slice.len());
                        *slice = &slice[taken..];
                        count -= taken;
                    }
                }
                drop(near);
            };
            let mut received = Vec::new();
            let (ended, ()) = tokio::join!(far.read_to_end(&mut received), sending);
            ended.unwrap();
            assert!(received == sent, "{length} bytes through {socket_bytes}");
        }
    }

    #[tokio::test]
    async fn no_altered_byte_reaches_the_reader() {
        let sent = bytes(200);
        let wire = sealed(&sent).await;
        for at in 0..wire.len() {
            let mut other = wire.clone();
            other[at] ^= 1 << (at % 8);
            assert_eq!(opened(&other).await, (Vec::new(), false), "byte {at}");
        }
        for end in 1..wire.len() {
            assert_eq!(opened(&wire[..end]).await, (Vec::new(), false), "cut at {end}");
        }
        assert_eq!(opened(&wire).await, (sent, true));
    }

    #[tokio::test]
    async fn a_record_counts_in_its_place_and_once() {
        let sent = bytes(3 * RECORD_BYTES_MAX);
        let wire = sealed(&sent).await;
        let record = |number: usize| {
            &wire[number * (HEAD_BYTES + RECORD_BYTES_MAX)..][..HEAD_BYTES + RECORD_BYTES_MAX]
        };
        let first = sent[..RECORD_BYTES_MAX].to_vec();
        let twice = [record(0), record(0)].concat();
        assert!(opened(&twice).await == (first.clone(), false), "sent twice");
        let without = [record(0), record(2)].concat();
        assert!(opened(&without).await == (first, false), "left out");
        let swapped = [record(1), record(0)].concat();
        assert!(opened(&swapped).await == (Vec::new(), false), "swapped");
    }
}
