//! Sets up logging to stderr, as text or as JSON.

use std::io;

use shoal_node::config::Log;
use tracing::Subscriber;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use super::log_lines;
use crate::cli::output::colour_on_stderr;

/// The log filter, which can be changed at runtime.
pub(crate) struct LogFilter(Box<dyn Fn(EnvFilter) + Send + Sync>);

impl LogFilter {
    /// Applies a new `[log] filter`, which has been validated.
    pub(crate) fn change(&self, log: &Log) {
        (self.0)(EnvFilter::new(&log.filter));
    }

    fn new<S: 'static>(handle: Handle<EnvFilter, S>) -> Self {
        Self(Box::new(move |filter| {
            if let Err(error) = handle.reload(filter) {
                tracing::error!(%error, "the log filter could not be changed; the old one stays in force");
            }
        }))
    }
}

/// Starts logging with a validated configuration. Only the first call in a process has an effect.
pub(crate) fn start(log: &Log) -> LogFilter {
    let (lines, filter) = (fmt().with_writer(io::stderr), EnvFilter::new(&log.filter));
    // The type of the handle depends on the format.
    if log.format == "json" {
        let lines = lines.json().flatten_event(true).with_ansi(false);
        let lines = lines.with_env_filter(filter).with_filter_reloading();
        let handle = lines.reload_handle();
        begin(lines.finish());
        LogFilter::new(handle)
    } else {
        let lines = lines
            .fmt_fields(log_lines::fields())
            .with_ansi(colour_on_stderr());
        let lines = lines.with_env_filter(filter).with_filter_reloading();
        let handle = lines.reload_handle();
        begin(lines.finish());
        LogFilter::new(handle)
    }
}

fn begin(lines: impl Subscriber + Send + Sync) {
    if let Err(error) = lines.try_init() {
        tracing::debug!(%error, "logging is already set up");
    }
}
