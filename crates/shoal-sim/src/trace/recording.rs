//! A trace that is replayed several times but read once: its requests are kept in compact form.

use super::packed::{decode, encode};
use super::{Access, Accesses, TraceError};

/// The number of requests per chunk.
const CHUNK: usize = 1 << 16;

/// The maximum size of kept requests, some hundred million of them. A longer trace is read again each time.
const TAPE_BYTES_MAX: usize = 1 << 31;

/// A trace that has been read to its end.
pub(crate) struct Recording<'trace> {
    open: &'trace dyn Fn() -> Result<Accesses, TraceError>,
    /// Its chunks; `None` if they are too large.
    packed: Option<Vec<Box<[u8]>>>,
}

impl<'trace> Recording<'trace> {
    /// Reads the trace that `open` opens, and passes it to `take` in chunks. `progress` receives the number
    /// of requests. It is called once for many requests, so it may be slow.
    pub(crate) fn read(
        open: &'trace dyn Fn() -> Result<Accesses, TraceError>,
        progress: &mut dyn FnMut(u64),
        take: impl FnMut(&[Access]) -> Result<(), TraceError>,
    ) -> Result<Self, TraceError> {
        Self::read_within(TAPE_BYTES_MAX, open, progress, take)
    }

    fn read_within(
        bytes_max: usize,
        open: &'trace dyn Fn() -> Result<Accesses, TraceError>,
        progress: &mut dyn FnMut(u64),
        mut take: impl FnMut(&[Access]) -> Result<(), TraceError>,
    ) -> Result<Self, TraceError> {
        let (mut packed, mut bytes) = (Some(Vec::new()), 0);
        in_chunks(open()?, |chunk| {
            take(chunk)?;
            packed = packed.take().and_then(|mut pieces: Vec<Box<[u8]>>| {
                let piece = encode(chunk);
                bytes += piece.len();
                pieces.push(piece);
                (bytes <= bytes_max).then_some(pieces)
            });
            progress(chunk.len() as u64);
            Ok(())
        })?;
        Ok(Self { open, packed })
    }

    /// Passes the trace to `take` again.
    pub(crate) fn replay(
        &self,
        progress: &mut dyn FnMut(u64),
        mut take: impl FnMut(&[Access]),
    ) -> Result<(), TraceError> {
        let mut take = |chunk: &[Access]| {
            take(chunk);
            progress(chunk.len() as u64);
        };
        match &self.packed {
            Some(pieces) => {
                let mut chunk = Vec::new();
                for piece in pieces {
                    decode(piece, &mut chunk);
                    take(&chunk);
                }
            }
            None => in_chunks((self.open)()?, |chunk| {
                take(chunk);
                Ok(())
            })?,
        }
        Ok(())
    }
}

/// Passes the requests to `take` in chunks.
fn in_chunks(
    accesses: Accesses,
    mut take: impl FnMut(&[Access]) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut chunk = Vec::with_capacity(CHUNK);
    for access in accesses {
        chunk.push(access?);
        if chunk.len() == CHUNK {
            take(&chunk)?;
            chunk.clear();
        }
    }
    take(&chunk)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::Recording;
    use crate::trace::tests::accesses;
    use crate::trace::{Accesses, Format};

    const TRACE: &str = "object,offset_bytes,bytes,object_bytes\na,0,5,5\nb,5,1,9\na,0,5,5\n";

    /// How often a trace that is replayed twice is opened. Checks that it is the same each time.
    fn opened(bytes_max: usize) -> u32 {
        let opened = Cell::new(0);
        let open = || {
            opened.set(opened.get() + 1);
            Ok(Box::new(accesses(TRACE, Format::Csv).unwrap().into_iter().map(Ok)) as Accesses)
        };
        let mut passes = vec![Vec::new()];
        let mut told = 0;
        let first = passes.last_mut().unwrap();
        let recording = Recording::read_within(bytes_max, &open, &mut |count| told += count, |chunk| {
            first.extend_from_slice(chunk);
            Ok(())
        })
        .unwrap();
        for _ in 0..2 {
            let mut pass = Vec::new();
            recording
                .replay(&mut |count| told += count, |chunk| pass.extend_from_slice(chunk))
                .unwrap();
            passes.push(pass);
        }
        assert_eq!(passes[0].len(), 3);
        assert!(passes.iter().all(|pass| *pass == passes[0]), "{passes:?}");
        assert_eq!(told, 9, "every pass is told of");
        opened.get()
    }

    #[test]
    fn a_trace_that_fits_is_read_once() {
        assert_eq!(opened(1000), 1);
    }

    #[test]
    fn a_trace_that_does_not_fit_is_read_again() {
        assert_eq!(opened(10), 3);
    }
}
