//! Problems of a configuration: what is wrong, where, and how to fix it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a value was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Provenance {
    /// Not written: the default.
    #[default]
    Default,
    /// A line of the configuration file, counted from 1.
    File {
        /// The file as named on the command line.
        path: Arc<Path>,
        /// Counted from 1.
        line: usize,
    },
    /// An environment variable.
    Env(String),
    /// A command-line flag, with its dashes.
    Flag(String),
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// An error or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where the invalid value was written.
    pub provenance: Provenance,
    /// The key, and what is wrong with it.
    pub what: String,
    /// How to fix it.
    pub hint: Option<String>,
}

/// A fault of a value: a text to follow its name, and a better value.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) what: String,
    pub(super) hint: String,
}

impl Problem {
    pub(super) fn new(provenance: &Provenance, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            provenance: provenance.clone(),
            what: what.into(),
            hint: Some(hint.into()),
        }
    }
}

impl Fault {
    pub(super) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        let (what, hint) = (what.into(), hint.into());
        Self { what, hint }
    }

    /// Returns the problem of the value with this name.
    pub(super) fn of(self, name: impl fmt::Display, provenance: &Provenance) -> Problem {
        Problem::new(provenance, format!("{name} {}", self.what), self.hint)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.provenance {
            Provenance::Default => f.write_str(&self.what),
            provenance => write!(f, "{provenance}: {}", self.what),
        }
    }
}

/// The problems of a configuration that were found so far.
#[derive(Default)]
pub(super) struct Report {
    /// Values that cannot be used.
    pub(super) problems: Vec<Problem>,
    /// Unknown names; the known ones are still valid.
    pub(super) strangers: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
}

/// All problems of a configuration.
#[derive(Debug, thiserror::Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// At least one; those of the file are in line order.
    pub problems: Vec<Problem>,
}
