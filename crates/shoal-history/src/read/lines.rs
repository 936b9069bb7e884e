//! Lines of a file, with their numbers.

use std::io::BufRead;

use shoal_logs::Mismatch;
use shoal_logs::line::{LineEnd, read_line};

use crate::error::HistoryError;

/// Non-empty lines of limited length.
pub(super) struct Lines<'name, R> {
    input: R,
    name: &'name str,
    number: u64,
    bytes_max: usize,
    buffer: Vec<u8>,
}

/// One line.
pub(super) enum Line<'line> {
    /// Its bytes, without the line terminator.
    Whole(&'line [u8]),
    /// Longer than the limit; skipped.
    TooLong,
}

impl<'name, R: BufRead> Lines<'name, R> {
    pub(super) fn new(name: &'name str, input: R, bytes_max: usize) -> Self {
        Self {
            input,
            name,
            number: 0,
            bytes_max,
            buffer: Vec::new(),
        }
    }

    /// Returns the next line; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Line<'_>>, HistoryError> {
        loop {
            self.number += 1;
            let end = read_line(&mut self.input, &mut self.buffer, self.bytes_max)
                .map_err(|source| HistoryError::io(self.name, source))?;
            match end {
                LineEnd::NoMore => return Ok(None),
                LineEnd::TooLong => return Ok(Some(Line::TooLong)),
                LineEnd::Line if self.buffer.is_empty() => {}
                LineEnd::Line => return Ok(Some(Line::Whole(&self.buffer))),
            }
        }
    }

    /// Returns an error about the last line read.
    pub(super) fn error(&self, mismatch: Mismatch) -> HistoryError {
        HistoryError::line(self.name, self.number, mismatch)
    }

    /// Passes each line to `take` as text. Invalid UTF-8 is replaced, because names are only displayed.
    pub(super) fn each(
        &mut self,
        mut take: impl FnMut(&str) -> Result<Result<(), HistoryError>, Mismatch>,
    ) -> Result<(), HistoryError> {
        loop {
            let taken = match self.next()? {
                None => return Ok(()),
                Some(Line::TooLong) => Err(Mismatch::new(
                    format!("a line of more than {} bytes", self.bytes_max),
                    "shorter lines",
                )),
                Some(Line::Whole(line)) => take(&String::from_utf8_lossy(line)),
            };
            taken.map_err(|mismatch| self.error(mismatch))??;
        }
    }
}
