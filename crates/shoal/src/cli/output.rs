//! Output: data on stdout, messages on stderr, colour only on a terminal.
//!
//! Names and texts of nodes, clients and files are untrusted. Control characters in them are escaped
//! ([`terminal`]); only this module adds any.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use serde_json::json;
pub(super) use shoal_base::amount::counted;
use shoal_base::terminal;

/// The severity of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tone {
    /// The command failed.
    Error,
    /// The command worked, with a caveat.
    Warning,
    /// Additional information.
    Note,
}

/// Writes `error: what` and `hint: what to do` to stderr.
pub(super) fn print_message(tone: Tone, what: &str, hint: Option<&str>) {
    let (word, colour) = match tone {
        Tone::Error => ("error", "31"),
        Tone::Warning => ("warning", "33"),
        Tone::Note => ("note", "36"),
    };
    let hint = hint
        .map(|hint| format!("{} {}\n", label("hint", "36"), terminal::lines(hint)))
        .unwrap_or_default();
    let text = format!("{} {}\n{hint}", label(word, colour), terminal::lines(what));
    // If stderr is gone, there is no reader to inform.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes data to stdout. A reader that stops early (`| head`) is not a failure.
pub(super) fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let text = terminal::lines(text);
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Writes a result to stdout: as JSON, or as text for people.
pub(super) fn print_result(as_json: bool, result: &impl Serialize, text: impl FnOnce() -> String) {
    print(&if as_json {
        format!("{:#}\n", json!(result))
    } else {
        text()
    });
}

/// Formats a result as JSON, its fields in the order of its type.
pub(super) fn pretty(result: &impl Serialize) -> String {
    serde_json::to_string_pretty(result).expect("numbers and names are JSON") + "\n"
}

/// Writes a message to stderr.
pub(super) fn talk(text: &str) {
    // If stderr is gone, there is no reader to inform.
    let _ = io::stderr().write_all(terminal::lines(text).as_bytes());
}

/// Overwrites the last line of a terminal. A bar in brackets is coloured if the user wants colour.
pub(super) fn overwrite(line: &str) {
    let line = terminal::line(line);
    let line = match (colour_on_stderr(), line.find('['), line.find(']')) {
        (true, Some(from), Some(to)) if from < to => {
            let (before, bar, after) = (&line[..=from], &line[from + 1..to], &line[to..]);
            format!("{before}\x1b[32m{bar}\x1b[0m{after}").into()
        }
        _ => line,
    };
    let _ = io::stderr().write_all(format!("\r\x1b[K{line}").as_bytes());
}

/// Formats a size for people, with three digits.
pub(super) fn bytes(bytes: u64) -> String {
    let (size, unit) = scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
    let decimals = usize::from(unit != "B" && size < 99.95);
    format!("{size:.decimals$} {unit}")
}

/// Returns an amount in one of these units, each `factor` times the previous one. An amount that would round
/// to `factor` is in the next unit.
pub(super) fn scaled<'u>(mut amount: f64, factor: f64, units: &[&'u str]) -> (f64, &'u str) {
    let mut unit = 0;
    while amount >= factor - 0.5 && unit + 1 < units.len() {
        amount /= factor;
        unit += 1;
    }
    (amount, units[unit])
}

/// Formats the counts that are not zero, each with its word.
pub(super) fn some_of<'a>(counts: &'a [(u64, &'a str)]) -> impl Iterator<Item = String> + 'a {
    let some = counts.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, word)| format!("{count} {word}"))
}

/// Returns true if stderr is a terminal and the user wants colour.
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

#[cfg(test)]
mod tests {
    use super::{bytes, counted};

    #[test]
    fn one_is_no_plural() {
        assert_eq!(counted(1_u64, "block"), "1 block");
        assert_eq!(counted(0_u64, "block"), "0 blocks");
        assert_eq!(counted(2_usize, "node"), "2 nodes");
    }

    #[test]
    fn sizes_are_told_in_three_digits() {
        let cases = [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (10_188, "9.9 KiB"),
            (102_400, "100 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (5 << 40, "5.0 TiB"),
            (u64::MAX, "16384 PiB"),
        ];
        for (size, expected) in cases {
            assert_eq!(bytes(size), expected);
        }
    }
}
