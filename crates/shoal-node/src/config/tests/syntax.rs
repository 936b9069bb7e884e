//! Files that are not valid TOML.

use super::Desk;

fn problems_of(file: &str) -> Vec<String> {
    Desk::new().file(file).problems()
}

#[test]
fn a_file_that_is_not_toml_is_refused_with_the_line() {
    let problems = problems_of("[store]\ncapacity = 1GiB\n");
    assert!(
        problems[0].starts_with("shoal.toml:2: this is not TOML: "),
        "{problems:?}"
    );
    let twice = problems_of("[node]\nname = \"a\"\nname = \"b\"\n");
    assert!(
        twice[0].starts_with("shoal.toml:3: this is not TOML: duplicate key"),
        "{twice:?}"
    );
    assert!(
        problems[0].contains(" | sections stand in [brackets]"),
        "{problems:?}"
    );
    for twice in [twice, problems_of("[node]\n[store]\n[node]\n")] {
        assert!(
            twice[0].contains(" | write each section and each key once"),
            "{twice:?}"
        );
    }
}
