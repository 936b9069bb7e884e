//! libCacheSim's oracleGeneral: records of 24 bytes, little-endian: time in seconds (u32), object (u64), its
//! size (u32), the position of its next request (i64, which the reader does not need).

use std::io::{BufRead, Read as _};

use shoal_logs::{Mismatch, Place};

use super::{Access, Limits, Operation, Piece, TraceError};
use crate::clock::Time;
use crate::names::Names;

const RECORD_BYTES: usize = 24;

/// The number of records per batch. Their objects are looked up together, which the processor does in
/// parallel.
const BATCH: usize = 1 << 10;

pub(super) struct OracleGeneral {
    input: Box<dyn BufRead>,
    place: Place,
    limits: Limits,
    objects: Names,
    first_s: Option<u32>,
    /// The requests of the batch.
    accesses: std::vec::IntoIter<Access>,
}

impl OracleGeneral {
    pub(super) fn new(name: &str, input: impl BufRead + 'static, limits: Limits) -> Self {
        Self {
            input: Box::new(input),
            place: Place::new(name),
            limits,
            objects: Names::default(),
            first_s: None,
            accesses: Vec::new().into_iter(),
        }
    }

    /// Reads the next request; `None` after the last one.
    pub(super) fn read_next(&mut self) -> Result<Option<Access>, TraceError> {
        if self.accesses.len() == 0 {
            self.read_batch()?;
        }
        Ok(self.accesses.next())
    }

    /// Reads the next records; none after the last one.
    fn read_batch(&mut self) -> Result<(), TraceError> {
        let mut bytes = Vec::with_capacity(BATCH * RECORD_BYTES);
        (&mut self.input)
            .take((BATCH * RECORD_BYTES) as u64)
            .read_to_end(&mut bytes)
            .map_err(|source| self.place.io_error(source))?;
        let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
        let mut accesses = Vec::with_capacity(records.len());
        accesses.extend(records.iter().map(|record| access(record, &mut self.first_s)));
        for (access, record) in accesses.iter_mut().zip(records) {
            access.object = self.objects.number_of_digest(object(record));
        }
        for access in &accesses {
            self.place.line += 1;
            let checked = self.limits.check(&Piece::from(access));
            checked.map_err(|mismatch| self.place.error(mismatch))?;
        }
        if !rest.is_empty() {
            self.place.line += 1;
            let found = format!("the end after {} bytes of a record", rest.len());
            let mismatch = Mismatch::new(found, "records of 24 bytes");
            return Err(self.place.error(mismatch).into());
        }
        self.accesses = accesses.into_iter();
        Ok(())
    }
}

/// The request of a record, except for the number of its object.
fn access(record: &[u8; RECORD_BYTES], first_s: &mut Option<u32>) -> Access {
    let [a, b, c, d, ..] = *record;
    let time_s = u32::from_le_bytes([a, b, c, d]);
    let since_first_s = time_s.saturating_sub(*first_s.get_or_insert(time_s));
    let [.., a, b, c, d, _, _, _, _, _, _, _, _] = *record;
    let bytes = u64::from(u32::from_le_bytes([a, b, c, d]));
    Access {
        at: Time(u64::from(since_first_s) * 1_000_000_000),
        client: 0,
        object: 0,
        object_bytes: bytes,
        offset_bytes: 0,
        bytes,
        operation: Operation::Read,
    }
}

/// The object's name in a record.
fn object(record: &[u8; RECORD_BYTES]) -> u64 {
    let [_, _, _, _, name @ .., _, _, _, _, _, _, _, _, _, _, _, _] = *record;
    u64::from_le_bytes(name)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use super::BATCH;
    use crate::block::Granularity;
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
        let granularity = Granularity::Objects;
        Trace::read(
            Cursor::new(bytes),
            Path::new("t"),
            Format::OracleGeneral,
            granularity,
        )
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
    fn every_record_of_a_long_trace_is_read() {
        for count in [BATCH - 1, BATCH, BATCH + 1, 3 * BATCH] {
            let bytes: Vec<_> = (0..count as u32)
                .flat_map(|time_s| record(time_s, u64::from(time_s % 7), 1))
                .collect();
            let read = read(bytes).unwrap();
            assert_eq!(read.len(), count);
            let last = read.last().unwrap();
            assert_eq!(last.at, Time((count as u64 - 1) * 1_000_000_000));
            assert_eq!(last.object, (count as u32 - 1) % 7);
        }
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
