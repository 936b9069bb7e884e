//! Reads small files such as settings, keys and tokens, with bounds on size and time.
//!
//! The path may lead to an endless device or a silent pipe, and a serving node must neither run out of memory
//! nor block on it.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

/// The maximum size of such a file.
pub const BYTES_MAX: usize = 4 << 20;

/// The number of reads from a silent pipe, and the pause between two: two seconds in all.
const LOOKS_MAX: u32 = 200;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Returns the bytes of a file.
///
/// # Errors
///
/// Fails if the file cannot be read, has more than [`BYTES_MAX`] bytes, is empty
/// ([`UnexpectedEof`](ErrorKind::UnexpectedEof)), or is a pipe that does not send its bytes in time.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    // Otherwise opening a pipe without a writer would block.
    let file = options
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let (mut bytes, mut looks) = (Vec::new(), 0);
    let mut rest = file.take(BYTES_MAX as u64 + 1);
    loop {
        match rest.read_to_end(&mut bytes) {
            Ok(_) if bytes.len() > BYTES_MAX => {
                return Err(io::Error::other("it has more than 4 MiB, or no end"));
            }
            Ok(_) if bytes.is_empty() => return Err(io::Error::new(ErrorKind::UnexpectedEof, "it is empty")),
            Ok(_) => return Ok(bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock && looks < LOOKS_MAX => {
                looks += 1;
                std::thread::sleep(LOOK_EVERY);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(io::Error::other("it is a pipe that sends nothing, or no end"));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns the text of a file.
///
/// # Errors
///
/// Fails as [`read`] does, and if the bytes are not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::Error::other("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::path::Path;

    use super::{BYTES_MAX, read, read_text};

    fn failure(path: &Path) -> String {
        read(path).unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_read_whole_up_to_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, vec![b'a'; BYTES_MAX]).unwrap();
        assert_eq!(read_text(&path).unwrap().len(), BYTES_MAX);
        fs::write(&path, vec![b'a'; BYTES_MAX + 1]).unwrap();
        assert!(failure(&path).contains("more than 4 MiB"));
        fs::write(&path, b"\xff").unwrap();
        assert!(read_text(&path).unwrap_err().to_string().contains("UTF-8"));
        assert!(read(&folder.path().join("absent")).is_err());
    }

    #[test]
    fn an_endless_device_an_empty_file_and_a_silent_pipe_are_refused() {
        assert!(failure(Path::new("/dev/zero")).contains("no end"));
        assert!(failure(Path::new("/dev/null")).contains("empty"));
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(failure(&pipe).contains("empty"), "no process writes into it");
        let open = fs::OpenOptions::new().read(true).write(true).open(&pipe);
        let mut writer = open.unwrap();
        assert!(failure(&pipe).contains("sends nothing"));
        writer.write_all(b"text").unwrap();
        assert!(failure(&pipe).contains("no end"));
    }
}
