//! Job runs as comma-separated values (RFC 4180) with a header line. A row is one input of a run; the rows of
//! one run stand together, and repeat its other columns or leave them empty.
//!
//! | column | meaning | without it |
//! |---|---|---|
//! | `name` | name of the job, the same or nearly the same each time | refused |
//! | `submitted` | time of submission: RFC 3339, or seconds or milliseconds since 1970 | refused |
//! | `id` | id of the run | rows of one name and submission are a run |
//! | `started` | time of its start | `submitted` |
//! | `ended` | time of its end | unknown, and so is the rate |
//! | `deadline` | time by which it should end | derived |
//! | `input` | `s3://bucket/key`, or a prefix that ends in `/` | the run reads nothing |
//! | `input_bytes` | bytes read of it | 0 |
//! | `input_bytes_per_s` | rate at which the run read it | derived from the run's duration |
//! | `output` | path that the run wrote | none |

use std::cell::Cell;
use std::collections::HashSet;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use csv::{ReaderBuilder, StringRecord, Trim};
use shoal_base::spelling::suggestion;
use shoal_logs::Mismatch;

use crate::error::HistoryError;
use crate::moment::{MOMENT_FORM, Moment};
use crate::run::{History, Input, Run};

const COLUMNS: [&str; 10] = [
    "name",
    "submitted",
    "id",
    "started",
    "ended",
    "deadline",
    "input",
    "input_bytes",
    "input_bytes_per_s",
    "output",
];

/// One row below the header line.
struct Row {
    header: StringRecord,
    record: StringRecord,
}

/// The text of an id and no time, or a name and a submission.
type RunKey = (String, Moment);

/// A run whose rows are still being read, and their common key.
struct Open {
    key: RunKey,
    run: Run,
}

/// Reads all runs of `input`.
pub(super) fn read(history: &mut History, name: &str, input: impl BufRead) -> Result<(), HistoryError> {
    let left = Rc::new(Cell::new(RECORD_BYTES_MAX));
    let limited = Limited {
        input,
        left: Rc::clone(&left),
    };
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(limited);
    let error = |line, mismatch| HistoryError::line(name, line, mismatch);
    let header = reader.headers().map_err(|refused| error(1, mismatch(&refused)))?;
    check(header).map_err(|mismatch| error(1, mismatch))?;
    let mut row = Row {
        header: header.clone(),
        record: StringRecord::new(),
    };
    let mut open: Option<Open> = None;
    let mut closed = HashSet::new();
    loop {
        let more = reader.read_record(&mut row.record).map_err(|refused| {
            let line = refused.position().map_or(0, csv::Position::line);
            error(line, mismatch(&refused))
        })?;
        if !more {
            break;
        }
        let line = row.record.position().map_or(0, csv::Position::line);
        let refused = |mismatch| error(line, mismatch);
        if let Some(next) = row.begun(open.as_ref(), &closed).map_err(refused)?
            && let Some(done) = open.replace(next)
        {
            closed.insert(done.key);
            history.add(name, &done.run)?;
        }
        let open = open.as_mut().expect("the first row begins a run");
        row.add_to(&mut open.run).map_err(refused)?;
        left.set(RECORD_BYTES_MAX);
    }
    match open {
        Some(done) => history.add(name, &done.run),
        None => Ok(()),
    }
}

/// Checks the columns of a header line.
fn check(header: &StringRecord) -> Result<(), Mismatch> {
    if let Some(unknown) = header.iter().find(|column| !COLUMNS.contains(column)) {
        let meant = suggestion(unknown, COLUMNS)
            .map(|name| format!("; did you mean `{name}`?"))
            .unwrap_or_default();
        return Err(Mismatch::new(
            format!("unknown column `{unknown}`{meant}"),
            format!("a line with some of {}", COLUMNS.join(", ")),
        ));
    }
    let has = |column| header.iter().any(|name| name == column);
    if !has("name") || !has("submitted") {
        return Err(Mismatch::new(
            format!("the columns {}", header.iter().collect::<Vec<_>>().join(", ")),
            "`name` and `submitted` among them",
        ));
    }
    Ok(())
}

impl Row {
    fn value(&self, column: &str) -> Option<&str> {
        let place = self.header.iter().position(|name| name == column)?;
        self.record.get(place).filter(|value| !value.is_empty())
    }

    fn moment(&self, column: &str) -> Result<Option<Moment>, Mismatch> {
        self.parsed(column, MOMENT_FORM, Moment::parse)
    }

