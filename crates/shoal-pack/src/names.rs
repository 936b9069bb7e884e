//! The names of members: their keys, unless a program that unpacks would leave its folder or lose a member.

/// The folder of members whose keys cannot be names. No key below it is a name, so nothing clashes with them.
const RENAMED: &str = "_renamed";

/// The longest name that [`renamed`] returns.
pub(crate) const RENAMED_BYTES_MAX: usize = RENAMED.len() + "/00000-".len() + READABLE_BYTES_MAX;

/// The bytes of a key that a new name shows.
const READABLE_BYTES_MAX: usize = 100;

/// The bytes of a file's name that usual file systems accept.
const SEGMENT_BYTES_MAX: usize = 255;

/// A key that may become a name.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) key: &'a [u8],
    /// The object has no bytes, so a folder can stand for it.
    pub(crate) is_empty: bool,
}

/// Returns new names for those of `keys`, in order, that cannot be names.
///
/// Of two names that differ only in case, and of a file and a folder with one name, only one stays.
pub(crate) fn new_names(keys: &[Candidate<'_>]) -> Vec<Option<String>> {
    let plain = keys.iter().enumerate();
    let plain = plain.filter_map(|(number, key)| Some((folded(plain_name(*key)?), number)));
    let mut plain: Vec<_> = plain.collect();
    // A name is followed by all names below it.
    plain.sort_unstable();
    let mut names: Vec<_> = keys
        .iter()
        .enumerate()
        .map(|(number, key)| Some(renamed(number, key.key)))
        .collect();
    for (at, (name, number)) in plain.iter().enumerate() {
        let below = plain.get(at + 1).and_then(|(next, _)| next.strip_prefix(&**name));
        if below.is_none_or(|rest| !rest.is_empty() && !rest.starts_with('\0')) {
            names[*number] = None;
        }
    }
    names
}

/// Returns the name of member `number` if its key is no name: the number, and the end of the key in letters,
/// digits, dots, dashes and underscores.
pub(crate) fn renamed(number: usize, key: &[u8]) -> String {
    let end = &key[key.len().saturating_sub(READABLE_BYTES_MAX)..];
    let readable = end.iter().map(|byte| match byte {
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'.' | b'-' => char::from(*byte),
        _ => '_',
    });
    format!("{RENAMED}/{number:05}-{}", readable.collect::<String>())
}

/// Returns the key as text if programs that unpack create exactly this file, or this folder for an empty
/// object, below the folder that they unpack into.
pub(crate) fn plain_name(of: Candidate<'_>) -> Option<&str> {
    let name = std::str::from_utf8(of.key).ok()?;
    let path = name.strip_suffix('/').filter(|_| of.is_empty).unwrap_or(name);
    let is_segment = |segment: &str| {
        !segment.is_empty() && segment != "." && segment != ".." && segment.len() <= SEGMENT_BYTES_MAX
    };
    // Info-ZIP takes a backslash for a slash in packs that seem to come from Windows, and drops controls.
    let is_unsafe = |character: char| character == '\\' || character.is_control();
    // It also drops the versions of VMS, `;` and digits, from the end.
    let without_digits = name.trim_end_matches(|character: char| character.is_ascii_digit());
    let is_plain = path.split('/').all(is_segment)
        && !path.contains(is_unsafe)
        && !without_digits.ends_with(';')
        && !path.split('/').next()?.eq_ignore_ascii_case(RENAMED);
    is_plain.then_some(name)
}

/// Returns the name as file systems compare it that do not distinguish case. NUL, which no name has, stands
/// for the slash, so that nothing sorts between a folder and the files in it.
fn folded(name: &str) -> String {
    name.to_lowercase().replace('/', "\0")
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_set;
    use proptest::prelude::proptest;

    use super::{Candidate, RENAMED_BYTES_MAX, new_names, plain_name, renamed};

    fn plain_file(key: &[u8]) -> Option<&str> {
        plain_name(Candidate { key, is_empty: false })
    }

    fn plain_folder(key: &[u8]) -> Option<&str> {
        plain_name(Candidate { key, is_empty: true })
    }

    fn names(keys: &[&str]) -> Vec<String> {
        let candidates = keys.iter().map(|key| Candidate {
            key: key.as_bytes(),
            is_empty: key.ends_with('/'),
        });
        let renamed = new_names(&candidates.collect::<Vec<_>>());
        let names = renamed.into_iter().zip(keys);
        names
            .map(|(renamed, key)| renamed.unwrap_or_else(|| (*key).to_owned()))
            .collect()
    }

    #[test]
    fn keys_that_are_safe_paths_are_names() {
        for key in [
            "a",
            "a/b c.txt",
            "día/日本",
            "...",
            "a:b",
            "-r",
            "*?",
            ";1/a",
            "a;1b",
            "~",
            "_renamed2/a",
        ] {
            assert_eq!(plain_file(key.as_bytes()), Some(key));
        }
        assert_eq!(plain_folder(b"folder/"), Some("folder/"));
    }

    #[test]
    fn keys_that_leave_the_folder_or_lose_a_character_are_no_names() {
        let long = "x".repeat(256);
        let keys = [
            "/a",
            "//",
            "a//b",
            "../a",
            "a/../b",
            "a/..",
            "./a",
            "a/.",
            ".",
            "..",
            "a\\b",
            "a\0b",
            "a\nb",
            "\u{85}",
            "a;1",
            "a;",
            "b/a;12",
            "_renamed",
            "_Renamed/a",
            "folder/",
            &long,
        ];
        for key in keys {
            assert_eq!(plain_file(key.as_bytes()), None, "{key:?}");
        }
        assert_eq!(plain_file(b"caf\xe9"), None);
        for key in ["/", "a//", "_renamed/", "../"] {
            assert_eq!(plain_folder(key.as_bytes()), None, "{key:?}");
        }
    }

    #[test]
    fn a_new_name_is_safe_and_shows_the_end_of_the_key() {
        assert_eq!(renamed(7, b"../../etc/a;1 b"), "_renamed/00007-.._.._etc_a_1_b");
        let long = renamed(65_533, "é".repeat(512).as_bytes());
        assert_eq!(long.len(), RENAMED_BYTES_MAX);
    }

    #[test]
    fn of_names_that_clash_one_stays() {
        assert_eq!(names(&["A", "a", "b"]), ["_renamed/00000-A", "a", "b"]);
        assert_eq!(
            names(&["a", "a-b", "a/b", "a/c"]),
            ["_renamed/00000-a", "a-b", "a/b", "a/c"]
        );
        // The folder of one is the file of the other on some file systems.
        assert_eq!(
            names(&["A", "a", "a/b/c"]),
            ["_renamed/00000-A", "_renamed/00001-a", "a/b/c"]
        );
        assert_eq!(names(&["A/b", "a", "a/c"]), ["A/b", "_renamed/00001-a", "a/c"]);
        assert_eq!(names(&["a", "a/"]), ["_renamed/00000-a", "a/"]);
        assert_eq!(names(&["a/", "a/b"]), ["a/", "a/b"]);
        assert_eq!(names(&["ÄRA", "ära"]), ["_renamed/00000-__RA", "ära"]);
    }

    proptest! {
        #[test]
        fn no_name_is_that_of_another_member_or_of_its_folder(keys in btree_set("[aAb./]{1,5}/?", 0..40)) {
            let keys: Vec<_> = keys.iter().map(String::as_str).collect();
            let names: Vec<_> = names(&keys).iter().map(|name| name.to_lowercase()).collect();
            for (at, name) in names.iter().enumerate() {
                let others = names.iter().enumerate().filter(|(other, _)| *other != at);
                let below = format!("{name}/");
                for (_, other) in others {
                    assert!(other != name && !other.starts_with(&below), "{name:?} and {other:?}");
                }
            }
        }
    }
}
