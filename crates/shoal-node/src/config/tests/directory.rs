//! Refused settings of the directory.

use super::Desk;

#[test]
fn a_directory_that_could_not_work_is_refused() {
    let cases = [
        (
            "timeout = \"0s\"",
            "timeout is too short or too long | write a time from 1ms to 1s; a reader waits for it at each block that is not here",
        ),
        (
            "timeout = \"2s\"",
            "timeout is too short or too long | write a time from 1ms to 1s; a reader waits for it at each block that is not here",
        ),
        (
            "prefix = \"a{b}\"",
            "prefix is not a prefix of keys | use letters, digits and . - _",
        ),
        (
            "url = \"redis://shoal@a\"",
            "url cannot be used: the user of Redis has no password | write password_file as well",
        ),
        (
            "url = \"localhost:6379\"",
            "url cannot be used: `localhost:6379` is not a URL of Redis | write redis://HOST:PORT, redis-cluster://HOST:PORT,... or redis-sentinel://HOST:PORT,.../NAME, with rediss for TLS",
        ),
        (
            "url = \"redis://shoal:hunter2@a\"",
            "url cannot be used: the URL of Redis holds a password | write it into a file, and the path of that as password_file",
        ),
    ];
    for (line, expected) in cases {
        let expected = format!("shoal.toml:2: [directory] {expected}");
        assert_eq!(
            Desk::new().file(&format!("[directory]\n{line}")).problems(),
            [expected],
            "{line}"
        );
    }
}

#[test]
fn an_embedded_directory_is_refused_where_other_machines_have_nodes() {
    let file = |mode: &str, listen: &str| {
        format!(
            "[cooperation]\nmode = \"{mode}\"\nlisten = \"{listen}\"\nsecret_key = \"a secret of this cluster\""
        )
    };
    let refused = Desk::new().file(&file("directory", "10.0.0.1:9200")).problems();
    assert_eq!(
        refused,
        [
            "[directory] url is embedded, and nodes on other machines (10.0.0.1:9200) have others | write the URL of a Redis that all nodes reach, or [cooperation] mode = \"hierarchy\""
        ]
    );
    for (mode, listen) in [("directory", "127.0.0.1:9200"), ("hierarchy", "10.0.0.1:9200")] {
        Desk::new().file(&file(mode, listen)).config();
    }
}

#[test]
fn coherent_objects_are_refused_where_no_directory_knows_their_changes() {
    let file = |mode: &str| {
        format!(
            "[freshness]\ndefault = \"coherent\"\n[[freshness.rule]]\nprefix = \"s3://b/\"\nfreshness = \"coherent\"\n[cooperation]\nmode = \"{mode}\""
        )
    };
    let refused = "freshness \"coherent\" needs a directory | write a time such as \"10s\", or [cooperation] mode = \"directory\"";
    assert_eq!(
        Desk::new().file(&file("hierarchy")).problems(),
        [
            format!("shoal.toml:2: {refused}"),
            format!("shoal.toml:5: {refused}")
        ]
    );
    let with_one = file("directory") + "\nsecret_key = \"a secret of this cluster\"";
    Desk::new().file(&with_one).config();
}

#[test]
fn gwf_is_refused_where_no_directory_says_what_others_have() {
    for policy in ["gwf", "c2p+gwf"] {
        let file = |mode: &str| format!("[store]\npolicy = \"{policy}\"\n[cooperation]\nmode = \"{mode}\"");
        assert_eq!(
            Desk::new().file(&file("solo")).problems(),
            [
                "shoal.toml:2: [store] policy needs a directory | write duel, or [cooperation] mode = \"directory\""
            ]
        );
        let with_one = file("directory") + "\nsecret_key = \"a secret of this cluster\"";
        Desk::new().file(&with_one).config();
    }
}
