//! What the configuration alone gives away.

use super::Process;
use crate::commands::shoal;

#[test]
fn a_node_without_identities_warns_that_it_refuses_every_signed_request() {
    let node = Process::start("");
    node.logs(&[
        "WARN",
        "no [[identity]]: this node refuses every signed request",
        "hint=\"add an [[identity]]",
    ]);
    node.addresses();
    node.stop();
}

#[test]
fn a_node_that_writes_back_warns_that_it_can_lose_data() {
    let node = Process::start(
        "[write]\nallow_volatile = true\n[[write.rule]]\nprefix = \"s3://b/\"\nmode = \"back\"\n\
         [[identity]]\naccess_key = \"A\"\nsecret_key = \"s\"",
    );
    node.addresses();
    node.logs(&[
        "WARN",
        "is an experiment: it can lose acknowledged objects",
        "do not use it for data you need",
    ]);
    assert_eq!(node.count("is an experiment"), 1);
    assert_eq!(node.count("no [[identity]]"), 0);
    node.stop();
}

#[test]
fn a_cooperating_node_on_loopback_without_seeds_warns_that_it_stays_alone() {
    let node = Process::start("[cooperation]\nmode = \"hierarchy\"\nlisten = \"127.0.0.1:0\"");
    node.logs(&[
        "WARN",
        "seeds is empty: this node finds no other node",
        "hint=\"write host:port",
    ]);
    node.logs(&["WARN", "is on loopback: no node on another machine"]);
    node.addresses();
    node.stop();
}

#[test]
fn check_tells_without_a_start_what_the_configuration_gives_away() {
    let variables = [
        ("SHOAL_COOPERATION_MODE", "hierarchy"),
        ("SHOAL_WRITE_ALLOW_VOLATILE", "true"),
    ];
    let checked = shoal(&["serve", "--check"]).envs(variables).output().unwrap();
    assert_eq!(checked.status.code(), Some(0));
    let told = String::from_utf8(checked.stderr).unwrap();
    for warning in [
        "warning: there is no [[identity]]: this node refuses every signed request\nhint: add",
        "warning: SHOAL_COOPERATION_MODE: [cooperation] seeds is empty",
        "warning: SHOAL_WRITE_ALLOW_VOLATILE: [write] allow_volatile is an experiment: it can lose",
    ] {
        assert!(told.contains(warning), "{warning} in\n{told}");
    }
}
