//! Event logs of Spark 3.0 to 4.x: one JSON object per line, one application per log. An application is a
//! run.
//!
//! - *Times*: the start and the end of the application. The submission is `spark.app.submitTime` if a job's
//!   properties have it, otherwise the start.
//! - *Inputs*: the locations of file scans in SQL plans ([`location`]), with the sizes of the files read, and
//!   the names of RDDs that are paths (`sc.textFile`), with the bytes that their tasks read. The tasks' own
//!   byte metric is useless for S3A, because it does not count vectored reads.
//! - *Outputs*: the targets of `InsertIntoHadoopFsRelationCommand`. A location that an application wrote
//!   before reading it is not an input, because it does not exist before the application runs.
//!
//! - *Steps*: the queries of an application, and its jobs that are no part of one, in the order in which they
//!   began, each with what it reads and writes ([`Application`]).
//!
//! A log may be rolled into files of a folder `eventlog_v2_*`, which are read in order, and may be
//! compressed: both are the default since Spark 4.0. Events of other types are skipped without parsing them.

mod application;
mod event;
mod location;
mod plan;
mod steps;

use std::io::BufRead;

use shoal_logs::FileError;
use shoal_logs::line::{Line, Lines};

use self::application::OpenApplication;
use self::event::Event;
pub use self::steps::{Application, Step};
use crate::error::HistoryError;
use crate::run::{History, Passed};

/// Maximum length of an event. Longer ones, such as plans of thousands of nodes, are skipped and counted.
const LINE_BYTES_MAX: usize = 64 << 20;

/// The application whose log is being read. A rolled log continues in the next file.
#[derive(Debug, Default)]
pub(super) struct Spark {
    open: Option<OpenApplication>,
    /// Of those that were read before, the one that started last.
    latest: Option<OpenApplication>,
}

impl Spark {
    /// Reads one file of an event log.
    pub(super) fn read(
        &mut self,
        history: &mut History,
        name: &str,
        input: impl BufRead + 'static,
    ) -> Result<(), HistoryError> {
        let mut lines = Lines::new(name, input, LINE_BYTES_MAX);
        // The log of a killed application may end with half a line.
        let mut broken: Option<FileError> = None;
        loop {
            let line = match lines.next_line() {
                Ok(Some(line)) => line,
                Err(error) if self.open.is_none() => return Err(error.into()),
                // The same for a compressed log.
                Ok(None) | Err(_) => {
                    return match broken {
                        Some(broken) if self.open.is_none() => Err(broken.into()),
                        _ => Ok(()),
                    };
                }
            };
            if let Some(broken) = broken {
                return Err(broken.into());
            }
            let event = match line {
                Line::TooLong => {
                    history.pass(Passed::LongLine);
                    continue;
                }
                Line::Whole(line) => event::parse(line),
            };
            match event {
                Ok(Some(event)) => self.take(history, name, event)?,
                Ok(None) => {}
                Err(mismatch) => broken = Some(lines.place.error(mismatch)),
            }
        }
    }

    /// Ends the application that was read last.
    pub(super) fn finish(&mut self, history: &mut History) -> Result<(), HistoryError> {
        let Some(application) = self.open.take() else {
            return Ok(());
        };
        application.finish(history)?;
        let latest = self.latest.take();
        self.latest = Some(
            match latest.filter(|latest| latest.started_ms > application.started_ms) {
                Some(latest) => latest,
                None => application,
            },
        );
        Ok(())
    }

    /// Returns the application that started last, of those that have been read to their ends.
    pub(super) fn latest(&self) -> Option<Application> {
        self.latest.as_ref().map(Application::of)
    }

    fn take(&mut self, history: &mut History, name: &str, event: Event<'_>) -> Result<(), HistoryError> {
        match (event, &mut self.open) {
            // A compacted part of a rolled log repeats the start event.
            (Event::Start(start), Some(open)) if open.is(&start) => {}
            (Event::Start(start), _) => {
                self.finish(history)?;
                self.open = Some(OpenApplication::begin(name, start));
            }
            (event, Some(application)) => application.take(event),
            // A part of a rolled log without its predecessor.
            (_, None) => history.pass(Passed::NoStart),
        }
        Ok(())
    }
}
