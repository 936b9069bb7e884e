//! Lines of a file with their numbers, one after the other, none longer than a limit.

use std::io::{self, BufRead, Read as _};

use crate::{FileError, Mismatch, Place};

/// The lines of a file that are not empty.
pub struct Lines {
    input: Box<dyn BufRead>,
    bytes_max: usize,
    buffer: Vec<u8>,
    /// The line that was read last.
    pub place: Place,
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'line> {
    /// Its bytes, without the line end.
    Whole(&'line [u8]),
    /// It is longer than the limit, and was passed over.
    TooLong,
}

impl Lines {
    /// Reads the lines of `input`, of which none has more than `bytes_max` bytes. `name` is its name in
    /// errors.
    pub fn new(name: &str, input: impl BufRead + 'static, bytes_max: usize) -> Self {
        Self {
            input: Box::new(input),
            bytes_max,
            buffer: Vec::new(),
            place: Place::new(name),
        }
    }

    /// Returns the next line; `None` after the last one.
    ///
    /// # Errors
    ///
    /// Fails as the input fails.
    pub fn next_line(&mut self) -> Result<Option<Line<'_>>, FileError> {
        loop {
            self.place.line += 1;
            match self.read_line().map_err(|source| self.place.io_error(source))? {
                None => return Ok(None),
                Some(false) => return Ok(Some(Line::TooLong)),
                Some(true) if self.buffer.is_empty() => {}
                Some(true) => return Ok(Some(Line::Whole(&self.buffer))),
            }
        }
    }

    /// Reads the next line into the buffer, without its line end; `None` after the last one, and false if it
    /// is too long. Then it is passed over.
    fn read_line(&mut self) -> io::Result<Option<bool>> {
        self.buffer.clear();
        // One byte more, for the line end.
        let mut limited = (&mut self.input).take(self.bytes_max as u64 + 1);
        if limited.read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(None);
        }
        let has_end = self.buffer.pop_if(|byte| *byte == b'\n').is_some();
        if !has_end && self.buffer.len() > self.bytes_max {
            self.input.skip_until(b'\n')?;
            return Ok(Some(false));
        }
        debug_assert!(
            self.buffer.len() <= self.bytes_max,
            "no line grows beyond its limit"
        );
        self.buffer.pop_if(|byte| *byte == b'\r');
        Ok(Some(true))
    }

    /// Returns the next line as text; `None` after the last one. Bytes that are not UTF-8 are replaced:
    /// keys are bytes, and such a key names an object all the same.
    ///
    /// # Errors
    ///
    /// Fails as the input fails, and if the line is too long.
    pub fn next_text(&mut self) -> Result<Option<String>, FileError> {
        match self.next_line()? {
            None => Ok(None),
            Some(Line::Whole(line)) => Ok(Some(String::from_utf8_lossy(line).into_owned())),
            Some(Line::TooLong) => {
                let found = format!("a line of more than {} bytes", self.bytes_max);
                Err(self.place.error(Mismatch::new(found, "shorter lines")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::{Line, Lines};

    /// The lines that are not empty, each with its number; `None` for one that is too long.
    fn lines(text: &'static str, bytes_max: usize) -> Vec<(u64, Option<String>)> {
        // Small reads, so that lines span several of them.
        let input = BufReader::with_capacity(3, text.as_bytes());
        let (mut lines, mut all) = (Lines::new("log", input, bytes_max), Vec::new());
        while let Some(line) = lines.next_line().unwrap() {
            let text = match line {
                Line::Whole(line) => Some(String::from_utf8(line.to_vec()).unwrap()),
                Line::TooLong => None,
            };
            all.push((lines.place.line, text));
        }
        all
    }

    fn whole(number: u64, text: &str) -> (u64, Option<String>) {
        (number, Some(text.to_owned()))
    }

    #[test]
    fn lines_end_at_a_line_feed_and_at_the_end() {
        let expected = [whole(1, "a"), whole(3, "longer one"), whole(4, "last")];
        assert_eq!(lines("a\r\n\nlonger one\nlast", 100), expected);
        assert!(lines("", 100).is_empty());
    }

    #[test]
    fn a_line_beyond_the_limit_is_passed_over() {
        assert_eq!(lines("12345678901\nb\n", 10), [(1, None), whole(2, "b")]);
        assert_eq!(
            lines("1234567890\nb", 10),
            [whole(1, "1234567890"), whole(2, "b")]
        );
        assert_eq!(lines("1234567890\r\n12345678901", 10), [(1, None), (2, None)]);
    }
}
