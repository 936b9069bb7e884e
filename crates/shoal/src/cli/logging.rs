//! Where log lines go: stderr, as text for people or as JSON for collectors.

use std::io;

use tracing_subscriber::EnvFilter;

use super::log_lines;
use super::output::colour_on_stderr;
use crate::config::Log;

/// Starts logging as `[log]` says. The configuration has been checked; the first call in a process counts.
pub(super) fn start(log: &Log) {
    let filter = EnvFilter::new(&log.filter);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    let started = if log.format == "json" {
        lines.json().flatten_event(true).with_ansi(false).try_init()
    } else {
        lines
            .fmt_fields(log_lines::fields())
            .with_ansi(colour_on_stderr())
            .try_init()
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging was started before");
    }
}
