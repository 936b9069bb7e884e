//! How a verb fails: the failed action, its object, and advice.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use shoal_node::config::{ConfigError, Problem};

use super::output::{Tone, tell};

/// The reason why a verb failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The configuration does not allow the action.
    Refused(ConfigError),
    /// The command line does not allow the action.
    Misused { what: String, hint: String },
    /// The user has ended the command; what it has ordered goes on.
    Interrupted { what: String, hint: String },
    /// The environment does not allow the action.
    Failed { what: String, hint: Option<String> },
}

impl Failure {
    /// Creates a failure of `what` for the reason that `error` and its sources give.
    pub(super) fn new(what: &str, error: &(dyn Error + 'static)) -> Self {
        let (why, told) = chain(error);
        Self::Failed {
            what: format!("{what}: {why}"),
            hint: told.or_else(|| hint(error).map(Into::into)),
        }
    }

    /// The same failure with this hint.
    pub(super) fn hinting(self, hint: &str) -> Self {
        match self {
            Self::Failed { what, .. } => Self::Failed {
                what,
                hint: Some(hint.into()),
            },
            refused => refused,
        }
    }

    /// The same failure, with this hint if it has none.
    pub(super) fn or_hinting(self, hint: &str) -> Self {
        match self {
            Self::Failed { hint: None, .. } => self.hinting(hint),
            hinting => hinting,
        }
    }

    /// Reports the failure on stderr, for people and scripts.
    pub(super) fn tell(&self) {
        match self {
            Self::Refused(error) => error
                .problems
                .iter()
                .for_each(|problem| tell_problem(Tone::Error, problem)),
            Self::Misused { what, hint } => tell(Tone::Error, what, Some(hint)),
            Self::Interrupted { what, hint } => tell(Tone::Note, what, Some(hint)),
            Self::Failed { what, hint } => tell(Tone::Error, what, hint.as_deref()),
        }
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Failed { .. } => ExitCode::from(1),
            // The code that clap uses for arguments it refuses.
            Self::Refused(_) | Self::Misused { .. } => ExitCode::from(2),
            // 128 and the number of SIGINT, as shells count it.
            Self::Interrupted { .. } => ExitCode::from(130),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Refused(error)
    }
}

/// Reports one problem of a configuration on stderr.
pub(super) fn tell_problem(tone: Tone, problem: &Problem) {
    tell(tone, &problem.to_string(), problem.hint.as_deref());
}

/// Joins the error and its sources, without the repetitions of errors that print their source themselves.
/// Also returns the first hint that one of them carries.
fn chain(error: &(dyn Error + 'static)) -> (String, Option<String>) {
    let (mut why, mut hint) = (String::new(), None);
    for error in sources(error) {
        let text = error.to_string();
        let (text, told) = match text.split_once(HINT) {
            Some((text, told)) => (text, Some(told.to_owned())),
            None => (text.as_str(), None),
        };
        hint = hint.or(told);
        if why.is_empty() {
            why.push_str(text);
        } else if !why.ends_with(text) {
            why = format!("{why}: {text}");
        }
    }
    (why, hint)
}

/// Separates the text of an error from its hint, if it carries one.
const HINT: &str = "\nhint: ";

fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The hint for the most common errors of the operating system.
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
