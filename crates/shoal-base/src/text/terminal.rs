//! Escapes untrusted text for display on a terminal.
//!
//! Names of objects, nodes and jobs, answers of servers and lines of logs may contain characters that control
//! a terminal or reorder the text around them. Each is replaced by its escape in the syntax of JSON and TOML,
//! which does not change the meaning of a document in either.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns the text in one line: each control character and each character that changes the text direction is
/// replaced by its escape, such as `\u001b`.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_harmful)
}

/// As [`line()`], but keeps line feeds and tabs.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| !matches!(c, '\n' | '\t') && is_harmful(c))
}

/// Formats a table with columns as wide as their widest cell. Each cell becomes one line.
pub fn table<const N: usize>(rows: impl IntoIterator<Item = [String; N]>) -> String {
    let shown = |row: [String; N]| row.map(|cell| line(&cell).into_owned());
    let rows: Vec<_> = rows.into_iter().map(shown).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths);
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !is_escaped(c) => shown.push(c),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(shown, "\\u{unit:04x}");
                }
            }
        }
    }
    Cow::Owned(shown)
}

/// Returns true if a terminal may do something else with a character than display it: C0, DEL and C1
/// controls, line and paragraph separators, marks, embeddings, overrides and isolates of direction, and tags,
/// which are not visible.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{061c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::{line, lines, table};

    #[test]
    fn a_table_has_one_line_a_row_and_columns_of_one_width() {
        let rows = [["a\nb", "x"], ["ä", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(table(rows), "a\\nb  x\nä\n");
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_its_escape() {
        for (text, shown) in [
            ("etl\u{9b}31m", "etl\\u009b31m"),
            ("a\x1b[2Jb", "a\\u001b[2Jb"),
            ("a\r\nb\tc\x7f", "a\\r\\nb\\tc\\u007f"),
            ("safe\u{202e}gnp.exe", "safe\\u202egnp.exe"),
            (
                "\u{2066}x\u{2069}\u{200f}\u{61c}",
                "\\u2066x\\u2069\\u200f\\u061c",
            ),
            ("a\u{2028}b\u{feff}\u{e0041}", "a\\u2028b\\ufeff\\udb40\\udc41"),
        ] {
            assert_eq!(line(text), shown);
        }
        assert_eq!(lines("a\n\tb\x1b"), "a\n\tb\\u001b");
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for text in ["", "träum weiter/日本語 🐟.parquet", "a\\nb", "שלום"] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text));
        }
    }
}
