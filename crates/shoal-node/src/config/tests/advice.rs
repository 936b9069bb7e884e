//! Settings that are valid but rarely intended.

use super::Desk;
use crate::config::Role;

const IDENTITY: &str = "\n[[identity]]\naccess_key = \"A\"\nsecret_key = \"s\"\n";

fn warnings(file: &str) -> Vec<String> {
    Desk::new().file(&format!("{file}{IDENTITY}")).warnings()
}

#[test]
fn a_node_without_identities_is_told_that_it_refuses_every_signed_request() {
    let told = Desk::new().file("[s3]\nlisten = \"127.0.0.1:9000\"").warnings();
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with("there is no [[identity]]: this node refuses every signed request | add an"),
        "{told:?}"
    );
    assert_eq!(warnings(""), [""; 0]);
}

#[test]
fn pages_that_other_machines_may_read_are_told() {
    let told = warnings("[admin]\nlisten = \"0.0.0.0:9100\"");
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with("shoal.toml:2: [admin] listen (0.0.0.0:9100) is not on loopback: "),
        "{told:?}"
    );
}

#[test]
fn a_node_that_cannot_find_others_or_be_found_is_told() {
    let told = warnings("[cooperation]\nmode = \"hierarchy\"");
    assert_eq!(told.len(), 2);
    assert!(
        told[0].starts_with("shoal.toml:2: [cooperation] seeds is empty: "),
        "{told:?}"
    );
    assert!(
        told[1].starts_with("[cooperation] listen (127.0.0.1:9200) is on loopback: "),
        "{told:?}"
    );

    let elsewhere = warnings("[cooperation]\nmode = \"hierarchy\"\nseeds = [\"10.0.0.1:9200\"]");
    assert_eq!(elsewhere.len(), 1);
    assert!(elsewhere[0].contains("is on loopback"), "{elsewhere:?}");
}

#[test]
fn several_nodes_of_one_machine_are_no_mistake() {
    let one_machine = "[cooperation]\nmode = \"hierarchy\"\nseeds = [\"127.0.0.1:9201\", \"localhost:9202\", \"[::1]:9203\"]";
    assert_eq!(warnings(one_machine), [""; 0]);
}

#[test]
fn coherent_objects_that_are_written_back_are_told() {
    let file = |coherent: &str| {
        format!(
            "[cooperation]\nmode = \"directory\"\nsecret_key = \"a secret of this cluster\"\nseeds = [\"127.0.0.1:9201\"]\n[[freshness.rule]]\nprefix = \"{coherent}\"\nfreshness = \"coherent\"\n[[tier]]\nname = \"a\"\nfolder = \"/tiers/a\"\ncapacity = \"1GiB\"\n[[write.rule]]\nprefix = \"s3://b/back/\"\nmode = \"back\"\n"
        )
    };
    assert_eq!(warnings(&file("s3://b/")), [""; 0]);
    let told = warnings(&file("s3://b/back/x/"));
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with("shoal.toml:6: objects below s3://b/back/ are written back, so their freshness"),
        "{told:?}"
    );
}

#[test]
fn a_tier_that_no_rule_writes_back_into_is_told() {
    let tier = |name: &str| {
        format!("[[tier]]\nname = \"{name}\"\nfolder = \"/tiers/{name}\"\ncapacity = \"1GiB\"\n")
    };
    let rule = "[[write.rule]]\nprefix = \"s3://b/\"\nmode = \"back\"\n";
    assert_eq!(warnings(&format!("{}{rule}", tier("a"))), [""; 0]);
    let two = format!("{}{}{rule}tier = \"b\"", tier("a"), tier("b"));
    assert_eq!(
        warnings(&two),
        [
            "shoal.toml:2: [[tier]] a is not used: no [[write.rule]] writes back into it | write a [[write.rule]] with \
             mode = \"back\" and tier = \"a\""
        ]
    );
}

#[test]
fn the_nodes_of_a_desk_get_identities_and_seeds_elsewhere() {
    let desk = Desk::new().file("[cooperation]\nmode = \"hierarchy\"");
    assert_eq!(desk.of(Role::Dev).warnings(), [""; 0]);
}

#[test]
fn a_link_that_brings_less_than_a_block_a_second_is_told() {
    assert_eq!(warnings("[lake]\nbandwidth = \"10Gbit\""), [""; 0]);
    let told = warnings("[lake]\nbandwidth = \"1MB\"");
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with("shoal.toml:2: [lake] bandwidth is less than one block a second: "),
        "{told:?}"
    );
    assert_eq!(
        warnings("[lake]\nbandwidth = \"1MB\"\n[store]\nblock_size = \"512KiB\""),
        [""; 0]
    );
}

#[test]
fn room_beyond_the_file_system_and_folders_in_memory_are_told() {
    let here = std::env::temp_dir();
    let store = |path: &str, capacity: &str| format!("[store]\npath = \"{path}\"\ncapacity = \"{capacity}\"");
    let told = warnings(&store(
        &here.join("not/made/yet").display().to_string(),
        "1000000TiB",
    ));
    let told: Vec<_> = told.iter().filter(|told| told.contains("capacity")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0]
            .starts_with("shoal.toml:3: [store] capacity (1000000 TiB) is more than its file system has: ")
    );
    if !std::path::Path::new("/dev/shm").is_dir() {
        return;
    }
    let told = warnings(&store("/dev/shm/shoal", "64MiB"));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("shoal.toml:2: [store] path (/dev/shm/shoal) is in memory: "));
    let told = warnings(
        "[[tier]]\nname = \"t\"\nfolder = \"/dev/shm/tier\"\ncapacity = \"1000000TiB\"\n\
         [[write.rule]]\nprefix = \"s3://b/\"\nmode = \"back\"\ntier = \"t\"",
    );
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with(
        "shoal.toml:4: capacity of [[tier]] t (1000000 TiB) is more than its file system has: "
    ));
}
