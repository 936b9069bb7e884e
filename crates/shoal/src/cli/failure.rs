//! Errors of a subcommand: what failed, on what, and what to do.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use shoal_node::config::{ConfigError, Problem};

use super::output::{Tone, print_message};

/// Why a subcommand failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The configuration is invalid.
    Refused(ConfigError),
    /// The command line is invalid.
    Misused { what: String, hint: String },
    /// The user interrupted the command; the operation it started continues.
    Interrupted { what: String, hint: String },
    /// The operation failed.
    Failed { what: String, hint: Option<String> },
}

impl Failure {
    /// Creates a failure of `what`, with `error` and its sources as the reason.
    pub(super) fn new(what: &str, error: &(dyn Error + 'static)) -> Self {
        let (why, its_hint) = chain(error);
        Self::Failed {
            what: format!("{what}: {why}"),
            hint: its_hint.or_else(|| hint(error).map(Into::into)),
        }
    }

    /// Creates a failure for a command line that is invalid.
    pub(super) fn misused(what: impl Into<String>, hint: impl Into<String>) -> Self {
        let (what, hint) = (what.into(), hint.into());
        Self::Misused { what, hint }
    }

    /// Creates a failure for input with this error, whose hint stands on a second line, or is this one.
    pub(super) fn misused_as(error: &dyn Error, usual_hint: &str) -> Self {
        let text = error.to_string();
        let (what, hint) = text.split_once(HINT).unwrap_or((&text, usual_hint));
        Self::misused(what, hint)
    }

    /// Creates a failure without a hint.
    pub(super) fn failed(what: impl Into<String>) -> Self {
        let what = what.into();
        Self::Failed { what, hint: None }
    }

    /// Returns the same failure with this hint.
    pub(super) fn hinting(self, hint: impl Into<String>) -> Self {
        match self {
            Self::Failed { what, .. } => Self::Failed {
                what,
                hint: Some(hint.into()),
            },
            refused => refused,
        }
    }

    /// Returns the same failure, with this hint unless it already has one.
    pub(super) fn or_hinting(self, hint: &str) -> Self {
        match self {
            Self::Failed { hint: None, .. } => self.hinting(hint),
            hinting => hinting,
        }
    }

    /// Prints the failure to stderr.
    pub(super) fn print(&self) {
        match self {
            Self::Refused(error) => {
                for problem in &error.problems {
                    print_problem(Tone::Error, problem);
                }
            }
            Self::Misused { what, hint } => print_message(Tone::Error, what, Some(hint)),
            Self::Interrupted { what, hint } => print_message(Tone::Note, what, Some(hint)),
            Self::Failed { what, hint } => print_message(Tone::Error, what, hint.as_deref()),
        }
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Failed { .. } => ExitCode::from(1),
            // clap's exit code for invalid arguments.
            Self::Refused(_) | Self::Misused { .. } => ExitCode::from(2),
            // 128 plus the number of SIGINT, as shells do.
            Self::Interrupted { .. } => ExitCode::from(130),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Refused(error)
    }
}

/// Prints the warnings of a configuration to stderr.
pub(super) fn print_warnings(warnings: &[Problem]) {
    for warning in warnings {
        print_problem(Tone::Warning, warning);
    }
}

/// Prints one problem of a configuration to stderr.
fn print_problem(tone: Tone, problem: &Problem) {
    print_message(tone, &problem.to_string(), problem.hint.as_deref());
}

/// Joins the messages of the error and its sources, omitting repeated ones. Also returns the first hint
/// found.
fn chain(error: &(dyn Error + 'static)) -> (String, Option<String>) {
    let (mut why, mut hint) = (String::new(), None);
    for error in sources(error) {
        let text = error.to_string();
        let (text, its_hint) = match text.split_once(HINT) {
            Some((text, its_hint)) => (text, Some(its_hint.to_owned())),
            None => (text.as_str(), None),
        };
        hint = hint.or(its_hint);
        if why.is_empty() {
            why.push_str(text);
        } else if !why.ends_with(text) {
            why = format!("{why}: {text}");
        }
    }
    (why, hint)
}

/// Separates the message of an error from its hint.
const HINT: &str = "\nhint: ";

fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Returns a hint for common errors of the operating system.
fn hint(error: &(dyn Error + 'static)) -> Option<&'static str> {
    match sources(error)
        .find_map(|error| error.downcast_ref::<io::Error>())?
        .kind()
    {
        io::ErrorKind::AddrInUse => {
            Some("another process listens there (`ss -ltnp` names it); stop it, or choose another port")
        }
        io::ErrorKind::AddrNotAvailable => {
            Some("this machine has no such address (`ip addr` lists those it has)")
        }
        io::ErrorKind::PermissionDenied => {
            Some("run as a user with that permission, or choose a path that shoal owns or a port above 1023")
        }
        io::ErrorKind::StorageFull => Some("make room, or choose a folder on another disk"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::Failure;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot listen on 127.0.0.1:9000")]
    struct Outer(#[source] io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("no store: {0}")]
    struct Repeating(#[source] io::Error);

    #[test]
    fn a_failure_tells_the_whole_reason_and_what_to_do() {
        let taken = io::Error::new(io::ErrorKind::AddrInUse, "address in use");
        let Failure::Failed { what, hint } = Failure::new("the node cannot start", &Outer(taken)) else {
            panic!()
        };
        assert_eq!(
            what,
            "the node cannot start: cannot listen on 127.0.0.1:9000: address in use"
        );
        assert!(hint.unwrap().starts_with("another process listens there"));
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot listen on 127.0.0.1:9000: {0}\nhint: choose another port")]
    struct Hinting(#[source] io::Error);

    #[test]
    fn the_reason_stands_before_the_hint_and_both_once() {
        let taken = Hinting(io::Error::new(io::ErrorKind::AddrInUse, "address in use"));
        let Failure::Failed { what, hint } = Failure::new("the node cannot start", &taken) else {
            panic!()
        };
        assert_eq!(
            what,
            "the node cannot start: cannot listen on 127.0.0.1:9000: address in use"
        );
        assert_eq!(hint.unwrap(), "choose another port");
    }

    #[test]
    fn a_reason_that_an_error_prints_itself_is_told_once() {
        let error = Repeating(io::Error::other("broken"));
        let Failure::Failed { what, hint } = Failure::new("stop", &error) else {
            panic!()
        };
        assert_eq!((what.as_str(), hint), ("stop: no store: broken", None));
    }
}
