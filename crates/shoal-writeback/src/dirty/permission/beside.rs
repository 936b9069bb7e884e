//! Generates sibling names to ask the lake about.

use shoal_registry::session::new_id;

/// Longest last component of a key that file systems behind lakes accept, less room for the mark.
const PART_BYTES_MAX: usize = 200;

/// Returns an unused key that differs from `key` only in the middle of its last component, so that rules
/// about prefixes and suffixes apply to both.
pub fn beside(key: &[u8]) -> Vec<u8> {
    let mark = format!("-shoal-{}", new_id());
    let begin = key
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |slash| slash + 1);
    let part = &key[begin..];
    let dot = part.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0);
    let (stem, ending) = part.split_at(dot.unwrap_or(part.len()));
    let room = PART_BYTES_MAX.saturating_sub(ending.len());
    let mut end = stem.len();
    // A long stem is shortened, at a character boundary.
    if end > room {
        end = room.saturating_sub(mark.len());
        while end > 0 && stem[end] & 0xC0 == 0x80 {
            end -= 1;
        }
    }
    [&key[..begin], &stem[..end], mark.as_bytes(), ending].concat()
}

#[cfg(test)]
mod tests {
    use super::beside;

    #[test]
    fn a_key_beside_another_has_its_prefix_and_its_ending_and_is_new() {
        for (key, prefix, ending) in [
            ("tmp/k", "tmp/k-shoal-", ""),
            ("tmp/a.b/k", "tmp/a.b/k-shoal-", ""),
            ("tmp/k.tar.gz", "tmp/k.tar-shoal-", ".gz"),
            ("tmp/.hidden", "tmp/.hidden-shoal-", ""),
            ("tmp/folder/", "tmp/folder/-shoal-", ""),
            ("k", "k-shoal-", ""),
        ] {
            let (one, other) = (beside(key.as_bytes()), beside(key.as_bytes()));
            assert_ne!(one, other);
            let one = String::from_utf8(one).unwrap();
            assert!(one.starts_with(prefix) && one.ends_with(ending), "{one}");
        }
    }

    #[test]
    fn a_key_beside_a_long_one_is_no_longer_and_still_text() {
        for key in [
            "x".repeat(1024),
            "é".repeat(512),
            format!("{}.é", "é".repeat(500)),
        ] {
            let found = String::from_utf8(beside(key.as_bytes())).unwrap();
            assert!(found.len() <= key.len(), "{found}");
            assert!(found.starts_with(&key[..100]), "{found}");
        }
    }
}
