//! The settings of the name server, and which values are rejected.

use super::Desk;
use crate::config::{Lookup, LookupPlace, Role};

const FILE: &str = "[lookup]\nname = \"s3.example.org\"\nnodes = [\"http://10.0.0.1:9100/\"]\n\
                    [[lookup.place]]\nnetwork = \"10.1.0.0/16\"\ntopology = \"dc1/a/r1\"\n";

fn desk(file: &str) -> Desk {
    Desk::new().file(file).of(Role::Lookup)
}

#[test]
fn the_file_names_the_places_of_networks_and_the_nodes_to_ask() {
    let lookup = desk(FILE)
        .variable("SHOAL_LOOKUP_LISTEN", "127.0.0.1:53,[::1]:53")
        .flag("lookup-answers", "2")
        .config()
        .lookup;
    let place = LookupPlace {
        network: "10.1.0.0/16".parse().unwrap(),
        topology: "dc1/a/r1".into(),
    };
    let expected = Lookup {
        listen: vec!["127.0.0.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()],
        name: Some("s3.example.org".into()),
        nodes: vec!["http://10.0.0.1:9100".into()],
        answers: 2,
        places: vec![place],
        ..Lookup::default()
    };
    assert_eq!(lookup, expected);
}

#[test]
fn a_name_server_that_cannot_run_is_refused_with_a_hint() {
    let cases = [
        ("", "[lookup] name is not set | write the name"),
        (
            "name = \"s3.example.org:53\"",
            "name is not a domain | write a DNS name",
        ),
        (
            "nodes = []",
            "nodes names no node to ask for the members | write admin",
        ),
        (
            "nodes = [\"10.0.0.1:9100\"]",
            "nodes names \"10.0.0.1:9100\", which",
        ),
        (
            "nodes_token_file = \"/nowhere\"",
            "[lookup] nodes_token_file cannot be read: No such file",
        ),
        (
            "nodes = [\"http://a:1\", \"http://a:1\"]",
            "nodes names \"http://a:1\" twice",
        ),
        ("listen = []", "listen names no address"),
        (
            "listen = [\"0.0.0.0:53\", \"10.0.0.1:53\"]",
            "names 10.0.0.1:53, which collides with 0.0.0.0:53",
        ),
        (
            "listen = [\"0.0.0.0:53\"]\nadmin = \"127.0.0.1:53\"",
            "[lookup] admin collides with listen, which names 0.0.0.0:53 | choose another port",
        ),
        ("answers = 0", "answers is not a number of addresses"),
        (
            "trusted_resolvers = [\"10.0.0.1/8\"]",
            "cannot be [\"10.0.0.1/8\"] | write a network by its first address",
        ),
        (
            "[[lookup.place]]\nnetwork = \"::/0\"\ntopology = \"\"",
            "topology cannot be \"\" | write a text",
        ),
        (
            "[[lookup.place]]\nnetwork = \"::/0\"\ntopology = \"a/\"",
            "topology cannot be \"a/\" | write names",
        ),
        (
            "[[lookup.place]]\nnetwork = \"::/0\"",
            "[[lookup.place]] has no topology",
        ),
        (
            "[[lookup.place]]\ncidr = \"::/0\"",
            "unknown key \"cidr\" in [[lookup.place]]",
        ),
        (
            "[lookup.place]\nnetwork = \"::/0\"",
            "[lookup.place] is a list of tables | write [[lookup.place]]",
        ),
        ("plac = 1", "did you mean \"place\"?"),
    ];
    for (lines, expected) in cases {
        let problems = desk(&format!("[lookup]\n{lines}")).problems();
        assert!(
            problems.iter().any(|problem| problem.contains(expected)),
            "{lines}: {problems:?}"
        );
    }
}

#[test]
fn a_network_has_one_place() {
    let again = "[[lookup.place]]\nnetwork = \"10.1.0.0/16\"\ntopology = \"dc1/a/r2\"";
    assert_eq!(
        desk(&format!("{FILE}{again}")).problems(),
        [
            "shoal.toml:8: [[lookup.place]] network 10.1.0.0/16 is written twice | the first stands at shoal.toml:5"
        ]
    );
}

#[test]
fn a_name_server_that_cannot_know_where_clients_are_is_told_so() {
    assert_eq!(desk(FILE).warnings(), [""; 0]);
    let placeless = "[lookup]\nname = \"s3.example.org\"\nnodes = \"http://10.0.0.1:9100\"";
    assert!(desk(placeless).warnings()[0].contains("says where clients are"));
    let everywhere = "[[lookup.place]]\nnetwork = \"0.0.0.0/0\"\ntopology = \"dc1\"";
    assert_eq!(desk(&format!("{placeless}\n{everywhere}")).warnings(), [""; 0]);
}

#[test]
fn each_role_is_held_to_what_it_reads() {
    let node_is_wrong = format!("{FILE}[store]\ncapacity = \"1B\"");
    assert_eq!(desk(&node_is_wrong).config().lookup, desk(FILE).config().lookup);
    assert_eq!(desk(&node_is_wrong).of(Role::Node).problems().len(), 1);
    let lookup_is_wrong = desk("[lookup]\nanswers = 0").of(Role::Node);
    assert_eq!(lookup_is_wrong.config().lookup.answers, 0);
}

#[test]
fn the_effective_configuration_is_what_the_role_reads_and_reads_back_as_itself() {
    let config = desk(FILE).config();
    let shown = config.to_toml(Role::Lookup);
    assert!(
        shown.contains("[[lookup.place]]\nnetwork = \"10.1.0.0/16\"") && !shown.contains("[store]"),
        "{shown}"
    );
    assert_eq!(desk(&shown).config(), config);
    assert!(!config.to_toml(Role::Node).contains("[lookup]"));
    let json = config.to_json(Role::Lookup);
    assert_eq!(json["lookup"]["place"][0]["topology"], "dc1/a/r1");
    assert_eq!(json["lookup"]["nodes"][0], "http://10.0.0.1:9100");
}
