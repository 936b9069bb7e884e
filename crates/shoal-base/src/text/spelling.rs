//! Suggests the known name for a misspelled one.

/// The minimum similarity, from 0 to 1, for a suggestion.
const LIKENESS_MIN: f64 = 0.8;

/// Returns the message that `given` is no `kind`, with the name that was probably meant.
pub fn unknown<'a>(kind: &str, given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.into_iter().collect();
    let meant = suggestion(given, known.iter().copied())
        .map(|name| format!("did you mean `{name}`? "))
        .unwrap_or_default();
    format!(
        "unknown {kind} `{given}`\nhint: {meant}known: {}",
        known.join(", ")
    )
}

/// Returns the known name most similar to `given`, if any is similar.
pub fn suggestion<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&given, name), name))
        .filter(|(likeness, _)| *likeness > LIKENESS_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::{suggestion, unknown};

    #[test]
    fn the_most_similar_name_is_suggested() {
        let known = ["capacity", "block_size", "path"];
        assert_eq!(suggestion("capcity", known), Some("capacity"));
        assert_eq!(suggestion("Capacity", known), Some("capacity"));
        assert_eq!(suggestion("blocksize", known), Some("block_size"));
        assert_eq!(suggestion("block-size", known), Some("block_size"));
    }

    #[test]
    fn a_name_like_no_other_has_no_suggestion() {
        assert_eq!(
            suggestion("compression", ["capacity", "block_size", "path"]),
            None
        );
        assert_eq!(suggestion("zzz", ["capacity"]), None);
    }

    #[test]
    fn an_unknown_name_is_reported_with_the_one_that_was_probably_meant() {
        let message = unknown("policy", "lruu", ["lru", "lfu"]);
        assert_eq!(
            message,
            "unknown policy `lruu`\nhint: did you mean `lru`? known: lru, lfu"
        );
    }
}
