//! `[sts]`: what a node that gets temporary keys for clients needs.

use super::Desk;

const SECRET: &str = "[cooperation]\nsecret_key = \"a secret of this cluster\"\n";

/// The only problem of a file, which must begin so.
fn refuses(file: &str, expected: &str) {
    let problems = Desk::new().file(file).problems();
    assert_eq!(problems.len(), 1, "{file}\n{problems:?}");
    assert!(problems[0].starts_with(expected), "{file}\n{}", problems[0]);
}

#[test]
fn roles_need_a_secret_of_the_cluster_and_a_port_of_their_own_and_tls_where_others_reach_it() {
    let with = |line: &str| format!("{SECRET}[sts]\nroles = [\"arn:aws:iam::1:role/*\"]\n{line}");
    refuses(
        "[sts]\nroles = [\"*\"]",
        "shoal.toml:2: [sts] roles need [cooperation] secret_key_file | temporary keys are sealed under it",
    );
    refuses(
        &with("listen = \"0.0.0.0:9443\""),
        "[sts] tls_cert is not set, and others than this machine reach 0.0.0.0:9443 | add tls_cert and tls_key",
    );
    refuses(
        &with("listen = \"127.0.0.1:9000\""),
        "shoal.toml:5: [sts] listen (127.0.0.1:9000) collides with [s3] listen",
    );
    refuses(
        &with("endpoint = \"https://sts.example.com/path\""),
        "shoal.toml:5: [sts] endpoint",
    );
    refuses(
        &with("tls_cert = \"/dev/null\""),
        "shoal.toml:5: [sts] tls_cert has no key",
    );
    let without_role = format!("{SECRET}[sts]\nroles = [\"\"]");
    assert!(
        Desk::new().file(&without_role).config().sts.is_on(),
        "keys without a role"
    );
    let config = Desk::new().file(&with("")).config();
    assert!(config.sts.is_on());
    assert_eq!(config.sts.endpoint, None, "the lake itself");
}

#[test]
fn without_roles_the_section_may_say_anything_that_is_well_formed() {
    let file = "[sts]\nlisten = \"0.0.0.0:9000\"\nendpoint = \"https://sts.example.com\"";
    assert!(!Desk::new().file(file).config().sts.is_on());
}

#[test]
fn rules_name_roles_as_readers_and_an_identity_that_flushes_for_those_that_are_gone() {
    let tier = "[[tier]]\nname = \"a\"\nfolder = \"/tier\"\ncapacity = \"100GiB\"\n";
    let identity = "[[identity]]\naccess_key = \"etl\"\nsecret_key = \"s\"\n";
    let rule = |line: &str| {
        format!(
            "{SECRET}[sts]\nroles = [\"*\"]\n{tier}{identity}[[write.rule]]\nprefix = \"s3://b/\"\nmode = \"back\"\n{line}"
        )
    };
    let config = Desk::new().file(&rule(
        "readers = [\"arn:aws:iam::1:role/x\", \"etl\"]\nflush_as = \"etl\"",
    ));
    assert_eq!(config.config().write.rules[0].flush_as.as_deref(), Some("etl"));
    refuses(
        &rule("flush_as = \"etll\""),
        "shoal.toml:15: [[write.rule]] flush_as names \"etll\", which is the access_key of no [[identity]] | did you mean \"etl\"?",
    );
    let without_sts = rule("readers = [\"arn:aws:iam::1:role/x\"]").replace("roles = [\"*\"]\n", "");
    refuses(
        &without_sts,
        "shoal.toml:14: [[write.rule]] readers names \"arn:aws:iam::1:role/x\"",
    );
    refuses(
        &rule("flush_as = \"etl\"").replace("mode = \"back\"", "mode = \"through\""),
        "shoal.toml:15: [[write.rule]] flush_as stands beside mode = \"through\"",
    );
}
