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
    for said in chain(error).map(ToString::to_string) {
        // Some errors repeat their causes.
        if line.is_empty() {
            line = said;
        } else if !line.ends_with(&said) {
            line = format!("{line}: {said}");
        }
    }
    line
}
