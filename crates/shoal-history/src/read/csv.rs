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

use std::collections::HashSet;
use std::io::BufRead;

use shoal_logs::Mismatch;
use shoal_logs::rows::Rows;

use crate::error::HistoryError;
use crate::moment::{MOMENT_FORM, Moment};
use crate::run::{History, Input, Run};

use super::in_order;

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

/// The text of an id and no time, or a name and a submission.
type RunKey = (String, Moment);

/// A run whose rows are still being read, and their common key.
struct Open {
    key: RunKey,
    run: Run,
}

/// Reads all runs of `input`.
pub(super) fn read(
    history: &mut History,
    name: &str,
    input: impl BufRead + 'static,
) -> Result<(), HistoryError> {
    let mut rows = Rows::new(name, input, &COLUMNS)?;
    if !rows.has("name") || !rows.has("submitted") {
        return Err(rows.lacks("`name` and `submitted` among them").into());
    }
    let mut open: Option<Open> = None;
    let mut closed = HashSet::new();
    while rows.next_row()? {
        let refused = |mismatch| rows.place.error(mismatch);
        if let Some(next) = begun(&rows, open.as_ref(), &closed).map_err(refused)?
            && let Some(done) = open.replace(next)
        {
            closed.insert(done.key);
            history.add(name, &done.run)?;
        }
        let open = open.as_mut().expect("the first row begins a run");
        add_to(&rows, &mut open.run).map_err(refused)?;
    }
    match open {
        Some(done) => history.add(name, &done.run),
        None => Ok(()),
    }
}

fn moment(row: &Rows, column: &str) -> Result<Option<Moment>, Mismatch> {
    row.parsed(column, MOMENT_FORM, Moment::parse)
}

/// Returns the run that this row begins; `None` if the row is of the run above.
fn begun(row: &Rows, open: Option<&Open>, closed: &HashSet<RunKey>) -> Result<Option<Open>, Mismatch> {
    let key = key(row, open)?;
    if open.is_some_and(|open| open.key == key) {
        return Ok(None);
    }
    if closed.contains(&key) {
        let found = format!("another row of the run {}", key.0);
        return Err(Mismatch::new(found, "the rows of one run together"));
    }
    let run = run(row)?;
    Ok(Some(Open { key, run }))
}

/// Returns the key of the run of this row: its id if it has one, otherwise its name and submission. Empty
/// values are inherited from the row above: a row without an id belongs to the run above if its name and
/// submission match.
fn key(row: &Rows, open: Option<&Open>) -> Result<RunKey, Mismatch> {
    if let Some(id) = row.value("id") {
        return Ok((format!("id {id}"), Moment::default()));
    }
    let (name, submitted) = (row.value("name"), moment(row, "submitted")?);
    let is_of = |open: &&Open| {
        name.is_none_or(|name| name == open.run.name)
            && submitted.is_none_or(|submitted| submitted == open.run.submitted)
    };
    match (open.filter(is_of), name, submitted) {
        (Some(open), ..) => Ok(open.key.clone()),
        (None, Some(name), Some(submitted)) => Ok((format!("name {name}"), submitted)),
        _ => Err(missing(row)),
    }
}

fn missing(row: &Rows) -> Mismatch {
    let column = match row.value("name") {
        None => "name",
        Some(_) => "submitted",
    };
    Mismatch::new(
        format!("no value in the column `{column}`"),
        "a name and a time of submission",
    )
}

/// Returns the run, without its inputs.
fn run(row: &Rows) -> Result<Run, Mismatch> {
    let (Some(name), Some(submitted)) = (row.value("name"), moment(row, "submitted")?) else {
        return Err(missing(row));
    };
    in_order(Run {
        name: name.to_owned(),
        submitted,
        started: moment(row, "started")?,
        ended: moment(row, "ended")?,
        deadline: moment(row, "deadline")?,
        ..Run::default()
    })
}

fn add_to(row: &Rows, run: &mut Run) -> Result<(), Mismatch> {
    let (bytes, bytes_per_s) = (row.bytes("input_bytes")?, row.bytes("input_bytes_per_s")?);
    if let Some(path) = row.value("input") {
        run.inputs.push(Input {
            path: path.to_owned(),
            bytes,
            bytes_per_s,
        });
    }
    if let Some(output) = row.value("output") {
        run.outputs.push(output.to_owned());
    }
    Ok(())
}
