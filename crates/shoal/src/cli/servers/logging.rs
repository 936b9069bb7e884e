//! Sets up logging to stderr, as text or as JSON.

use std::io;

use shoal_node::config::Log;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, fmt};

use super::log_lines;
use crate::cli::output::colour_on_stderr;

/// The log filter, which can be changed at runtime.
pub(crate) struct LogFilter(Handle<EnvFilter, Registry>);

impl LogFilter {
    /// Applies a new `[log] filter`, which has been validated.
    pub(crate) fn change(&self, log: &Log) {
        if let Err(error) = self.0.reload(EnvFilter::new(&log.filter)) {
            tracing::error!(%error, "the log filter could not be changed; the old one stays in force");
        }
    }
}

/// Starts logging with a validated configuration. Only the first call in a process has an effect.
pub(crate) fn start(log: &Log) -> LogFilter {
    let (filter, handle) = reload::Layer::new(EnvFilter::new(&log.filter));
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = if log.format == "json" {
        lines.json().flatten_event(true).with_ansi(false).boxed()
    } else {
        let lines = lines.fmt_fields(log_lines::fields());
        lines.with_ansi(colour_on_stderr()).boxed()
    };
    if let Err(error) = tracing_subscriber::registry().with(filter).with(lines).try_init() {
        tracing::debug!(%error, "logging is already set up");
    }
    LogFilter(handle)
}
