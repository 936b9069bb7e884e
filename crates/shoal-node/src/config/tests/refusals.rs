//! Refused configurations, with the message and its line.

use std::time::Duration;

use super::Desk;
use crate::config::{FreshnessMode, WriteMode};

fn problems_of(file: &str) -> Vec<String> {
    Desk::new().file(file).problems()
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_nearest_known_one() {
    let cases = [
        (
            "[store]\n\ncapcity = \"1GiB\"",
            "shoal.toml:3: unknown key \"capcity\" in [store] | did you mean \"capacity\"?",
        ),
        (
            "[stor]\n",
            "shoal.toml:1: unknown section [stor] | did you mean [store]?",
        ),
        (
            "[[identities]]\n",
            "shoal.toml:1: unknown section [identities] | did you mean [[identity]]?",
        ),
        (
            "[[freshness.rule]]\nprefix = \"s3://b/\"\nfreshness = \"immutable\"\nfreshnes = 1",
            "shoal.toml:4: unknown key \"freshnes\" in [[freshness.rule]] | did you mean \"freshness\"?",
        ),
        (
            "[[identity]]\naccess_key = \"A\"\nsecret_key = \"s\"\nsecretkey_file = \"x\"",
            "shoal.toml:4: unknown key \"secretkey_file\" in [[identity]] | did you mean \"secret_key_file\"?",
        ),
        (
            "[freshness]\nrules = []",
            "shoal.toml:2: unknown key \"rules\" in [freshness] | did you mean \"rule\"?",
        ),
        (
            "[node]\nblock_size = \"1MiB\"",
            "shoal.toml:2: unknown key \"block_size\" in [node] | \"block_size\" belongs to [store]",
        ),
        (
            "listen = \"x\"",
            "shoal.toml:1: unknown key \"listen\" outside of any section | \"listen\" belongs to [s3] or [sts] or [admin] or [cooperation] or [lookup]",
        ),
        (
            "[node]\nzzz = 1",
            "shoal.toml:2: unknown key \"zzz\" in [node] | the keys of [node] are name, topology",
        ),
        (
            "[s3.tls]\ncert = 1",
            "shoal.toml:1: unknown key \"tls\" in [s3] | did you mean \"tls_key\"?",
        ),
    ];
    for (file, expected) in cases {
        assert_eq!(problems_of(file), [expected], "{file}");
    }
}

#[test]
fn a_misspelled_variable_is_refused_and_a_stranger_only_told() {
    let desk = Desk::new().variable("SHOAL_STORE_CAPCITY", "1GiB");
    assert_eq!(
        desk.problems(),
        ["SHOAL_STORE_CAPCITY: unknown variable | did you mean SHOAL_STORE_CAPACITY?"]
    );
    let desk = Desk::new()
        .variable("SHOAL_SERVICE_HOST", "10.0.0.1")
        .variable("SHOAL_PORT_9000_TCP_ADDR", "x");
    let warnings = desk.warnings();
    let told = warnings.iter().filter(|told| told.contains("unknown variable"));
    assert_eq!(told.count(), 2);
    assert!(
        warnings[0].starts_with("SHOAL_SERVICE_HOST: unknown variable | it is ignored"),
        "{warnings:?}"
    );
}

#[test]
fn an_unknown_policy_is_refused_with_the_nearest_known_one() {
    for (written, expected) in [
        ("\"deul\"", "did you mean \"duel\"?"),
        (
            "\"c2p+sieve\"",
            "a node does not follow the others, which `shoal sim` compares",
        ),
        (
            "\"mru-2q\"",
            "write \"duel\", \"lru\" or \"gwf\", also with \"c2p+\" before it, or \"c2p\"",
        ),
        (
            "3",
            "write \"duel\", \"lru\" or \"gwf\", also with \"c2p+\" before it, or \"c2p\"",
        ),
    ] {
        let problems = problems_of(&format!("[store]\npolicy = {written}"));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].ends_with(expected), "{problems:?}");
    }
}

