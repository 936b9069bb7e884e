//! Any line is parsed or refused with a reason, in each format.

use proptest::prelude::{any, proptest};
use proptest::strategy::Strategy;
use shoal_logs::{Mismatch, node, s3_server, swim};

/// Lines of each format, which are then damaged.
const LINES: [&str; 3] = [
    r#"{"time":"2023-11-14T22:13:20.000Z","peer":"10.0.0.1:4000","operation":"get_object","bucket":"data","key":"a\"b","status":206,"bytes":4096,"duration_ms":1.5,"target":"shoal::access"}"#,
    "79a5 bucket [06/Feb/2019:00:00:39 +0000] 192.0.2.3 79a5 A1 REST.GET.OBJECT a%2Bb \"GET /b/a+b HTTP/1.1\" 206 - 100 4406 28 20 \"-\" \"curl\" -",
    "job0\t1\t1\t2267942\t0\t1937944\tinputPath1\t\t",
];

fn read_by_all(line: &str) {
    let reason = |mismatch: Mismatch| assert!(!mismatch.found.is_empty() && !mismatch.expected.is_empty());
    let _ = node::request(line).map_err(reason);
    let _ = s3_server::request(line).map_err(reason);
    let _ = swim::job(line).map_err(reason);
}

fn damaged() -> impl Strategy<Value = String> {
    (
        0..LINES.len(),
        any::<proptest::sample::Index>(),
        any::<char>(),
        any::<bool>(),
    )
        .prop_map(|(line, at, character, cut)| {
            let mut characters: Vec<char> = LINES[line].chars().collect();
            let at = at.index(characters.len());
            characters[at] = character;
            if cut {
                characters.truncate(at);
            }
            characters.into_iter().collect()
        })
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(line in ".*") {
        read_by_all(&line);
    }

    #[test]
    fn any_damaged_line_is_parsed_or_refused(line in damaged()) {
        read_by_all(&line);
    }
}
