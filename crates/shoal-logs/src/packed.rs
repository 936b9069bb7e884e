//! Decompresses files, recognized by their first bytes: gzip, and Zstandard, which Spark uses for event logs.

use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::{FileError, Place};

/// Magic bytes of unsupported compressions, and commands that decompress them.
const OTHERS: [(&[u8], &str); 3] = [
    (b"\xfd7zXZ\0", "xz -dc"),
    (b"BZh", "bzip2 -dc"),
    // Spark's own LZ4 framing, which no command decompresses.
    (
        b"LZ4Block",
        "write event logs with spark.eventLog.compression.codec=zstd instead, or read by Spark",
    ),
];

const GZIP: &[u8] = b"\x1f\x8b\x08";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

/// A file whose first bytes have been read and put back.
type Begun<R> = BufReader<Chain<Cursor<Vec<u8>>, R>>;

/// Returns the decompressed content of a file, and its first `start_bytes` bytes. `name` is its name in
/// errors.
///
/// # Errors
///
/// Fails if the file cannot be read, or is compressed in another way.
pub fn unpacked(
    name: &str,
    input: impl Read + 'static,
    start_bytes: usize,
) -> Result<(Vec<u8>, Box<dyn BufRead>), FileError> {
    let (mark, input) = begun(name, input, 8)?;
    if let Some((_, command)) = OTHERS.iter().find(|(start, _)| mark.starts_with(start)) {
        return Err(FileError::Compressed {
            name: name.to_owned(),
            command,
        });
    }
    let input: Box<dyn Read> = if mark.starts_with(GZIP) {
        Box::new(MultiGzDecoder::new(input))
    } else if mark.starts_with(ZSTD) {
        Box::new(Frames::new(input))
    } else {
        Box::new(input)
    };
    let (start, input) = begun(name, input, start_bytes)?;
    Ok((start, Box::new(input)))
}

/// Reads the first `bytes` bytes of a file and puts them back.
fn begun<R: Read>(name: &str, mut input: R, bytes: usize) -> Result<(Vec<u8>, Begun<R>), FileError> {
    let mut start = Vec::with_capacity(bytes);
    (&mut input)
        .take(bytes as u64)
        .read_to_end(&mut start)
        .map_err(|source| Place::new(name).io_error(source))?;
    let whole = Cursor::new(start.clone()).chain(input);
    Ok((start, BufReader::with_capacity(1 << 17, whole)))
}

/// The frames of a Zstandard file, in order.
struct Frames<R> {
    input: R,
    decoder: FrameDecoder,
    is_within: bool,
}

impl<R: BufRead> Frames<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            decoder: FrameDecoder::new(),
            is_within: false,
        }
    }

    /// Begins the next frame. Returns `false` at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.input) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut (&mut self.input).take(u64::from(length)), &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_within && !self.begin()? {
                return Ok(0);
            }
            self.is_within = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
            let length = self.decoder.read(buffer)?;
            if length > 0 {
                return Ok(length);
            }
            self.is_within = !self.decoder.is_finished();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read, Write};

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::unpacked;

    fn zstd(text: &str) -> Vec<u8> {
        compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn content(file: Vec<u8>) -> (String, String) {
        let (start, mut input) = unpacked("f", Cursor::new(file), 10).unwrap();
        let mut text = String::new();
        input.read_to_string(&mut text).unwrap();
        (String::from_utf8(start).unwrap(), text)
    }

    #[test]
    fn packed_files_of_several_parts_are_read_to_their_end() {
        let (first, second) = ("first ".repeat(50_000), "second ".repeat(30_000));
        let expected = (first[..10].to_owned(), format!("{first}{second}"));
        // A skippable frame between the two.
        let skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc".to_vec();
        assert_eq!(content([zstd(&first), skipped, zstd(&second)].concat()), expected);
        assert_eq!(content([gzip(&first), gzip(&second)].concat()), expected);
        assert_eq!(content(expected.1.clone().into_bytes()), expected);
        assert_eq!(content(Vec::new()), (String::new(), String::new()));
    }

    #[test]
    fn a_packed_file_that_is_cut_off_fails_after_what_is_there() {
        let mut file = zstd(&"line\n".repeat(100_000));
        file.truncate(file.len() - 3);
        let (start, mut input) = unpacked("f", Cursor::new(file), 10).unwrap();
        assert_eq!(start, b"line\nline\n");
        assert!(input.read_to_end(&mut Vec::new()).is_err());
    }
}