    fn bytes(&self, column: &str) -> Result<Option<u64>, Mismatch> {
        let form = "a whole number of bytes below 2^64";
        self.parsed(column, form, |text| text.parse().ok())
    }

    /// Returns a value that has this form; `None` if there is none.
    fn parsed<T>(
        &self,
        column: &str,
        form: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Mismatch> {
        let Some(text) = self.value(column) else {
            return Ok(None);
        };
        parse(text).map(Some).ok_or_else(|| {
            let found = format!("`{text}` in the column `{column}`");
            Mismatch::new(found, form)
        })
    }

    /// Returns the run that this row begins; `None` if the row is of the run above.
    fn begun(&self, open: Option<&Open>, closed: &HashSet<RunKey>) -> Result<Option<Open>, Mismatch> {
        let key = self.key(open)?;
        if open.is_some_and(|open| open.key == key) {
            return Ok(None);
        }
        if closed.contains(&key) {
            let found = format!("another row of the run {}", key.0);
            return Err(Mismatch::new(found, "the rows of one run together"));
        }
        let run = self.run()?;
        Ok(Some(Open { key, run }))
    }

    /// Returns the key of the run of this row: its id if it has one, otherwise its name and submission. Empty
    /// values are inherited from the row above: a row without an id belongs to the run above if its name and
    /// submission match.
    fn key(&self, open: Option<&Open>) -> Result<RunKey, Mismatch> {
        if let Some(id) = self.value("id") {
            return Ok((format!("id {id}"), Moment::default()));
        }
        let (name, submitted) = (self.value("name"), self.moment("submitted")?);
        let is_of = |open: &&Open| {
            name.is_none_or(|name| name == open.run.name)
                && submitted.is_none_or(|submitted| submitted == open.run.submitted)
        };
        match (open.filter(is_of), name, submitted) {
            (Some(open), ..) => Ok(open.key.clone()),
            (None, Some(name), Some(submitted)) => Ok((format!("name {name}"), submitted)),
            _ => Err(self.missing()),
        }
    }

    fn missing(&self) -> Mismatch {
        let column = match self.value("name") {
            None => "name",
            Some(_) => "submitted",
        };
        Mismatch::new(
            format!("no value in the column `{column}`"),
            "a name and a time of submission",
        )
    }

    /// Returns the run, without its inputs.
    fn run(&self) -> Result<Run, Mismatch> {
        let (Some(name), Some(submitted)) = (self.value("name"), self.moment("submitted")?) else {
            return Err(self.missing());
        };
        Ok(Run {
            name: name.to_owned(),
            submitted,
            started: self.moment("started")?,
            ended: self.moment("ended")?,
            deadline: self.moment("deadline")?,
            ..Run::default()
        })
    }

    fn add_to(&self, run: &mut Run) -> Result<(), Mismatch> {
        let (bytes, bytes_per_s) = (self.bytes("input_bytes")?, self.bytes("input_bytes_per_s")?);
        if let Some(path) = self.value("input") {
            run.inputs.push(Input {
                path: path.to_owned(),
                bytes,
                bytes_per_s,
            });
        }
        if let Some(output) = self.value("output") {
            run.outputs.push(output.to_owned());
        }
        Ok(())
    }
}

/// Maximum length of a row. An unclosed quotation mark would turn the rest of the file into one row.
const RECORD_BYTES_MAX: usize = 8 << 20;

/// A file that fails if one row exceeds the limit.
struct Limited<R> {
    input: R,
    left: Rc<Cell<usize>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        let left = self.left.get().checked_sub(read).ok_or_else(|| {
            io::Error::other(format!(
                "a row of more than {RECORD_BYTES_MAX} bytes: is a quotation mark left open?"
            ))
        })?;
        self.left.set(left);
        Ok(read)
    }
}

/// Returns the reason why a row is malformed, without its position.
fn mismatch(error: &csv::Error) -> Mismatch {
    match error.kind() {
        csv::ErrorKind::UnequalLengths {
            len, expected_len, ..
        } => Mismatch::new(format!("{len} values"), format!("{expected_len} values")),
        csv::ErrorKind::Utf8 { .. } => Mismatch::new("bytes that are not UTF-8", "a row of values in UTF-8"),
        csv::ErrorKind::Io(source) => Mismatch::new(source.to_string(), "a file that can be read to its end"),
        _ => Mismatch::new(error.to_string(), "a row of values"),
    }
}
