//! A file of lines that a thread of its own writes, so that no request waits for the disk.
//!
//! A disk that is full or slow loses lines, never parts of a line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use shoal_base::causes;
use shoal_base::words::Counts;
use tokio::sync::Notify;

use crate::time::clock;
use crate::time::log_throttle::LogThrottle;
use crate::words;

/// Maximum number of bytes of lines that wait to be written.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// The part of the buffers that is kept while nothing waits.
const KEPT_BYTES: usize = 256 << 10;

/// How long a node that stops waits for the last lines.
const CLOSE_PATIENCE: Duration = Duration::from_secs(3);

/// Readable for the user and the group of the node: lines have names of clients and of objects.
const MODE: u32 = 0o640;

words! {
    /// The outcome of a line.
    pub enum LineOutcome {
        /// The kernel has it.
        Written = "written",
        /// Too many lines waited to be written.
        Overflowed = "overflowed",
        /// It could not be written.
        Failed = "failed",
    }
}

/// The destination of lines.
#[derive(Debug)]
pub enum Sink {
    /// The standard error output of the process.
    Stderr,
    /// A file, at whose end they are added.
    File(File),
}

impl Sink {
    /// Opens a file, which is created if there is none.
    ///
    /// # Errors
    ///
    /// The file cannot be opened for writing, or is a pipe without a reader.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Without waiting: a pipe must not hold up the node.
        let mut options = OpenOptions::new();
        let options = options.append(true).create(true).mode(MODE);
        options.custom_flags(libc::O_NONBLOCK).open(path).map(Self::File)
    }

    /// Writes whole lines. Returns the number of bytes of those that were written, with the error that kept
    /// the others from it.
    fn write(&mut self, lines: &[u8]) -> (usize, Option<io::Error>) {
        let file = match self {
            Self::Stderr => {
                let written = io::stderr().lock().write_all(lines);
                return written.map_or_else(|error| (0, Some(error)), |()| (lines.len(), None));
            }
            Self::File(file) => file,
        };
        let mut written = 0;
        while written < lines.len() {
            match file.write(&lines[written..]) {
                Ok(0) => return (written, Some(io::ErrorKind::WriteZero.into())),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (written, Some(error)),
            }
        }
        (written, None)
    }

    /// Removes the last bytes of the file again.
    fn take_back(&self, bytes: usize) -> io::Result<()> {
        let Self::File(file) = self else {
            return Ok(());
        };
        let length = file.metadata()?.len();
        file.set_len(length.saturating_sub(bytes as u64))
    }
}

/// A file of lines, and the thread that writes it. The thread ends when this is dropped.
pub struct LogFile(Arc<Shared>);

struct Shared {
    waiting: Mutex<Waiting>,
    has_work: Condvar,
    is_closed: Notify,
    outcomes: Arc<Counts<LineOutcome>>,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    /// The sink that replaces the present one.
    next: Option<Sink>,
    /// True if no further lines will come.
    is_last: bool,
}

impl LogFile {
    /// Starts the thread that writes to `sink` and counts lines in `outcomes`.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(sink: Sink, outcomes: Arc<Counts<LineOutcome>>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            has_work: Condvar::new(),
            is_closed: Notify::new(),
            outcomes,
        });
        let of_thread = Arc::clone(&shared);
        let writer = thread::Builder::new().name("access-log".into());
        writer.spawn(move || {
            of_thread.run(sink);
            of_thread.is_closed.notify_one();
        })?;
        Ok(Self(shared))
    }

    /// Adds a line, which has no line break. Never waits for the file.
    pub fn write(&self, line: &str) {
        debug_assert!(!line.contains('\n'), "a line is one line");
        let mut waiting = self.0.waiting.lock();
        if waiting.lines.len() + line.len() >= WAITING_BYTES_MAX {
            drop(waiting);
            self.0.outcomes.count(LineOutcome::Overflowed);
            return;
        }
        waiting.lines.extend_from_slice(line.as_bytes());
        waiting.lines.push(b'\n');
        drop(waiting);
        self.0.has_work.notify_one();
    }

    /// Writes to another sink from now on, such as the file that has been opened again under its name.
    pub fn replace(&self, sink: Sink) {
        self.0.waiting.lock().next = Some(sink);
        self.0.has_work.notify_one();
    }

    /// Waits until all lines are written, for a few seconds at most. Further lines are lost.
    pub async fn close(&self) {
        self.end();
        // Lines for a disk that does not answer are lost with the node.
        let _ = tokio::time::timeout(CLOSE_PATIENCE, self.0.is_closed.notified()).await;
    }

    fn end(&self) {
        self.0.waiting.lock().is_last = true;
        self.0.has_work.notify_one();
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn run(&self, mut sink: Sink) {
        let mut lines = Vec::new();
        // True if the last line in the file is a part of one.
        let mut is_torn = false;
        loop {
            let mut waiting = self.waiting.lock();
            while waiting.lines.is_empty() && waiting.next.is_none() && !waiting.is_last {
                self.has_work.wait(&mut waiting);
            }
            std::mem::swap(&mut lines, &mut waiting.lines);
            let (next, is_last) = (waiting.next.take(), waiting.is_last);
            drop(waiting);
            if let Some(next) = next {
                (sink, is_torn) = (next, false);
            }
            if is_torn && sink.write(b"\n").1.is_none() {
                is_torn = false;
            }
            is_torn |= self.write(&mut sink, &lines);
            lines.clear();
            lines.shrink_to(KEPT_BYTES);
            if is_last {
                return;
            }
        }
    }

    /// Writes lines and counts them. Returns true if a part of a line stays in the file.
    fn write(&self, sink: &mut Sink, lines: &[u8]) -> bool {
        let (written, error) = sink.write(lines);
        let whole = lines[..written]
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |last| last + 1);
        self.outcomes.add(LineOutcome::Written, count(&lines[..whole]));
        self.outcomes.add(LineOutcome::Failed, count(&lines[whole..]));
        if let Some(error) = error {
            warn(&error);
        }
        written > whole && sink.take_back(written - whole).is_err()
    }
}

