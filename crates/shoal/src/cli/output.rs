//! Data on stdout, talk on stderr, colour only where a person sees it.

use std::io::{self, IsTerminal, Write};

/// What kind of talk a line is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tone {
    /// It did not work.
    Error,
    /// It works, but.
    Warning,
}

/// Writes `error: what` and `hint: what to do` to stderr.
pub(super) fn tell(tone: Tone, what: &str, hint: Option<&str>) {
    let (word, colour) = match tone {
        Tone::Error => ("error", "31"),
        Tone::Warning => ("warning", "33"),
    };
    let hint = hint
        .map(|hint| format!("{} {hint}\n", label("hint", "36")))
        .unwrap_or_default();
    let text = format!("{} {what}\n{hint}", label(word, colour));
    // When stderr is gone nobody is left to tell.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes data to stdout. A reader that stops reading (`| head`) is no failure.
pub(super) fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Whether stderr is a terminal whose owner wants colour.
pub(super) fn colour_on_stderr() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !refused
}

fn label(word: &str, colour: &str) -> String {
    if colour_on_stderr() {
        format!("\x1b[1;{colour}m{word}:\x1b[0m")
    } else {
        format!("{word}:")
    }
}
