//! Shoal's trace format: comma-separated values (RFC 4180) with a header line.
//!
//! | column | meaning | without it |
//! |---|---|---|
//! | `object` | name of the object (of one version, where versions matter) | refused |
//! | `bytes` | bytes that are read, written or deleted | `object_bytes` |
//! | `object_bytes` | length of the object | `offset_bytes` + `bytes` |
//! | `offset_bytes` | first byte | 0 |
//! | `time_s` | seconds since any origin, never decreasing | that of the row above |
//! | `client` | name of the client | one client makes all requests |
//! | `operation` | `read`, `write` or `delete` | `read` |

use std::io::Read;

use csv::{Reader, StringRecord};
use shoal_base::spelling::unknown;

use super::{Access, Lines, Operation, Piece, TraceError};
use crate::clock::Time;
use crate::names::Names;

const COLUMNS: [&str; 7] = [
    "time_s",
    "client",
    "object",
    "offset_bytes",
    "bytes",
    "object_bytes",
    "operation",
];

/// One row below the header line.
struct Row {
    header: StringRecord,
    record: StringRecord,
}

impl Row {
    /// The value in a column, if there is one.
    fn value(&self, column: &str) -> Option<&str> {
        let place = self.header.iter().position(|name| name == column)?;
        self.record.get(place).filter(|value| !value.is_empty())
    }
}

pub(super) struct Csv<R> {
    reader: Reader<std::io::BufReader<R>>,
    row: Row,
    /// Holds the path, for errors.
    place: Lines<std::io::Empty>,
    objects: Names,
    clients: Names,
    /// Times of the first row and of the last one.
    times_s: Option<(f64, f64)>,
}

impl<R: Read> Csv<R> {
    pub(super) fn new(lines: Lines<R>) -> Result<Self, TraceError> {
        let mut place = Lines::new(std::io::empty(), &lines.path, lines.granularity);
        place.line = 1;
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .from_reader(lines.input);
        let names = reader
            .headers()
            .map_err(|error| {
                place.error(
                    error.to_string(),
                    format!("a line of names: {}", COLUMNS.join(", ")),
                )
            })?
            .clone();
        if let Some(column) = names.iter().find(|column| !COLUMNS.contains(column)) {
            let told = unknown("column", column, COLUMNS);
            return Err(place.error(told.replace("\nhint: ", "; "), "known columns only"));
        }
        let has = |column| names.iter().any(|name| name == column);
        if !has("object") || !has("bytes") && !has("object_bytes") {
            return Err(place.error(
                format!("the columns {}", names.iter().collect::<Vec<_>>().join(", ")),
                "`object`, and `bytes` or `object_bytes`",
            ));
        }
        Ok(Self {
            reader,
            row: Row {
                header: names,
                record: StringRecord::new(),
            },
            place,
            objects: Names::default(),
            clients: Names::default(),
            times_s: None,
        })
    }

    fn access(&mut self) -> Result<Access, TraceError> {
        let offset_bytes = self.bytes("offset_bytes")?.unwrap_or(0);
        let object_bytes = self.bytes("object_bytes")?;
        let bytes = self.bytes("bytes")?;
        let Some(bytes) = bytes.or(object_bytes) else {
            return Err(self
                .place
                .error("no length", "a value for `bytes` or `object_bytes`"));
        };
        let operation = match self.row.value("operation") {
            None | Some("read") => Operation::Read,
            Some("write") => Operation::Write,
            Some("delete") => Operation::Delete,
            Some(other) => {
                let found = format!("`{other}` in the column `operation`");
                return Err(self.place.error(found, "read, write or delete"));
            }
        };
        let access = Access {
            at: self.time()?,
            client: match self.row.value("client") {
                Some(client) => self.clients.number(client),
                None => 0,
            },
            object: self.objects.number(self.row.value("object").unwrap_or_default()),
            object_bytes: object_bytes.unwrap_or(offset_bytes.saturating_add(bytes)),
            offset_bytes,
            bytes,
            operation,
        };
        self.place.check(&Piece::from(&access))?;
        Ok(access)
    }

