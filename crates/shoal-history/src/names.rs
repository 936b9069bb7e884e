//! Normalizes names of jobs that differ only in a date, a number or an id.

use std::collections::BTreeSet;

/// The part of a name that is replaced by a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Dates, ids and long numbers, which no scheduler assigns twice.
    Ids,
    /// All numbers.
    Numbers,
}

/// Minimum length of digits that are a date, a time or an id and not the number of a job.
const LONG_DIGITS: usize = 5;
/// Minimum length of mixed letters and digits that are an id and not a word.
const ID_LENGTH: usize = 16;

/// Replaces dates, ids and numbers in a name by `*`.
///
/// `report_2026-11-20` and `report_2026-11-21` become the same name with either detail; `etl-1` and `etl-2`
/// only with [`Detail::Numbers`].
pub(crate) fn normalized(name: &str, detail: Detail) -> String {
    replaced(name, |rest, before| {
        let length = detail_length(rest, before.chars().last()).or_else(|| match detail {
            Detail::Numbers => Some(digits(rest)).filter(|&length| length > 0),
            Detail::Ids => None,
        })?;
        // One `*` for `2026-11-20` and an id or number that follows it directly.
        Some((length, if before.ends_with('*') { "" } else { "*" }))
    })
}

/// Copies a text and replaces the parts that `find` finds. `find` gets the rest of the text and the output so
/// far, and returns the length of a part at the start of the rest, and its replacement.
pub(crate) fn replaced(text: &str, find: impl Fn(&str, &str) -> Option<(usize, &'static str)>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let length = if let Some((length, replacement)) = find(rest, &out) {
            out.push_str(replacement);
            length
        } else {
            out.push(character);
            character.len_utf8()
        };
        rest = &rest[length..];
    }
    out
}

/// Returns where the identity that signed a job's requests starts: a name is an identity, or ends with ` by `
/// and an identity. Returns the length of the name if it contains none of `identities`.
pub(crate) fn identity_start(name: &str, identities: &BTreeSet<String>) -> usize {
    let after_agent = name.rsplit_once(" by ").map(|(_, identity)| identity);
    let identity = [Some(name), after_agent]
        .into_iter()
        .flatten()
        .find(|identity| identities.contains(*identity));
    name.len() - identity.map_or(0, str::len)
}

/// Returns true if an identity outlives a session: temporary AWS keys and role sessions have new names every
/// time.
pub(crate) fn is_lasting(identity: &str) -> bool {
    !identity.starts_with("ASIA") && !identity.contains(":sts:")
}

/// Returns the length of a date, an id or a long number at the start of `text`, which follows `before`.
fn detail_length(text: &str, before: Option<char>) -> Option<usize> {
    let starts_word = before.is_none_or(|before| !before.is_ascii_alphanumeric());
    if let Some(length) = starts_word.then(|| id_length(text)).flatten() {
        return Some(length);
    }
    let count = digits(text);
    if count == 0 || before.is_some_and(|before| before.is_ascii_digit()) {
        return None;
    }
    date_length(text, count).or((count >= LONG_DIGITS).then_some(count))
}

/// Returns the length of the id that a text starts with: a UUID, or a word that is an id.
pub(crate) fn id_length(text: &str) -> Option<usize> {
    uuid_length(text).or_else(|| {
        let word = text.bytes().position(|byte| !byte.is_ascii_alphanumeric());
        let word = &text[..word.unwrap_or(text.len())];
        is_id(word).then_some(word.len())
    })
}

/// Matches `2026-11-20` or `2026_11_20`, optionally followed by `T02:00:00` or `-02`.
fn date_length(text: &str, count: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    if count != 4 || !(text.starts_with("19") || text.starts_with("20")) {
        return None;
    }
    let mut end = 4;
    while bytes.get(end).is_some_and(|byte| b"-_/.:T".contains(byte))
        && (1..=2).contains(&digits(&text[end + 1..]))
    {
        end += 1 + digits(&text[end + 1..]);
    }
    (end > 4).then_some(end)
}

fn uuid_length(text: &str) -> Option<usize> {
    let uuid = text.get(..36)?;
    let is_digit = |character: char| character == '-' || character.is_ascii_hexdigit();
    let groups = uuid.split('-').map(str::len);
    (groups.eq([8, 4, 4, 4, 12]) && uuid.chars().all(is_digit)).then_some(uuid.len())
}

/// Returns true if a word is an id: long, with mixed letters and digits, like hashes and ULIDs.
fn is_id(word: &str) -> bool {
    let count = word.bytes().filter(u8::is_ascii_digit).count();
    let all_hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    word.len() >= ID_LENGTH && count >= 3 && (all_hex || count < word.len())
        || word.len() >= 8 && all_hex && (2..word.len()).contains(&count)
}

/// Returns the number of digits at the start of a text.
pub(crate) fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use super::{Detail, is_id, normalized};

    #[test]
    fn dates_and_ids_in_names_are_replaced() {
        for (name, ids) in [
            ("report_2026-11-20", "report_*"),
            ("report_2026-11-20T02:00:00", "report_*"),
            ("report-20261120", "report-*"),
            ("load 2026_11_20 eu", "load * eu"),
            ("q-6755fb52-69af-4a3a-a4d7-30aabdb4ffa9", "q-*"),
            ("q_9f86d081884c7d659a2feaa0c55ad015", "q_*"),
            ("application_1795197460857_0001", "application_*_0001"),
            ("etl-job-1", "etl-job-1"),
            ("step10of12", "step10of12"),
            ("tpc-h q17", "tpc-h q17"),
            ("\u{e9}tl 2026", "\u{e9}tl 2026"),
            ("", ""),
        ] {
            assert_eq!(normalized(name, Detail::Ids), ids, "{name}");
        }
    }

    #[test]
    fn all_numbers_are_replaced_on_demand() {
        assert_eq!(normalized("etl-job-1", Detail::Numbers), "etl-job-*");
        assert_eq!(normalized("step10of12", Detail::Numbers), "step*of*");
    }

    #[test]
    fn words_are_no_ids() {
        for word in [
            "aggregate",
            "customer_dimension",
            "feedface",
            "deadbeef",
            "internationalization",
        ] {
            assert!(!is_id(word), "{word}");
        }
        for id in ["6755fb52", "01JD3ZQ8X5N2V7K4M9T6R1W8YB", "9f86d081884c7d65"] {
            assert!(is_id(id), "{id}");
        }
    }
}
