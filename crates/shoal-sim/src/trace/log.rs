//! What access logs have in common: a line is a request or nothing, and names and times are turned into numbers.

use std::io::Read;

use super::timestamp::Since;
use super::{Access, Lines, TraceError};
use crate::names::Names;

/// Understands one line; `None` when it moves no bytes of an object.
pub(super) type Understand<R> = fn(&mut Log<R>, &str) -> Result<Option<Access>, TraceError>;

/// The requests of a log.
pub(super) struct Log<R> {
    pub(super) lines: Lines<R>,
    pub(super) objects: Names,
    pub(super) clients: Names,
    pub(super) since: Since,
    understand: Understand<R>,
}

impl<R> Log<R> {
    pub(super) fn new(lines: Lines<R>, understand: Understand<R>) -> Self {
        Self {
            lines,
            objects: Names::default(),
            clients: Names::default(),
            since: Since::default(),
            understand,
        }
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
            if let Some(access) = (self.understand)(self, &line).transpose() {
                return Some(access);
            }
        }
    }
}
