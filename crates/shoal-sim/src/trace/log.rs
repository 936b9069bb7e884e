//! Access logs of Amazon S3 and of Shoal's nodes: a line is a request or nothing, and names and times become
//! numbers.
//!
//! Successful `GET`s of objects are reads; `PUT`s, copies and completed uploads are writes, `DELETE`s are
//! deletions. All other requests (heads, lists, failures, 304) move no object bytes and are left out. Logs of
//! Amazon S3 and of earlier nodes do not give the range of a partial answer (206): it is taken from the start
//! of the object.

#[cfg(test)]
mod tests;

use shoal_logs::line::Lines;
use shoal_logs::{AccessLog, Mismatch, RequestKind};
use time::OffsetDateTime;

use super::{Access, Limits, Operation, Piece, TraceError};
use crate::clock::Time;
use crate::names::Names;

/// The requests of a log.
pub(super) struct Log {
    lines: Lines,
    kind: AccessLog,
    limits: Limits,
    objects: Names,
    clients: Names,
    /// The time of the first line.
    first: Option<OffsetDateTime>,
    /// The greatest length that each object has had.
    lengths: Vec<u64>,
}

impl Log {
    pub(super) fn new(lines: Lines, kind: AccessLog, limits: Limits) -> Self {
        Self {
            lines,
            kind,
            limits,
            objects: Names::default(),
            clients: Names::default(),
            first: None,
            lengths: Vec::new(),
        }
    }

    /// Reads the next request; `None` after the last one.
    pub(super) fn read_next(&mut self) -> Result<Option<Access>, TraceError> {
        while let Some(line) = self.lines.next_text()? {
            let access = self.access(&line);
            let access = access.map_err(|mismatch| self.lines.place.error(mismatch))?;
            if let Some(access) = access {
                return Ok(Some(self.outdating_all(access)));
            }
        }
        Ok(None)
    }

    /// Parses the request of `line`; `None` if it moves no bytes of an object.
    fn access(&mut self, line: &str) -> Result<Option<Access>, Mismatch> {
        let Some(request) = self.kind.request(line)? else {
            return Ok(None);
        };
        // Merged logs of several servers are only roughly in order: a time before the first line counts as
        // that of the first line.
        let nanos = (request.at - *self.first.get_or_insert(request.at)).whole_nanoseconds();
        let at = Time(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX));
        if self.kind == AccessLog::Node && (request.bucket.is_none() || request.key.is_none()) {
            return Ok(None);
        }
        let Some(operation) = operation(request.kind) else {
            return Ok(None);
        };
        // The body of an answer to a write is not the object.
        let is_read = request.kind == RequestKind::Read;
        let offset_bytes = request.offset_bytes.filter(|_| is_read).unwrap_or(0);
        let end_bytes = offset_bytes.saturating_add(request.bytes);
        let access = Access {
            at,
            client: self.clients.number(&*request.client),
            object: self.objects.number(&(request.bucket, request.key)),
            object_bytes: request.object_bytes.unwrap_or(end_bytes).max(end_bytes),
            offset_bytes,
            bytes: request.bytes,
            operation,
        };
        self.limits.check(&Piece::from(&access))?;
        Ok(Some(access))
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

/// The operation of a request; `None` if it moves no bytes of an object.
const fn operation(kind: RequestKind) -> Option<Operation> {
    match kind {
        RequestKind::Read => Some(Operation::Read),
        RequestKind::Write => Some(Operation::Write),
        RequestKind::Delete => Some(Operation::Delete),
        RequestKind::Other => None,
    }
}
