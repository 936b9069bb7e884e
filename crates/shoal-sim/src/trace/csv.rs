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

use std::io::BufRead;

use shoal_logs::Mismatch;
use shoal_logs::rows::Rows;

use super::{Access, Limits, Operation, Piece, TraceError};
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

pub(super) struct Csv {
    rows: Rows,
    limits: Limits,
    objects: Names,
    clients: Names,
    /// Times of the first row and of the last one.
    times_s: Option<(f64, f64)>,
}

impl Csv {
    pub(super) fn new(name: &str, input: impl BufRead + 'static, limits: Limits) -> Result<Self, TraceError> {
        let rows = Rows::new(name, input, &COLUMNS)?;
        if !rows.has("object") || !rows.has("bytes") && !rows.has("object_bytes") {
            return Err(rows.lacks("`object`, and `bytes` or `object_bytes`").into());
        }
        Ok(Self {
            rows,
            limits,
            objects: Names::default(),
            clients: Names::default(),
            times_s: None,
        })
    }

    /// Reads the next request; `None` after the last one.
    pub(super) fn read_next(&mut self) -> Result<Option<Access>, TraceError> {
        if !self.rows.next_row()? {
            return Ok(None);
        }
        let access = self.access();
        Ok(Some(access.map_err(|mismatch| self.rows.place.error(mismatch))?))
    }

    fn access(&mut self) -> Result<Access, Mismatch> {
        let row = &self.rows;
        let offset_bytes = row.bytes("offset_bytes")?.unwrap_or(0);
        let object_bytes = row.bytes("object_bytes")?;
        let Some(bytes) = row.bytes("bytes")?.or(object_bytes) else {
            return Err(Mismatch::new(
                "no length",
                "a value for `bytes` or `object_bytes`",
            ));
        };
        let operation = row.parsed("operation", "read, write or delete", |word| match word {
            "read" => Some(Operation::Read),
            "write" => Some(Operation::Write),
            "delete" => Some(Operation::Delete),
            _ => None,
        })?;
        let access = Access {
            at: self.time()?,
            client: match self.rows.value("client") {
                Some(client) => self.clients.number(client),
                None => 0,
            },
            object: self.objects.number(self.rows.value("object").unwrap_or_default()),
            object_bytes: object_bytes.unwrap_or(offset_bytes.saturating_add(bytes)),
            offset_bytes,
            bytes,
            operation: operation.unwrap_or(Operation::Read),
        };
        self.limits.check(&Piece::from(&access))?;
        Ok(access)
    }

    /// The time of the row's request since that of the first row.
    fn time(&mut self) -> Result<Time, Mismatch> {
        let number = |text: &str| text.parse().ok().filter(|seconds: &f64| seconds.is_finite());
        let Some(seconds) = self.rows.parsed("time_s", "a number of seconds", number)? else {
            return Ok(self
                .times_s
                .map_or(Time::ZERO, |(first, last)| Time::from_secs_f64(last - first)));
        };
        let refused = |expected: String| Err(self.rows.unfit("time_s", expected));
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
