//! Mistakes that a node finds in its configuration alone.

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
fn a_tier_that_no_rule_names_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let node = Process::start(&format!(
        "[[tier]]\nname = \"t\"\nfolder = {:?}\ncapacity = \"1GiB\"\n\
         [[identity]]\naccess_key = \"A\"\nsecret_key = \"s\"",
        folder.path().join("tier")
    ));
    node.addresses();
    node.logs(&[
        "WARN",
        "[[tier]] t is not used: no [[write.rule]] writes back into it",
        "hint=\"write a [[write.rule]]",
    ]);
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
    let checked = shoal(&["serve", "--check"])
        .env("SHOAL_COOPERATION_MODE", "hierarchy")
        .output()
        .unwrap();
    assert_eq!(checked.status.code(), Some(0));
    let told = String::from_utf8(checked.stderr).unwrap();
    for warning in [
        "warning: there is no [[identity]]: this node refuses every signed request\nhint: add",
        "warning: SHOAL_COOPERATION_MODE: [cooperation] seeds is empty",
    ] {
        assert!(told.contains(warning), "{warning} in\n{told}");
    }
}

#[test]
fn check_names_what_to_write_instead_of_a_setting_of_earlier_builds() {
    let checked = shoal(&["serve", "--check"])
        .env("SHOAL_WRITE_ALLOW_VOLATILE", "true")
        .output()
        .unwrap();
    assert_ne!(checked.status.code(), Some(0));
    let told = String::from_utf8(checked.stderr).unwrap();
    let expected = "SHOAL_WRITE_ALLOW_VOLATILE: [write] allow_volatile was removed\nhint: leave it out";
    assert!(told.contains(expected), "{told}");
}