#[test]
fn a_value_of_the_wrong_kind_is_told_with_what_to_write() {
    let size = "write a size as a whole number and B, KiB, MiB, GiB or TiB (or KB, MB, GB, TB: powers of 1000), such as \"100GiB\"";
    let time = "write a time as a whole number and ms, s, m, h or d, such as \"30s\"";
    let cases = [
        (
            "[store]\ncapacity = \"lots\"",
            "[store] capacity cannot be \"lots\"",
            size,
        ),
        ("[store]\ncapacity = 100", "[store] capacity cannot be 100", size),
        (
            "[store]\ncapacity = [1]",
            "[store] capacity cannot be an array",
            size,
        ),
        (
            "[lake]\nwrite_timeout = 30",
            "[lake] write_timeout cannot be 30",
            time,
        ),
        (
            "[limits]\nrequests = \"7\"",
            "[limits] requests cannot be \"7\"",
            "write a whole number, such as 16",
        ),
        (
            "[limits]\nrequests = -1",
            "[limits] requests cannot be -1",
            "write a whole number, such as 16",
        ),
        (
            "[log]\naccess = \"yes\"",
            "[log] access cannot be \"yes\"",
            "write true, false or \"s3\"",
        ),
        (
            "[s3]\ndomain = \"\"",
            "[s3] domain cannot be \"\"",
            "write a text in quotes",
        ),
    ];
    for (file, what, hint) in cases {
        assert_eq!(problems_of(file), [format!("shoal.toml:2: {what} | {hint}")]);
    }
    let listen = problems_of("[s3]\nlisten = \"127.0.0.1:70000\"");
    assert!(
        listen[0].starts_with("shoal.toml:2: [s3] listen cannot be \"127.0.0.1:70000\" | "),
        "{listen:?}"
    );
    let flag = Desk::new().flag("store-capacity", "1");
    assert_eq!(
        flag.problems(),
        [format!(
            "--store-capacity: [store] capacity cannot be \"1\" | {size}"
        )]
    );
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_the_lines() {
    let desk = Desk::new()
        .file("[store]\npath = 1\ncapacity = \"x\"\n[admin]\nlisten = 1\nport = 2\n[lake]\nendpiont = \"x\"")
        .variable("SHOAL_LIMITS_REQUESTS", "many")
        .flag("log-access", "maybe");
    let places: Vec<_> = desk
        .problems()
        .iter()
        .map(|text| text.split(": ").next().unwrap().to_string())
        .collect();
    let expected = [
        "shoal.toml:2",
        "shoal.toml:3",
        "shoal.toml:5",
        "shoal.toml:6",
        "shoal.toml:8",
    ];
    assert_eq!(
        places,
        [&expected[..], &["SHOAL_LIMITS_REQUESTS", "--log-access"]].concat()
    );
}

#[test]
fn an_unknown_name_hides_nothing_and_a_misread_value_is_not_taken_for_the_default() {
    let unknown = problems_of("[store]\ncapcity = \"1GiB\"\nblock_size = \"3MiB\"");
    assert_eq!(unknown.len(), 2, "{unknown:?}");
    assert!(unknown[1].starts_with("shoal.toml:3: [store] block_size is not a size a block can have"));
    let misread = problems_of("[lake]\naccess_key = \"A\"\nsecret_key = 5");
    assert_eq!(
        misread,
        ["shoal.toml:3: [lake] secret_key cannot be an integer | write a text in quotes"]
    );
}

#[test]
fn lists_are_written_with_double_brackets() {
    assert_eq!(
        problems_of("[identity]\naccess_key = \"A\""),
        ["shoal.toml:1: [identity] is a list of tables | write [[identity]], once for each"]
    );
    assert_eq!(
        problems_of("[freshness.rule]\nprefix = \"s3://b/\""),
        ["shoal.toml:1: [freshness.rule] is a list of tables | write [[freshness.rule]], once for each"]
    );
    let value = problems_of("store = 1");
    assert!(
        value[0].starts_with("shoal.toml:1: [store] is a section and not a value"),
        "{value:?}"
    );
}

/// Files whose second line cannot work, and the message about it.
const UNWORKABLE: &[(&str, &str)] = &[
    ("[node]\nname = \"a b\"", "[node] name is not a name"),
    (
        "[node]\ntopology = \"dc1//rack\"",
        "[node] topology is not a place",
    ),
    (
        "[admin]\nlisten = \"0.0.0.0:9000\"",
        "[admin] listen (0.0.0.0:9000) collides with [s3] listen (127.0.0.1:9000)",
    ),
    ("[s3]\ndomain = \"http://x\"", "[s3] domain is not a domain"),
    ("[s3]\ndomain = \"10.0.0.1\"", "[s3] domain is not a domain"),
    ("[s3]\ndomain = \"a..b\"", "[s3] domain is not a domain"),
    ("[s3]\ndomain = \"-a.b\"", "[s3] domain is not a domain"),
    ("[s3]\ntls_cert = \"/dev/null\"", "[s3] tls_cert has no key"),
    (
        "[admin]\ntls_key = \"/dev/null\"",
        "[admin] tls_key has no certificate",
    ),
    (
        "[admin]\nclient_ca = \"/dev/null\"",
        "[admin] client_ca has no certificate of the port itself beside it",
    ),
    (
        "[admin]\ntoken_file = \"/nowhere\"",
        "[admin] token_file cannot be read: No such file or directory (os error 2)",
    ),
    ("[s3]\ntls_key = \"/dev/null\"", "[s3] tls_key has no certificate"),
    (
        "[lake]\nendpoint = \"127.0.0.1:9090\"",
        "[lake] endpoint begins with neither http:// nor https://",
    ),
    ("[lake]\nendpoint = \"http://\"", "[lake] endpoint is not a URL"),
    (
        "[lake]\nendpoint = \"ftp://lake\"",
        "[lake] endpoint begins with neither http:// nor https://",
    ),
    (
        "[lake]\nendpoint = \"http://lake/path\"",
        "[lake] endpoint has a path or a query",
    ),
    (
        "[lake]\nendpoint = \"http://lake?x\"",
        "[lake] endpoint has a path or a query",
    ),
    (
        "[lake]\nendpoint = \"http://lake#x\"",
        "[lake] endpoint has a path or a query",
    ),
    (
        "[lake]\nendpoint = \"http://ak:sk@lake\"",
        "[lake] endpoint holds a user name, which belongs into access_key",
    ),
    (
        "[lake]\nendpoint = \"http://lake:99999\"",
        "[lake] endpoint has no valid port",
    ),
    (
        "[lake]\nendpoint = \"http://localhost:9000\"",
        "[lake] endpoint is an address of this node itself",
    ),
    ("[lake]\nregion = \"us east\"", "[lake] region is not a region"),
    (
        "[lake]\naccess_key = \"A\"",
        "[lake] access_key has no secret_key",
    ),
    (
        "[lake]\nsecret_key = \"s\"",
        "[lake] secret_key has no access_key",
    ),
    (
        "[store]\npath = \"/\"",
        "[store] path is the root of the file system",
    ),
    (
        "[store]\nblock_size = \"3MiB\"",
        "[store] block_size is not a size a block can have",
    ),
    (
        "[store]\nblock_size = \"32KiB\"",
        "[store] block_size is not a size a block can have",
    ),
    (
        "[store]\nblock_size = \"128MiB\"",
        "[store] block_size is not a size a block can have",
    ),
    (
        "[store]\ncapacity = \"63MiB\"",
        "[store] capacity holds fewer than 16 blocks",
    ),
    ("[limits]\nrequests = 0", "[limits] requests is 0"),
    (
        "[limits]\nfill_bytes = \"4MiB\"",
        "[limits] fill_bytes holds fewer than 2 blocks",
    ),
    ("[log]\nfilter = \"shoal=loud\"", "[log] filter is not a filter"),
    ("[log]\nformat = \"xml\"", "[log] format is neither text nor json"),
    (
        "[log]\naccess_file = \"/tmp/log\"\naccess = true",
        "[log] access_file is for access = \"s3\" alone",
    ),
];

#[test]
fn values_that_cannot_work_are_refused_where_they_stand() {
    for (file, what) in UNWORKABLE {
        let problems = problems_of(file);
        assert_eq!(problems.len(), 1, "{file}: {problems:?}");
        assert!(
            problems[0].starts_with(&format!("shoal.toml:2: {what} | ")),
            "{file}: {problems:?}"
        );
    }
}

#[test]
fn settings_that_an_operator_may_well_write_are_accepted() {
    let files = [
        "[lake]\nendpoint = \"https://s3.eu-central-1.amazonaws.com\"",
        "[lake]\nendpoint = \"http://[::1]:9090/\"",
        "[store]\nblock_size = \"64KiB\"\ncapacity = \"1MiB\"",
        "[s3]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"",
        "[s3]\nlisten = \"127.0.0.1:9000\"\n[admin]\nlisten = \"127.0.0.2:9000\"",
        "store = { capacity = \"1GiB\" }",
        "store.capacity = \"1GiB\"",
        "[log]\nfilter = \"warn,shoal=debug\"",
        "",
    ];
    for file in files {
        assert!(
            Desk::new().file(file).load().is_ok(),
            "{file}: {:?}",
            Desk::new().file(file).load()
        );
    }
}

#[test]
fn rules_say_where_and_how_fresh() {
    let file = "[[freshness.rule]]\nprefix = \"s3://b/x/\"\nfreshness = \"immutable\"\n\
                [[freshness.rule]]\nprefix = \"s3://b\"\nfreshness = \"1m\"";
    let rules = Desk::new().file(file).config().freshness.rules;
    assert_eq!(
        (rules[0].prefix.as_str(), rules[0].mode),
        ("s3://b/x/", FreshnessMode::Immutable)
    );
    assert_eq!(rules[1].mode, FreshnessMode::Ttl(Duration::from_mins(1)));

    let wrong = problems_of("[[freshness.rule]]\nprefix = \"b/x\"\nfreshness = \"1m\"");
    assert_eq!(
        wrong,
        [
            "shoal.toml:2: [[freshness.rule]] prefix cannot be \"b/x\": it does not begin with s3:// | \
          write s3://bucket/prefix/"
        ]
    );
    let incomplete = problems_of("\n[[freshness.rule]]\nprefix = \"s3://b/\"");
    assert_eq!(
        incomplete,
        ["shoal.toml:2: [[freshness.rule]] has no freshness | add a line: freshness = ..."]
    );
    let twice = problems_of(&file.replace("\"s3://b\"", "\"s3://b/x/\""));
    assert!(
        twice[0].starts_with("shoal.toml:5: [[freshness.rule]] prefix \"s3://b/x/\" is written twice | "),
        "{twice:?}"
    );
}

#[test]
fn rules_say_how_objects_are_written() {
    let file = "[write]\ndefault = \"through\"\n[[write.rule]]\nprefix = \"s3://b/x/\"\nmode = \"around\"";
    let write = Desk::new().file(file).config().write;
    assert_eq!(write.default, WriteMode::Through);
    assert_eq!(
        (write.rules[0].prefix.as_str(), write.rules[0].mode),
        ("s3://b/x/", WriteMode::Around)
    );
    let wrong = problems_of("[[write.rule]]\nprefix = \"b\"\nmode = \"around\"");
    assert!(
        wrong[0].starts_with("shoal.toml:2: [[write.rule]] prefix cannot be \"b\": "),
        "{wrong:?}"
    );
    let misspelled = problems_of("[[write.rule]]\nprefix = \"s3://b/\"\nmode = \"thru\"");
    assert!(
        misspelled[0].ends_with("| write \"around\", \"through\" or, for a rule, \"back\""),
        "{misspelled:?}"
    );
}

#[test]
fn identities_are_pairs_and_each_access_key_is_one_of_them() {
    let file = "[[identity]]\naccess_key = \"A\"\nsecret_key = \"s\"\n";
    let twice = problems_of(&format!("{file}{file}"));
    assert!(
        twice[0].starts_with("shoal.toml:5: [[identity]] access_key \"A\" is written twice | "),
        "{twice:?}"
    );
    let cases = [
        (
            "[[identity]]\naccess_key = \"A\"",
            "shoal.toml:1: [[identity]] has no secret_key",
        ),
        (
            "[[identity]]\nsecret_key = \"s\"",
            "shoal.toml:1: [[identity]] has no access_key",
        ),
        (
            &format!("{file}lake_access_key = \"L\""),
            "shoal.toml:4: [[identity]] lake_access_key has no lake_secret_key",
        ),
        (
            &format!("{file}lake_secret_key = \"l\""),
            "shoal.toml:4: [[identity]] lake_secret_key has no lake_access_key",
        ),
        (
            "[[identity]]\naccess_key = \"A/B\"\nsecret_key = \"s\"",
            "shoal.toml:2: [[identity]] access_key has characters that a signature cannot carry",
        ),
        (
            "[[identity]]\naccess_key = \"A\"\nsecret_key = \"s\"\nsecret_key_file = \"f\"",
            "shoal.toml:4: [[identity]] has both secret_key and secret_key_file",
        ),
    ];
    for (file, expected) in cases {
        let problems = problems_of(file);
        assert_eq!(problems.len(), 1, "{file}: {problems:?}");
        assert!(problems[0].starts_with(expected), "{file}: {problems:?}");
    }
}

#[test]
fn a_cluster_that_could_not_work_or_would_be_open_to_all_is_refused() {
    let cooperating = |rest: &str| format!("[cooperation]\nmode = \"hierarchy\"\n{rest}");
    let cases = [
        (
            "listen = \"10.0.0.1:9200\"",
            "[cooperation] secret_key is not set, and others than this machine can connect | write the same random text into a \
             file on every node, and its path as secret_key_file",
        ),
        (
            "secret_key = \"short\"",
            "[cooperation] secret_key has fewer than 16 characters | make one with: openssl rand -hex 32",
        ),
        (
            "secret_key = \"0123456789abcdef\"\nlisten = \"0.0.0.0:9200\"",
            "[cooperation] listen is an address that no other node can connect to | write advertise = the address of this \
             machine that the other nodes connect to, with its port",
        ),
        (
            "listen = \"127.0.0.1:9000\"",
            "[cooperation] listen (127.0.0.1:9000) collides with [s3] listen (127.0.0.1:9000) | give the other nodes a port of \
             their own",
        ),
        (
            "seeds = [\"node-1\"]",
            "[cooperation] seeds names \"node-1\" | write host:port, such as \"10.0.0.1:9200\"",
        ),
        (
            "layers = [\"rack\"]",
            "[cooperation] layers is not a list of layers | write two names at least, innermost first, such as [\"rack\", \
             \"cluster\"]",
        ),
        (
            "layers = [\"a\", \"b\", \"c\", \"d\"]",
            "[cooperation] layers has 4 names, and [node] topology 3 parts | give each layer a part of the topology, or leave the \
             widest out",
        ),
        (
            "weight = 0",
            "[cooperation] weight is not between 1 and 10000 | write 100 for a node like the others, 200 for one with twice the \
             disk",
        ),
        (
            "mode = 1",
            "[cooperation] mode cannot be 1 | write \"solo\", \"hierarchy\" or \"directory\"",
        ),
    ];
    for (rest, expected) in cases {
        let file = if rest.starts_with("mode") {
            format!("[cooperation]\n{rest}")
        } else {
            cooperating(rest)
        };
        let problems = problems_of(&file);
        let [problem] = &problems[..] else {
            panic!("{rest}: {problems:?}");
        };
        let problem = problem
            .split_once(": ")
            .map_or(problem.as_str(), |(provenance, rest)| {
                assert!(
                    provenance.starts_with("shoal.toml:") || provenance == "default",
                    "{provenance}"
                );
                rest
            });
        assert_eq!(problem, expected, "{rest}");
    }
}

#[test]
fn names_and_addresses_of_both_kinds_are_seeds() {
    let seeds =
        "seeds = [\"10.0.0.1:9200\", \"[::1]:9200\", \"shoal.example.org:9200\", \"shoal-0.shoal:9200\"]";
    let desk = Desk::new().file(&format!("[cooperation]\nmode = \"hierarchy\"\n{seeds}"));
    assert_eq!(desk.config().cooperation.seeds.len(), 4);
    let desk = Desk::new().variable("SHOAL_COOPERATION_SEEDS", "a:1,b:2");
    assert_eq!(desk.config().cooperation.seeds, ["a:1", "b:2"]);
}

#[test]
fn a_split_names_shares_of_the_whole_room() {
    let hint = "name a percentage for each layer from L1 outwards, such as [50, 50]";
    let write =
        "write \"adaptive\", or percents from L1 outwards such as [50, 50]; in a variable or flag 50,50";
    let cases = [
        ("[50, 40]", format!("adds up to 90 percent | {hint}")),
        ("[200, 100]", format!("adds up to 300 percent | {hint}")),
        ("[]", format!("adds up to 0 percent | {hint}")),
        (
            "[20, 10, 10, 10, 10, 10, 10, 10, 10]",
            "names 9 layers | a node has at most 8".into(),
        ),
        ("[50, \"50\"]", format!("cannot be [50, \"50\"] | {write}")),
        ("[50, 300]", format!("cannot be [50, 300] | {write}")),
        ("\"even\"", format!("cannot be \"even\" | {write}")),
    ];
    for (split, expected) in cases {
        let problems = problems_of(&format!("[cooperation]\nsplit = {split}"));
        assert_eq!(
            problems,
            [format!("shoal.toml:2: [cooperation] split {expected}")]
        );
    }
    let short = problems_of("[cooperation]\nperiod = \"999ms\"");
    let hint = "write at least 1s; in 90s the requests of most clusters say enough";
    assert_eq!(
        short,
        [format!(
            "shoal.toml:2: [cooperation] period is too short to learn from | {hint}"
        )]
    );
}
