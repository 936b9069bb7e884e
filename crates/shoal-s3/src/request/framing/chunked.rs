//! A body in the chunked transfer coding: the ends of its chunks, of its trailer section and of the body
//! itself.

use crate::error::S3Error;

use super::syntax::{field, is_field_value, line};
use super::{MAX_FIELDS, bad_request, too_large};

/// The longest line with the size of a chunk, including extensions and CRLF.
const MAX_SIZE_LINE_BYTES: usize = 256;

/// The most bytes of all chunk extensions of one body together; more is an attack on the parsers that read
/// them.
const MAX_EXTENSION_BYTES: usize = 8 * 1024;

/// The most bytes of all trailer lines of one body together.
const MAX_TRAILER_BYTES: usize = 8 * 1024;

/// Fields that would change how the request is framed, routed or authorised after that was decided.
const FORBIDDEN_TRAILERS: [&[u8]; 12] = [
    b"authorization",
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-range",
    b"content-type",
    b"expect",
    b"host",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
];

/// The progress of reading a chunked body.
#[derive(Debug, Default)]
pub(super) struct ChunkedBody {
    state: State,
    extension_bytes: usize,
    trailer_bytes: usize,
    trailers: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    SizeLine,
    /// The number of bytes of data left in the chunk.
    Data(u64),
    /// The CRLF after the data.
    DataEnd,
    Trailers,
}

/// The number of bytes that may pass.
#[derive(Debug)]
pub(super) enum Progress {
    /// The body continues after them; zero means that more input is needed.
    More(usize),
    /// The body ends with them.
    Complete(usize),
}

impl ChunkedBody {
    /// Consumes one piece from the front of `window`: a size line, data, the line end after it or a trailer
    /// line.
    pub(super) fn advance(&mut self, window: &[u8]) -> Result<Progress, S3Error> {
        match self.state {
            State::SizeLine => self.size_line(window),
            State::Data(left) => {
                let taken = usize::try_from(left).map_or(window.len(), |left| left.min(window.len()));
                let left = left - taken as u64;
                self.state = if left == 0 {
                    State::DataEnd
                } else {
                    State::Data(left)
                };
                Ok(Progress::More(taken))
            }
            State::DataEnd => {
                let expected = b"\r\n";
                let shown = &window[..window.len().min(expected.len())];
                if !expected.starts_with(shown) {
                    return Err(bad_request("A chunk is longer than its size."));
                }
                if shown.len() < expected.len() {
                    return Ok(Progress::More(0));
                }
                self.state = State::SizeLine;
                Ok(Progress::More(expected.len()))
            }
            State::Trailers => self.trailer_line(window),
        }
    }

    fn size_line(&mut self, window: &[u8]) -> Result<Progress, S3Error> {
        let shown = &window[..window.len().min(MAX_SIZE_LINE_BYTES)];
        let Some(newline) = memchr::memchr(b'\n', shown) else {
            return if shown.len() == MAX_SIZE_LINE_BYTES {
                Err(bad_request("The line with the size of a chunk is too long."))
            } else {
                Ok(Progress::More(0))
            };
        };
        let line = line(window, 0, newline)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size = chunk_size(&line[..digits])?;
        self.take_extension(&line[digits..])?;
        self.state = if size == 0 {
            State::Trailers
        } else {
            State::Data(size)
        };
        Ok(Progress::More(newline + 1))
    }

    /// Checks an extension. The node ignores extensions, but they are bounded and must not hide a line end.
    fn take_extension(&mut self, extension: &[u8]) -> Result<(), S3Error> {
        self.extension_bytes += extension.len();
        if !(extension.is_empty() || extension.starts_with(b";")) || !is_field_value(extension) {
            return Err(bad_request("The size of a chunk is not valid."));
        }
        if self.extension_bytes > MAX_EXTENSION_BYTES {
            return Err(bad_request("The chunk extensions are too long."));
        }
        Ok(())
    }

    fn trailer_line(&mut self, window: &[u8]) -> Result<Progress, S3Error> {
        let allowed = MAX_TRAILER_BYTES - self.trailer_bytes;
        let shown = &window[..window.len().min(allowed)];
        let Some(newline) = memchr::memchr(b'\n', shown) else {
            return if shown.len() == allowed {
                Err(too_large("The trailer section is larger than 8 KiB."))
            } else {
                Ok(Progress::More(0))
            };
        };
        let line = line(window, 0, newline)?;
        self.trailer_bytes += newline + 1;
        if line.is_empty() {
            return Ok(Progress::Complete(newline + 1));
        }
        let field = field(line)?;
        self.trailers += 1;
        if self.trailers > MAX_FIELDS {
            return Err(too_large("The request has more than 100 trailer fields."));
        }
        if FORBIDDEN_TRAILERS
            .iter()
            .any(|name| field.name.eq_ignore_ascii_case(name))
        {
            return Err(bad_request(
                "A trailer field must not change the request it belongs to.",
            ));
        }
        Ok(Progress::More(newline + 1))
    }
}

fn chunk_size(digits: &[u8]) -> Result<u64, S3Error> {
    let text = std::str::from_utf8(digits).expect("hexadecimal digits are text");
    u64::from_str_radix(text, 16)
        .ok()
        .filter(|&size| i64::try_from(size).is_ok())
        .ok_or_else(|| bad_request("The size of a chunk is not valid."))
}