    fn bytes(&self, column: &str) -> Result<Option<u64>, TraceError> {
        let Some(value) = self.row.value(column) else {
            return Ok(None);
        };
        value.parse().map(Some).map_err(|_| {
            let found = format!("`{value}` in the column `{column}`");
            self.place.error(found, "a whole number of bytes below 2^64")
        })
    }

    /// The time of the row's request since that of the first row.
    fn time(&mut self) -> Result<Time, TraceError> {
        let Some(value) = self.row.value("time_s") else {
            return Ok(self
                .times_s
                .map_or(Time::ZERO, |(first, last)| Time::from_secs_f64(last - first)));
        };
        let refused = |expected: String| {
            let found = format!("`{value}` in the column `time_s`");
            Err(self.place.error(found, expected))
        };
        let Some(seconds) = value.parse().ok().filter(|seconds: &f64| seconds.is_finite()) else {
            return refused("a number of seconds".to_owned());
        };
        let (first, last) = self.times_s.unwrap_or((seconds, seconds));
        if seconds < last {
            return refused(format!("times that do not fall: a row above has {last}"));
        }
        let at = Time::from_secs_f64(seconds - first);
        if at == Time::NEVER {
            return refused("a time less than 584 years after that of the first row".to_owned());
        }
        self.times_s = Some((first, seconds));
        Ok(at)
    }
}

impl<R: Read> Iterator for Csv<R> {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.reader.read_record(&mut self.row.record) {
            Ok(false) => None,
            Ok(true) => {
                self.place.line = self.row.record.position().map_or(0, csv::Position::line);
                Some(self.access())
            }
            Err(error) => {
                self.place.line = error.position().map_or(0, csv::Position::line);
                let expected = match error.kind() {
                    csv::ErrorKind::UnequalLengths { expected_len, .. } => format!("{expected_len} values"),
                    _ => "a row of values in UTF-8".to_owned(),
                };
                Some(Err(self.place.error(reason(&error), expected)))
            }
        }
    }
}

/// The error without its position, which the message already has.
fn reason(error: &csv::Error) -> String {
    match error.kind() {
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
    fn an_unreadable_field_is_refused_with_its_line() {
        let told = refusal("object,bytes\na,5\nb,many\n", Format::Csv);
        assert!(
            told.starts_with("t:3: found `many` in the column `bytes`"),
            "{told}"
        );
        let told = refusal("object,bytes\na,-5\n", Format::Csv);
        assert!(
            told.starts_with("t:2: found `-5` in the column `bytes`"),
            "{told}"
        );
        let told = refusal("object,bytes,operation\na,5,steal\n", Format::Csv);
        assert!(
            told.starts_with("t:2: found `steal` in the column `operation`")
                && told.ends_with("read, write or delete"),
            "{told}"
        );
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

    #[test]
    fn times_are_numbers_that_do_not_fall() {
        let told = |times: &str| {
            let rows: Vec<_> = times.split(' ').map(|time| format!("{time},a,5\n")).collect();
            refusal(&format!("time_s,object,bytes\n{}", rows.concat()), Format::Csv)
        };
        for time in ["nan", "inf", "1e400", "-inf", "soon"] {
            let told = told(&format!("0 {time}"));
            assert!(
                told.starts_with(&format!("t:3: found `{time}` in the column `time_s`")),
                "{told}"
            );
            assert!(told.ends_with("a number of seconds"), "{told}");
        }
        assert_eq!(
            told("7 8 7.5"),
            "t:4: found `7.5` in the column `time_s`\nhint: expected times that do not fall: a row above has 8"
        );
        let told = told("0 1e300");
        assert!(
            told.contains("t:3: found `1e300`") && told.contains("584 years"),
            "{told}"
        );
        let read = accesses("time_s,object,bytes\n-5,a,1\n-5,a,1\n-4,a,1\n", Format::Csv).unwrap();
        let times: Vec<_> = read.iter().map(|access| access.at.as_secs_f64()).collect();
        assert_eq!(times, [0.0, 0.0, 1.0], "the origin is any");
    }
}
