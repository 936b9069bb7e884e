//! The common part of access logs: a line is a request or nothing, and names and times become numbers.

use std::io::Read;

use shoal_logs::RequestKind;
use time::OffsetDateTime;

use super::{Access, Lines, Operation, TraceError};
use crate::clock::Time;
use crate::names::Names;

/// Parses one line. Returns `None` if it moves no bytes of an object.
pub(super) type ParseLine<R> = fn(&mut Log<R>, &str) -> Result<Option<Access>, TraceError>;

/// The requests of a log.
pub(super) struct Log<R> {
    pub(super) lines: Lines<R>,
    pub(super) objects: Names,
    pub(super) clients: Names,
    pub(super) since: Since,
    /// The greatest length that each object has had.
    lengths: Vec<u64>,
    parse: ParseLine<R>,
}

impl<R> Log<R> {
    pub(super) fn new(lines: Lines<R>, parse: ParseLine<R>) -> Self {
        Self {
            lines,
            objects: Names::default(),
            clients: Names::default(),
            since: Since::default(),
            lengths: Vec::new(),
            parse,
        }
    }

    /// Gives a write or a deletion the greatest length that the object has had, so that it invalidates every
    /// block. A log does not contain the object's length.
    fn outdating_all(&mut self, mut access: Access) -> Access {
        let object = access.object as usize;
        if object >= self.lengths.len() {
            self.lengths.resize(object + 1, 0);
        }
        let longest = &mut self.lengths[object];
        *longest = access.object_bytes.max(*longest);
        if access.operation != Operation::Read {
            access.object_bytes = *longest;
        }
        access
    }
}

impl<R: Read> Iterator for Log<R> {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = match self.lines.next_line()? {
                Ok(line) => line,
                Err(error) => return Some(Err(error)),
            };
            if let Some(access) = (self.parse)(self, &line).transpose() {
                return Some(access.map(|access| self.outdating_all(access)));
            }
        }
    }
}

/// The operation of a request; `None` if it moves no bytes of an object.
pub(super) const fn operation(kind: RequestKind) -> Option<Operation> {
    match kind {
        RequestKind::Read => Some(Operation::Read),
        RequestKind::Write => Some(Operation::Write),
        RequestKind::Delete => Some(Operation::Delete),
        RequestKind::Other => None,
    }
}

/// Times of a log, counted from its first line.
///
/// Merged logs of several servers are only roughly in order: a time before the first line counts as that of
/// the first line.
#[derive(Debug, Default)]
pub(super) struct Since {
    first: Option<OffsetDateTime>,
}

impl Since {
    /// Converts `at` to the time of the trace.
    pub(super) fn first_line(&mut self, at: OffsetDateTime) -> Time {
        let nanos = (at - *self.first.get_or_insert(at)).whole_nanoseconds();
        Time(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}
