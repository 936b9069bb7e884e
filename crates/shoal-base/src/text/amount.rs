//! Formats sizes and counts for human readers.

const UNITS: [(&str, f64); 5] = [
    ("TiB", (1_u64 << 40) as f64),
    ("GiB", (1_u64 << 30) as f64),
    ("MiB", (1_u64 << 20) as f64),
    ("KiB", 1024.0),
    ("B", 1.0),
];

/// Formats a size with three significant digits and a binary unit.
pub fn human_bytes(bytes: u64) -> String {
    let (name, scale) = UNITS
        .into_iter()
        .find(|(_, scale)| bytes as f64 >= *scale)
        .unwrap_or(("B", 1.0));
    let count = bytes as f64 / scale;
    let digits = if name == "B" || count >= 100.0 {
        0
    } else if count >= 10.0 {
        1
    } else {
        2
    };
    format!("{count:.digits$} {name}")
}

/// Formats a size that was computed. A negative one counts as 0.
#[expect(clippy::cast_sign_loss, reason = "a negative size becomes 0")]
pub fn human_amount(bytes: f64) -> String {
    human_bytes(bytes.round() as u64)
}

/// Formats a count with its noun: `1 block`, `2 blocks`.
pub fn counted(count: impl TryInto<u64>, thing: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

#[cfg(test)]
mod tests {
    use super::{counted, human_bytes};

    #[test]
    fn one_thing_is_no_plural() {
        assert_eq!(
            [0_u64, 1, 2].map(|count| counted(count, "block")),
            ["0 blocks", "1 block", "2 blocks"]
        );
    }

    #[test]
    fn bytes_are_told_with_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.50 KiB"),
            (20 << 30, "20.0 GiB"),
            (345 << 40, "345 TiB"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
    }
}
