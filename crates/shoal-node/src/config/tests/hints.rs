//! `[hints]` and its lists.

use super::Desk;

const IDENTITIES: &str = "[[identity]]\naccess_key = \"AK\"\nsecret_key = \"secret\"\n\
    [[identity]]\naccess_key = \"BK\"\nsecret_key = \"secret\"\n";

#[test]
fn the_longest_rule_that_fits_is_that_of_a_namespace() {
    let text = format!(
        "[[hints.rule]]\nnamespace = \"*\"\nidentity = \"AK\"\n\
         [[hints.rule]]\nnamespace = \"etl-*\"\nidentity = \"BK\"\n{IDENTITIES}"
    );
    let hints = Desk::new().file(&text).config().hints;
    let identity = |namespace| {
        hints
            .rule_for(namespace)
            .and_then(|rule| rule.identity.as_deref())
    };
    assert_eq!(identity("etl-nightly"), Some("BK"));
    assert_eq!(identity("etl"), Some("AK"));
    let none = Desk::new().config().hints;
    assert!(none.rule_for("etl").is_none(), "without a rule nothing is taken");
}

#[test]
fn what_cannot_be_meant_is_refused_with_a_hint() {
    for (text, problem) in [
        ("[hints]\nroom = 51", "[hints] room is not between 1 and 50"),
        ("[hints]\nlink = 0", "[hints] link is not between 1 and 100"),
        ("[hints]\nkeep = \"8d\"", "[hints] keep is not between 1m and 7d"),
        (
            "[hints]\ntoken_file = \"/nowhere\"",
            "[hints] token_file cannot be read",
        ),
        (
            "[[hints.rule]]\nidentity = \"AK\"",
            "[[hints.rule]] has no namespace",
        ),
        (
            "[[hints.rule]]\nnamespace = \"a\"\nidentity = \"AX\"",
            "is \"AX\", which is the access_key of no [[identity]] | add its [[identity]], or leave it out",
        ),
        (
            "[[hints.rule]]\nnamespace = \"a\"",
            "identity is not there, and there are 2",
        ),
        (
            "[[hints.rule]]\nnamespace = \"a\"\nidentity = \"AK\"\n\
             [[hints.rule]]\nnamespace = \"a\"\nidentity = \"BK\"",
            "\"a\" is written twice",
        ),
        (
            "[[hints.table]]\nnames = \"\"\nlocation = \"s3://b/\"",
            "[[hints.table]] names cannot be \"\" | write a text in quotes",
        ),
        (
            "[[hints.table]]\nnames = \"trino://t/\"\nlocation = \"b\"",
            "location cannot be \"b\": it does not begin with s3://",
        ),
    ] {
        let problems = Desk::new().file(&format!("{text}\n{IDENTITIES}")).problems();
        assert!(
            problems.iter().any(|found| found.contains(problem)),
            "{text}: {problems:#?}"
        );
    }
}
