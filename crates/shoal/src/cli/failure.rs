//! Errors of a subcommand: what failed, on what, and what to do.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use shoal_base::causes;
use shoal_node::config::{ConfigError, Problem};

use super::output::{Tone, print_message};

/// The exit codes: clap's for invalid arguments, and 128 plus the number of SIGINT, as shells do.
const FAILED: u8 = 1;
const REFUSED: u8 = 2;
const INTERRUPTED: u8 = 130;

/// Why a subcommand failed.
#[derive(Debug)]
pub(super) struct Failure {
    exit_code: u8,
    tone: Tone,
    /// At least one message, each with its hint.
    messages: Vec<(String, Option<String>)>,
}

impl Failure {
    /// Creates a failure of `what`, with `error` and its sources as the reason.
    pub(super) fn new(what: &str, error: &(dyn Error + 'static)) -> Self {
        let (why, its_hint) = chain(error);
        let hint = its_hint.or_else(|| hint(error).map(Into::into));
        Self::one(FAILED, Tone::Error, format!("{what}: {why}"), hint)
    }

    /// Returns the messages without their hints.
    pub(super) fn text(&self) -> String {
        let messages = self.messages.iter().map(|(what, _)| what.as_str());
        messages.collect::<Vec<_>>().join("; ")
    }

    /// Creates a failure for a command line that is invalid.
    pub(super) fn misused(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::one(REFUSED, Tone::Error, what.into(), Some(hint.into()))
    }

    /// Creates a failure for input with this error, whose hint stands on a second line, or is this one.
    pub(super) fn misused_as(error: &dyn Error, usual_hint: &str) -> Self {
        let text = error.to_string();
        let (what, hint) = text.split_once(HINT).unwrap_or((&text, usual_hint));
        Self::misused(what, hint)
    }

    /// Returns the same failure as that of an invalid command line: the node found out what is wrong with it.
    pub(super) fn misuse(mut self) -> Self {
        self.exit_code = REFUSED;
        self
    }

    /// Creates a failure of a command that the user interrupted; the operation it started continues.
    pub(super) fn interrupted(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::one(INTERRUPTED, Tone::Note, what.into(), Some(hint.into()))
    }

    /// Creates a failure without a hint.
    pub(super) fn failed(what: impl Into<String>) -> Self {
        Self::one(FAILED, Tone::Error, what.into(), None)
    }

    fn one(exit_code: u8, tone: Tone, what: String, hint: Option<String>) -> Self {
        Self {
            exit_code,
            tone,
            messages: vec![(what, hint)],
        }
    }

    /// Returns the same failure with this hint.
    pub(super) fn hinting(self, hint: impl Into<String>) -> Self {
        self.hinting_if(Some(hint.into()))
    }

    /// Returns the same failure with this hint, or without one.
    pub(super) fn hinting_if(mut self, hint: Option<String>) -> Self {
        self.messages[0].1 = hint;
        self
    }

    /// Returns the same failure, with this hint unless it already has one.
    pub(super) fn or_hinting(mut self, hint: &str) -> Self {
        self.messages[0].1.get_or_insert_with(|| hint.to_owned());
        self
    }

    /// Prints the failure to stderr.
    pub(super) fn print(&self) {
        for (what, hint) in &self.messages {
            print_message(self.tone, what, hint.as_deref());
        }
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        self.exit_code.into()
    }

    /// Returns what is wrong, and the hint, which is empty if there is none.
    #[cfg(test)]
    pub(super) fn message(&self) -> (&str, &str) {
        let (what, hint) = &self.messages[0];
        (what, hint.as_deref().unwrap_or_default())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        assert!(
            !error.problems.is_empty(),
            "a configuration is refused for a problem"
        );
        let message = |problem: Problem| (problem.to_string(), problem.hint);
        Self {
            exit_code: REFUSED,
            tone: Tone::Error,
            messages: error.problems.into_iter().map(message).collect(),
        }
    }
}

/// Prints the warnings of a configuration to stderr.
pub(super) fn print_warnings(warnings: &[Problem]) {
    for warning in warnings {
        print_message(Tone::Warning, &warning.to_string(), warning.hint.as_deref());
    }
}

/// Joins the messages of the error and its sources, omitting repeated ones. Also returns the first hint
/// found.
fn chain(error: &(dyn Error + 'static)) -> (String, Option<String>) {
    let (mut why, mut hint) = (String::new(), None);
    for error in causes::chain(error) {
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

/// Returns a hint for common errors of the operating system.
fn hint(error: &(dyn Error + 'static)) -> Option<&'static str> {
    match causes::find::<io::Error>(error)?.kind() {
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
        let failure = Failure::new("the node cannot start", &Outer(taken));
        let (what, hint) = failure.message();
        assert_eq!(
            what,
            "the node cannot start: cannot listen on 127.0.0.1:9000: address in use"
        );
        assert!(hint.starts_with("another process listens there"));
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot listen on 127.0.0.1:9000: {0}\nhint: choose another port")]
    struct Hinting(#[source] io::Error);

    #[test]
    fn the_reason_stands_before_the_hint_and_both_once() {
        let taken = Hinting(io::Error::new(io::ErrorKind::AddrInUse, "address in use"));
        let failure = Failure::new("the node cannot start", &taken);
        let (what, hint) = failure.message();
        assert_eq!(
            what,
            "the node cannot start: cannot listen on 127.0.0.1:9000: address in use"
        );
        assert_eq!(hint, "choose another port");
    }

    #[test]
    fn a_reason_that_an_error_prints_itself_is_told_once() {
        let error = Repeating(io::Error::other("broken"));
        let failure = Failure::new("stop", &error);
        let (what, hint) = failure.message();
        assert_eq!((what, hint), ("stop: no store: broken", ""));
    }
}
