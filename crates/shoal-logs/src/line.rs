//! Lines of a file with their numbers, one after the other, none longer than a limit.

use std::io::{self, BufRead};

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
            let end = read_line(&mut self.input, &mut self.buffer, self.bytes_max);
            match end.map_err(|source| self.place.io_error(source))? {
                LineEnd::NoMore => return Ok(None),
                LineEnd::TooLong => return Ok(Some(Line::TooLong)),
                LineEnd::Line if self.buffer.is_empty() => {}
                LineEnd::Line => return Ok(Some(Line::Whole(&self.buffer))),
            }
        }
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
            Some(Line::TooLong) => Err(self.place.error(too_long(self.bytes_max))),
        }
    }

    /// Passes each line to `take` as text.
    ///
    /// # Errors
    ///
    /// Fails as [`next_text`](Self::next_text) does, and with the first error of `take`.
    pub fn each<E: From<FileError>>(
        &mut self,
        mut take: impl FnMut(&str) -> Result<Result<(), E>, Mismatch>,
    ) -> Result<(), E> {
        let bytes_max = self.bytes_max;
        while let Some(line) = self.next_line()? {
            let taken = match line {
                Line::Whole(line) => take(&String::from_utf8_lossy(line)),
                Line::TooLong => Err(too_long(bytes_max)),
            };
            taken.map_err(|mismatch| self.place.error(mismatch))??;
        }
        Ok(())
    }
}

fn too_long(bytes_max: usize) -> Mismatch {
    Mismatch::new(format!("a line of more than {bytes_max} bytes"), "shorter lines")
}

/// How the reading of one line ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    /// The line is in the buffer, without its line end.
    Line,
    /// The line is longer than the limit. It was passed over, and the buffer has its beginning.
    TooLong,
    /// There are no more lines.
    NoMore,
}

/// Reads the next line of `input` into `line`, which is cleared first. The buffer never grows beyond
/// `bytes_max`.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>, bytes_max: usize) -> io::Result<LineEnd> {
    line.clear();
    let (mut any, mut too_long) = (false, false);
    loop {
        let available = match input.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() {
            break;
        }
        any = true;
        let end = available.iter().position(|&byte| byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        let room = bytes_max.saturating_sub(line.len());
        too_long |= part.len() > room;
        line.extend_from_slice(&part[..part.len().min(room)]);
        let taken = part.len() + usize::from(end.is_some());
        input.consume(taken);
        if end.is_some() {
            break;
        }
    }
    debug_assert!(line.len() <= bytes_max, "no line grows beyond its limit");
    if line.last() == Some(&b'\r') && !too_long {
        line.pop();
    }
    Ok(match (any, too_long) {
        (false, _) => LineEnd::NoMore,
        (true, true) => LineEnd::TooLong,
        (true, false) => LineEnd::Line,
    })
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::{LineEnd, read_line};

    fn lines(text: &str, bytes_max: usize) -> Vec<(LineEnd, String)> {
        // Small reads, so that lines span several of them.
        let mut input = BufReader::with_capacity(3, text.as_bytes());
        let (mut line, mut lines) = (Vec::new(), Vec::new());
        loop {
            let end = read_line(&mut input, &mut line, bytes_max).unwrap();
            if end == LineEnd::NoMore {
                return lines;
            }
            lines.push((end, String::from_utf8(line.clone()).unwrap()));
        }
    }

    #[test]
    fn lines_end_at_a_line_feed_and_at_the_end() {
        let told = lines("a\r\n\nlonger one\nlast", 100);
        let texts: Vec<_> = told.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["a", "", "longer one", "last"]);
        assert!(told.iter().all(|(end, _)| *end == LineEnd::Line));
        assert!(lines("", 100).is_empty());
    }

    #[test]
    fn a_line_beyond_the_limit_is_passed_over() {
        let told = lines("12345678901\nb\n", 10);
        assert_eq!(
            told,
            [
                (LineEnd::TooLong, "1234567890".to_owned()),
                (LineEnd::Line, "b".to_owned())
            ]
        );
    }
}
