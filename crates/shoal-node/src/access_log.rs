//! Where the access log of a node goes: into its own log, or as lines of Amazon S3 into a file.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use shoal_net::log_file::{LineOutcome, LogFile, Sink};
use shoal_net::metrics::Counts;
use tokio::task::spawn_blocking;

use crate::config::{AccessFormat, Log};

/// The access log of a node, whose settings may change.
pub(crate) struct AccessLog {
    is_on: AtomicBool,
    /// `None` if requests are events of the node's own log.
    s3: ArcSwapOption<LogFile>,
    /// Lines of the file since the start, by outcome.
    pub(crate) lines: Arc<Counts<LineOutcome>>,
}

/// Settings of an access log whose file is open.
pub(crate) struct OpenLog {
    format: AccessFormat,
    sink: Option<Sink>,
}

/// The file of the access log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "[log] access_file cannot be opened: {path}: {source}\nhint: the node needs to create it and to add to it; a pipe needs a reader"
)]
pub(crate) struct LogFileError {
    path: String,
    source: io::Error,
}

impl OpenLog {
    /// Opens the file of a configuration, if it has one.
    pub(crate) fn new(log: &Log) -> Result<Self, LogFileError> {
        let open = |path: &Path| {
            Sink::open(path).map_err(|source| LogFileError {
                path: path.display().to_string(),
                source,
            })
        };
        let sink = match (log.access, &log.access_file) {
            (AccessFormat::S3, Some(path)) => Some(open(path)?),
            (AccessFormat::S3, None) => Some(Sink::Stderr),
            (AccessFormat::Off | AccessFormat::Events, _) => None,
        };
        let format = log.access;
        Ok(Self { format, sink })
    }

    /// The same, in a thread that may wait for a disk.
    pub(crate) async fn aside(log: &Log) -> Result<Self, LogFileError> {
        let log = log.clone();
        let opening = spawn_blocking(move || Self::new(&log));
        opening.await.expect("opening a file does not panic")
    }
}

impl AccessLog {
    /// Begins an access log.
    ///
    /// # Errors
    ///
    /// Its thread cannot be started.
    pub(crate) fn begin(open: OpenLog) -> io::Result<Self> {
        let log = Self {
            is_on: AtomicBool::new(false),
            s3: ArcSwapOption::empty(),
            lines: Arc::default(),
        };
        log.change(open)?;
        Ok(log)
    }

    /// Continues with other settings, or with the same file opened again. Requests in flight end in the log
    /// that they began with, but in the new file.
    ///
    /// # Errors
    ///
    /// Its thread cannot be started; nothing has changed then.
    pub(crate) fn change(&self, open: OpenLog) -> io::Result<()> {
        match (open.sink, self.s3.load_full()) {
            (None, _) => self.s3.store(None),
            (Some(sink), Some(present)) => present.replace(sink),
            (Some(sink), None) => {
                let file = LogFile::start(sink, Arc::clone(&self.lines))?;
                self.s3.store(Some(Arc::new(file)));
            }
        }
        self.is_on
            .store(open.format != AccessFormat::Off, Ordering::Relaxed);
        Ok(())
    }

    /// Returns true if requests are logged.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns the file of lines in the form of Amazon S3, if that is the form.
    pub(crate) fn s3(&self) -> Option<Arc<LogFile>> {
        self.s3.load_full()
    }

    /// Waits for the last lines, for a few seconds at most.
    pub(crate) async fn close(&self) {
        if let Some(file) = self.s3.load_full() {
            file.close().await;
        }
    }
}