fn count(lines: &[u8]) -> u64 {
    lines.split(|byte| *byte == b'\n').count() as u64 - 1
}

fn warn(error: &io::Error) {
    static LINES: LogThrottle = LogThrottle::every(Duration::from_mins(1));
    if let Some(unsaid) = LINES.admit(clock::instant()) {
        tracing::warn!(
            error = causes::line(error),
            unsaid,
            "lines of the access log are lost"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::path::Path;
    use std::sync::Arc;

    use shoal_base::words::Counts;
    use tempfile::TempDir;

    use super::{LineOutcome, LogFile, Sink, WAITING_BYTES_MAX};

    fn started(path: &Path) -> (LogFile, Arc<Counts<LineOutcome>>) {
        let outcomes = Arc::<Counts<LineOutcome>>::default();
        let sink = Sink::open(path).unwrap();
        (LogFile::start(sink, Arc::clone(&outcomes)).unwrap(), outcomes)
    }

    #[tokio::test]
    async fn lines_are_added_to_the_file_in_order() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "before\n").unwrap();
        let (file, outcomes) = started(&path);
        for line in ["one", "two", "three"] {
            file.write(line);
        }
        file.close().await;
        assert_eq!(fs::read_to_string(&path).unwrap(), "before\none\ntwo\nthree\n");
        assert_eq!(outcomes.get(LineOutcome::Written), 3);
    }

    #[tokio::test]
    async fn a_file_that_was_moved_away_gets_no_line_after_it_is_opened_again() {
        let folder = TempDir::new().unwrap();
        let [path, moved] = ["log", "log.1"].map(|name| folder.path().join(name));
        let (file, outcomes) = started(&path);
        fs::rename(&path, &moved).unwrap();
        file.replace(Sink::open(&path).unwrap());
        file.write("new");
        file.close().await;
        assert_eq!(fs::read_to_string(&moved).unwrap(), "");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(outcomes.get(LineOutcome::Written), 1);
    }

    #[tokio::test]
    async fn a_full_disk_loses_lines_and_counts_them() {
        let (file, outcomes) = started(Path::new("/dev/full"));
        file.write("lost");
        file.write("lost, too");
        file.close().await;
        assert_eq!(outcomes.get(LineOutcome::Failed), 2);
        assert_eq!(outcomes.get(LineOutcome::Written), 0);
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_loses_lines_and_gets_whole_ones_later() {
        let folder = TempDir::new().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        )
        .unwrap();
        assert!(Sink::open(&pipe).is_err(), "no reader");
        let mut reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let (file, outcomes) = started(&pipe);
        let line = "x".repeat(100_000);
        file.write(&line);
        file.close().await;
        assert_eq!(outcomes.get(LineOutcome::Failed), 1);
        let mut begun = vec![0; 4096];
        let read = reader.read(&mut begun).unwrap();
        assert_eq!(begun[..read], line.as_bytes()[..read]);
    }

    #[test]
    fn lines_beyond_the_memory_for_them_are_counted() {
        let (file, outcomes) = started(Path::new("/dev/null"));
        file.write(&"x".repeat(WAITING_BYTES_MAX));
        assert_eq!(outcomes.get(LineOutcome::Overflowed), 1);
    }

    #[test]
    fn a_part_of_a_line_is_taken_back() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "whole\npar").unwrap();
        Sink::open(&path).unwrap().take_back(3).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole\n");
    }
}
