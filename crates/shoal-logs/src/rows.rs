//! Comma-separated values (RFC 4180) with a header line, row by row.

use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use csv::{Position, Reader, ReaderBuilder, StringRecord, Trim};
use shoal_base::spelling::suggestion;

use crate::{FileError, Mismatch, Place};

/// Maximum length of a row. An unclosed quotation mark would turn the rest of the file into one row.
const ROW_BYTES_MAX: usize = 8 << 20;

/// The rows of a file below its header line.
pub struct Rows {
    reader: Reader<Limited>,
    left: Rc<Cell<usize>>,
    header: StringRecord,
    record: StringRecord,
    /// The row that was read last.
    pub place: Place,
}

impl Rows {
    /// Reads the header line of `input`, which has some of these columns. `name` is its name in errors.
    ///
    /// # Errors
    ///
    /// Fails if the header line cannot be read, or has another column.
    pub fn new(name: &str, input: impl BufRead + 'static, columns: &[&str]) -> Result<Self, FileError> {
        let left = Rc::new(Cell::new(ROW_BYTES_MAX));
        let limited = Limited {
            input: Box::new(input),
            left: Rc::clone(&left),
        };
        let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(limited);
        let mut place = Place::new(name);
        place.line = 1;
        let header = reader.headers().map_err(|error| place.error(reason(&error)))?;
        if let Some(unknown) = header.iter().find(|column| !columns.contains(column)) {
            let meant = suggestion(unknown, columns.iter().copied())
                .map(|name| format!("; did you mean `{name}`?"))
                .unwrap_or_default();
            let found = format!("unknown column `{unknown}`{meant}");
            let expected = format!("a line with some of {}", columns.join(", "));
            return Err(place.error(Mismatch::new(found, expected)));
        }
        Ok(Self {
            header: header.clone(),
            reader,
            left,
            record: StringRecord::new(),
            place,
        })
    }

    /// Returns true if the file has this column.
    pub fn has(&self, column: &str) -> bool {
        self.header.iter().any(|name| name == column)
    }

    /// Returns the error of a header line without columns that are needed.
    pub fn lacks(&self, expected: &str) -> FileError {
        let columns: Vec<_> = self.header.iter().collect();
        let found = format!("the columns {}", columns.join(", "));
        self.place.error(Mismatch::new(found, expected))
    }

    /// Reads the next row. Returns false after the last one.
    ///
    /// # Errors
    ///
    /// Fails if the row is malformed, or as the input fails.
    pub fn next_row(&mut self) -> Result<bool, FileError> {
        self.left.set(ROW_BYTES_MAX);
        let read = self.reader.read_record(&mut self.record);
        // Errors of the input have no position, but the record has that of the row from before it is read.
        self.place.line = self.record.position().map_or(self.place.line, Position::line);
        let is_row = read.map_err(|error| self.place.error(reason(&error)))?;
        assert!(
            !is_row || self.record.len() == self.header.len(),
            "a row has a value a column"
        );
        Ok(is_row)
    }

    /// Returns the value in a column of the row, if there is one.
    pub fn value(&self, column: &str) -> Option<&str> {
        let place = self.header.iter().position(|name| name == column)?;
        self.record.get(place).filter(|value| !value.is_empty())
    }

    /// Returns the value in a column of the row, which has this form; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if `parse` does not understand the value.
    pub fn parsed<T>(
        &self,
        column: &str,
        form: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Mismatch> {
        let Some(text) = self.value(column) else {
            return Ok(None);
        };
        let parsed = parse(text).ok_or_else(|| self.unfit(column, form));
        parsed.map(Some)
    }

    /// Returns the number of bytes in a column of the row.
    ///
    /// # Errors
    ///
    /// Fails if the value is another one.
    pub fn bytes(&self, column: &str) -> Result<Option<u64>, Mismatch> {
        let form = "a whole number of bytes below 2^64";
        self.parsed(column, form, |text| text.parse().ok())
    }

    /// Returns the mismatch of the value in a column of the row.
    pub fn unfit(&self, column: &str, expected: impl Into<String>) -> Mismatch {
        let value = self.value(column).unwrap_or_default();
        Mismatch::new(format!("`{value}` in the column `{column}`"), expected)
    }
}

/// A file that fails if one row exceeds the limit.
struct Limited {
    input: Box<dyn BufRead>,
    left: Rc<Cell<usize>>,
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        let left = self.left.get().checked_sub(read).ok_or_else(|| {
            io::Error::other(format!(
                "a row of more than {ROW_BYTES_MAX} bytes: is a quotation mark left open?"
            ))
        })?;
        self.left.set(left);
        Ok(read)
    }
}

/// Returns the reason why a row is malformed, without its position.
fn reason(error: &csv::Error) -> Mismatch {
    match error.kind() {
        csv::ErrorKind::UnequalLengths {
            len, expected_len, ..
        } => Mismatch::new(format!("{len} values"), format!("{expected_len} values")),
        csv::ErrorKind::Utf8 { .. } => Mismatch::new("bytes that are not UTF-8", "a row of values in UTF-8"),
        csv::ErrorKind::Io(source) => Mismatch::new(source.to_string(), "a file that can be read to its end"),
        _ => Mismatch::new(error.to_string(), "a row of values"),
    }
}
