//! Our own form: comma-separated values (RFC 4180) with a line of names.
//!
//! | column | meaning | without it |
//! |---|---|---|
//! | `object` | name of the object (of one version, where versions matter) | refused |
//! | `bytes` | bytes that are read, written or deleted | `object_bytes` |
//! | `object_bytes` | length of the object | `offset_bytes` + `bytes` |
//! | `offset_bytes` | first byte | 0 |
//! | `time_s` | seconds since any origin, not falling | 0 |
//! | `client` | who asks | everybody is one |
//! | `operation` | `read`, `write` or `delete` | `read` |

use std::io::Read;

use csv::{Reader, StringRecord};
use serde::Deserialize;

use super::{Access, Lines, Operation, TraceError};
use crate::clock::Time;
use crate::names::{Names, unknown};

const COLUMNS: [&str; 7] = [
    "time_s",
    "client",
    "object",
    "offset_bytes",
    "bytes",
    "object_bytes",
    "operation",
];

#[derive(Deserialize)]
struct Row<'line> {
    time_s: Option<f64>,
    client: Option<&'line str>,
    object: &'line str,
    offset_bytes: Option<u64>,
    bytes: Option<u64>,
    object_bytes: Option<u64>,
    operation: Option<Operation>,
}

pub(super) struct Csv<R> {
    reader: Reader<std::io::BufReader<R>>,
    columns: StringRecord,
    row: StringRecord,
    /// Knows the path, and tells it in errors.
    place: Lines<std::io::Empty>,
    objects: Names,
    clients: Names,
    first: Option<f64>,
}

impl<R: Read> Csv<R> {
    pub(super) fn new(lines: Lines<R>) -> Result<Self, TraceError> {
        let mut place = Lines::new(std::io::empty(), &lines.path);
        place.line = 1;
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .from_reader(lines.input);
        let columns = reader
            .headers()
            .map_err(|error| {
                place.error(
                    error.to_string(),
                    format!("a line of names: {}", COLUMNS.join(", ")),
                )
            })?
            .clone();
        if let Some(column) = columns.iter().find(|column| !COLUMNS.contains(column)) {
            let told = unknown("column", column, COLUMNS.into_iter());
            return Err(place.error(told.replace("\nhint: ", "; "), "known columns only"));
        }
        let has = |column| columns.iter().any(|name| name == column);
        if !has("object") || !(has("bytes") || has("object_bytes")) {
            return Err(place.error(
                format!("the columns {}", columns.iter().collect::<Vec<_>>().join(", ")),
                "`object`, and `bytes` or `object_bytes`",
            ));
        }
        Ok(Self {
            reader,
            columns,
            row: StringRecord::new(),
            place,
            objects: Names::default(),
            clients: Names::default(),
            first: None,
        })
    }

    fn access(&mut self) -> Result<Access, TraceError> {
        let row: Row<'_> = self.row.deserialize(Some(&self.columns)).map_err(|error| {
            let expected = format!(
                "values for {}",
                self.columns.iter().collect::<Vec<_>>().join(", ")
            );
            self.place.error(reason(&error), expected)
        })?;
        let offset_bytes = row.offset_bytes.unwrap_or(0);
        let Some(bytes) = row.bytes.or(row.object_bytes) else {
            return Err(self
                .place
                .error("no length", "a value for `bytes` or `object_bytes`"));
        };
        let seconds = row.time_s.unwrap_or(0.0);
        Ok(Access {
            at: Time::from_secs_f64(seconds - *self.first.get_or_insert(seconds)),
            client: row.client.map_or(0, |client| self.clients.number(client)),
            object: self.objects.number(row.object),
            object_bytes: row.object_bytes.unwrap_or(offset_bytes.saturating_add(bytes)),
            offset_bytes,
            bytes,
            operation: row.operation.unwrap_or(Operation::Read),
        })
    }
}

impl<R: Read> Iterator for Csv<R> {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.reader.read_record(&mut self.row) {
            Ok(false) => None,
            Ok(true) => {
                self.place.line = self.row.position().map_or(0, csv::Position::line);
                Some(self.access())
            }
            Err(error) => {
                self.place.line = error.position().map_or(0, csv::Position::line);
                let expected = format!("{} values", self.columns.len());
                Some(Err(self.place.error(reason(&error), expected)))
            }
        }
    }
}

/// What is wrong, without the place, which stands before it already.
fn reason(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => err.to_string(),
        csv::ErrorKind::UnequalLengths { len, .. } => format!("{len} values"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use crate::clock::Time;
    use crate::trace::tests::{accesses, refusal};
    use crate::trace::{Access, Format, Operation};

    #[test]
    fn a_row_is_a_request_and_what_is_missing_has_a_meaning() {
        let text = "time_s,client,object,offset_bytes,bytes,object_bytes,operation\n\
                    10.5,a,\"x,1\",100,50,1000,read\n\
                    11,b,y,,,700,\n\
                    11,a,\"x,1\",,,,\n";
        let error = refusal(text, Format::Csv);
        assert!(
            error.starts_with("t:4: found no length\nhint: expected"),
            "{error}"
        );
        let read = accesses(text.rsplit_once("11,a").unwrap().0, Format::Csv).unwrap();
        let first = Access {
            at: Time::ZERO,
            client: 0,
            object: 0,
            object_bytes: 1000,
            offset_bytes: 100,
            bytes: 50,
            operation: Operation::Read,
        };
        let second = Access {
            at: Time(500_000_000),
            client: 1,
            object: 1,
            object_bytes: 700,
            offset_bytes: 0,
            bytes: 700,
            operation: Operation::Read,
        };
        assert_eq!(read, [first, second]);
    }

    #[test]
    fn two_columns_are_enough() {
        let read = accesses("object,bytes\na,5\nb,6\na,5\n", Format::Csv).unwrap();
        assert_eq!(
            read.iter()
                .map(|a| (a.object, a.object_bytes))
                .collect::<Vec<_>>(),
            [(0, 5), (1, 6), (0, 5)]
        );
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_line() {
        let told = refusal("object,bytes\na,5\nb,many\n", Format::Csv);
        assert!(told.contains("t:3:") && told.contains("invalid digit"), "{told}");
        let told = refusal("object,bytes\na,5,6\n", Format::Csv);
        assert!(
            told.contains("t:2: found 3 values") && told.contains("expected 2 values"),
            "{told}"
        );
        let told = refusal("object,byte\na,5\n", Format::Csv);
        assert!(
            told.contains("unknown column `byte`; did you mean `bytes`?"),
            "{told}"
        );
        let told = refusal("object,client\na,5\n", Format::Csv);
        assert!(
            told.contains("t:1:") && told.contains("`bytes` or `object_bytes`"),
            "{told}"
        );
    }
}
