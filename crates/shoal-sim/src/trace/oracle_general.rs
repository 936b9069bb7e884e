//! libCacheSim's oracleGeneral: records of 24 bytes, little-endian: time in seconds (u32), object (u64), its size (u32), the
//! position of its next request (i64, which we do not need).

use std::io::{ErrorKind, Read};

use super::{Access, Lines, Operation, TraceError};
use crate::clock::Time;
use crate::names::Names;

const RECORD_BYTES: usize = 24;

pub(super) struct OracleGeneral<R> {
    lines: Lines<R>,
    objects: Names,
    first_s: Option<u32>,
}

impl<R: Read> OracleGeneral<R> {
    pub(super) fn new(lines: Lines<R>) -> Self {
        Self {
            lines,
            objects: Names::default(),
            first_s: None,
        }
    }

    fn access(&mut self, record: &[u8; RECORD_BYTES]) -> Access {
        let (time_s, rest) = record.split_first_chunk().expect("a record has a time");
        let (object, rest) = rest.split_first_chunk().expect("a record has an object");
        let (bytes, _next) = rest.split_first_chunk().expect("a record has a size");
        let time_s = u32::from_le_bytes(*time_s);
        let since_first_s = time_s.saturating_sub(*self.first_s.get_or_insert(time_s));
        let bytes = u64::from(u32::from_le_bytes(*bytes));
        Access {
            at: Time::from_secs_f64(f64::from(since_first_s)),
            client: 0,
            object: self.objects.number_of_digest(u64::from_le_bytes(*object)),
            object_bytes: bytes,
            offset_bytes: 0,
            bytes,
            operation: Operation::Read,
        }
    }

    /// The next record; `None` after the last one.
    fn record(&mut self) -> Option<Result<[u8; RECORD_BYTES], TraceError>> {
        let mut record = [0; RECORD_BYTES];
        let mut filled = 0;
        self.lines.line += 1;
        while filled < RECORD_BYTES {
            match self.lines.input.read(&mut record[filled..]) {
                Ok(0) if filled == 0 => return None,
                Ok(0) => {
                    let found = format!("the end after {filled} bytes of a record");
                    return Some(Err(self.lines.error(found, "records of 24 bytes")));
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Some(Err(self.lines.io_error(error))),
            }
        }
        Some(Ok(record))
    }
}

impl<R: Read> Iterator for OracleGeneral<R> {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.record()?;
        Some(record.map(|record| self.access(&record)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use crate::clock::Time;
    use crate::trace::{Access, Format, Trace, TraceError};

    fn record(time_s: u32, object: u64, bytes: u32) -> Vec<u8> {
        let next = (-1_i64).to_le_bytes();
        [
            &time_s.to_le_bytes()[..],
            &object.to_le_bytes(),
            &bytes.to_le_bytes(),
            &next,
        ]
        .concat()
    }

    fn read(bytes: Vec<u8>) -> Result<Vec<Access>, TraceError> {
        Trace::read(Cursor::new(bytes), Path::new("t"), Format::OracleGeneral)
            .unwrap()
            .accesses()
            .collect()
    }

    #[test]
    fn a_record_is_a_request_of_a_whole_object() {
        let bytes = [
            record(7, u64::MAX, 4096),
            record(9, 1, 10),
            record(9, u64::MAX, 4096),
        ]
        .concat();
        let read = read(bytes).unwrap();
        let seen: Vec<_> = read.iter().map(|a| (a.at, a.object, a.object_bytes)).collect();
        let two_seconds = Time(2_000_000_000);
        assert_eq!(
            seen,
            [
                (Time::ZERO, 0, 4096),
                (two_seconds, 1, 10),
                (two_seconds, 0, 4096)
            ]
        );
    }

    #[test]
    fn a_record_that_is_cut_off_is_told() {
        let mut bytes = [record(7, 1, 4096), record(9, 1, 10)].concat();
        bytes.pop();
        let told = read(bytes).unwrap_err().to_string();
        assert!(
            told.starts_with("t:2: found the end after 23 bytes of a record"),
            "{told}"
        );
    }
}
