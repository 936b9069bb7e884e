//! Errors and their causes.

use std::error::Error;
use std::io;

/// Returns an error, its cause, the cause of that, and so on.
pub fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // An I/O error that wraps another error hides it: its source is the other error's source.
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped as _),
            None => error.source(),
        }
    })
}

/// Returns the first error of type `E` in the chain of an error.
pub fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// Returns an error and all its causes, in one line.
pub fn line(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    for text in chain(error).map(ToString::to_string) {
        // Some errors repeat their causes.
        if line.is_empty() {
            line = text;
        } else if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{find, line};

    #[test]
    fn a_cause_that_an_error_names_is_not_repeated() {
        #[derive(Debug, thiserror::Error)]
        #[error("it failed: {0}")]
        struct Outer(#[source] io::Error);
        let error = Outer(io::Error::from_raw_os_error(111));
        assert_eq!(line(&error), "it failed: Connection refused (os error 111)");
    }

    #[test]
    fn an_error_within_an_error_of_the_system_is_found() {
        let error = io::Error::other(io::Error::from_raw_os_error(13));
        let kinds = |error| find::<io::Error>(error).map(io::Error::kind);
        assert_eq!(kinds(&error), Some(io::ErrorKind::Other));
        assert_eq!(line(&error), "Permission denied (os error 13)");
    }
}
