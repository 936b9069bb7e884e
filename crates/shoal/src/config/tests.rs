//! The contract of the configuration: layers, names, refusals and hints.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use super::settings::SETTINGS;
use super::{Config, ConfigError, FreshnessMode, Loaded, Sources};

/// `shoal.toml` at the root of the repository.
const REFERENCE: &str = include_str!("../../../../shoal.toml");

struct Desk {
    folder: TempDir,
    sources: Sources,
}

impl Desk {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            sources: Sources::default(),
        }
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn file(mut self, text: &str) -> Self {
        self.sources.file = Some(self.write("shoal.toml", text, 0o600));
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.sources.variables.push((name.into(), value.into()));
        self
    }

    fn flag(mut self, name: &str, value: &str) -> Self {
        self.sources.flags.push((name.into(), value.into()));
        self
    }

    fn load(&self) -> Result<Loaded, ConfigError> {
        Config::load(&self.sources)
    }

    fn config(&self) -> Config {
        self.load().unwrap().config
    }

    /// Problems as they are printed, each with its hint, without the name of the folder.
    fn problems(&self) -> Vec<String> {
        let error = self.load().expect_err("this configuration should be refused");
        self.print(&error.problems)
    }

    fn warnings(&self) -> Vec<String> {
        self.print(&self.load().unwrap().warnings)
    }

    fn print(&self, problems: &[super::Problem]) -> Vec<String> {
        let folder = format!("{}/", self.folder.path().display());
        let print = |problem: &super::Problem| match &problem.hint {
            Some(hint) => format!("{problem} | {hint}"),
            None => problem.to_string(),
        };
        problems
            .iter()
            .map(|problem| print(problem).replace(&folder, ""))
            .collect()
    }
}

fn problems_of(file: &str) -> Vec<String> {
    Desk::new().file(file).problems()
}

#[test]
fn the_reference_file_says_the_defaults() {
    assert_eq!(Desk::new().file(REFERENCE).config(), Config::default());
}

#[test]
fn the_reference_file_has_every_setting_below_its_meaning() {
    for setting in SETTINGS {
        let section = REFERENCE
            .split("\n[")
            .find(|text| text.starts_with(&format!("{}]", setting.section)))
            .unwrap();
        let lines: Vec<_> = section.lines().collect();
        let written = |line: &&str| {
            line.trim_start_matches("# ")
                .starts_with(&format!("{} = ", setting.key))
        };
        let line = lines
            .iter()
            .position(|line| written(&line))
            .unwrap_or_else(|| panic!("no {}", setting.key));
        assert_eq!(
            lines[line - 1],
            format!("# {}.", setting.doc),
            "{} {}",
            setting.section,
            setting.key
        );
    }
}

#[test]
fn the_examples_in_the_reference_file_are_understood() {
    let desk = Desk::new();
    fs::create_dir(desk.folder.path().join("tls")).unwrap();
    for file in [
        "tls/cert.pem",
        "tls/key.pem",
        "lake-secret",
        "ak-secret",
        "ak-lake-secret",
    ] {
        desk.write(file, file, 0o600);
    }
    let is_example = |line: &str| line.contains(" = ") || line.starts_with("[[");
    let uncommented = |line: &'static str| {
        line.strip_prefix("# ")
            .filter(|rest| is_example(rest))
            .unwrap_or(line)
    };
    let lines = REFERENCE
        .lines()
        .map(uncommented)
        .filter(|line| !line.starts_with("secret_key = "));
    let text = lines
        .collect::<Vec<_>>()
        .join("\n")
        .replace("/etc/shoal", desk.folder.path().to_str().unwrap());
    let config = Desk::new().file(&text).config();
    assert_eq!(config.s3.domain.as_deref(), Some("s3.example.org"));
    assert_eq!(config.lake.secret_key.unwrap().expose(), "lake-secret");
    assert_eq!(config.freshness.rules[0].mode, FreshnessMode::Immutable);
    assert_eq!(
        config.identities[0].lake_secret_key.as_ref().unwrap().expose(),
        "ak-lake-secret"
    );
}

#[test]
fn without_any_source_everything_is_the_default() {
    assert_eq!(Desk::new().config(), Config::default());
}

#[test]
fn a_flag_wins_over_a_variable_and_a_variable_over_the_file() {
    let file = "[store]\ncapacity = \"1GiB\"\npath = \"/from/file\"\n[node]\nname = \"from-file\"";
    let desk = Desk::new()
        .file(file)
        .variable("SHOAL_STORE_CAPACITY", "2GiB")
        .variable("SHOAL_STORE_PATH", "/from/variable")
        .flag("store-capacity", "3GiB");
    let config = desk.config();
    assert_eq!(config.store.capacity_bytes, 3 << 30);
    assert_eq!(config.store.path, PathBuf::from("/from/variable"));
    assert_eq!(config.node.name, "from-file");
    assert_eq!(config.store.block_bytes, Config::default().store.block_bytes);
}

#[test]
fn every_setting_can_be_a_variable() {
    let config = Desk::new()
        .variable("SHOAL_S3_LISTEN", "127.0.0.1:9500")
        .variable("SHOAL_LIMITS_CONNECTIONS", "77")
        .variable("SHOAL_LIMITS_IDLE_TIMEOUT", "7s")
        .variable("SHOAL_LOG_ACCESS", "true")
        .variable("SHOAL_FRESHNESS_DEFAULT", "30s")
        .variable("PATH", "ignored")
        .config();
    assert_eq!(config.s3.listen.port(), 9500);
    assert_eq!(config.limits.connections, 77);
    assert_eq!(config.limits.idle_timeout, Duration::from_secs(7));
    assert!(config.log.access);
    assert_eq!(
        config.freshness.default,
        FreshnessMode::Ttl(Duration::from_secs(30))
    );
}

#[test]
fn a_variable_names_the_file_and_a_flag_another_one() {
    let mut desk = Desk::new();
    let named = desk.write("named.toml", "[node]\nname = \"by-variable\"", 0o600);
    desk = desk.variable("SHOAL_CONFIG", named.to_str().unwrap());
    assert_eq!(desk.config().node.name, "by-variable");
    assert_eq!(
        desk.file("[node]\nname = \"by-flag\"").config().node.name,
        "by-flag"
    );
}

#[test]
fn a_file_that_is_not_there_is_told_by_name() {
    let mut desk = Desk::new();
    desk.sources.file = Some(desk.folder.path().join("absent.toml"));
    let problems = desk.problems();
    assert!(
        problems[0].starts_with("the configuration file absent.toml cannot be read: No such file"),
        "{problems:?}"
    );
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
            "shoal.toml:1: unknown key \"listen\" outside of any section | \"listen\" belongs to [s3] or [admin]",
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
    assert_eq!(warnings.len(), 2);
    assert!(
        warnings[0].starts_with("SHOAL_SERVICE_HOST: unknown variable | it is ignored"),
        "{warnings:?}"
    );
}

#[test]
fn a_value_of_the_wrong_kind_is_told_with_what_to_write() {
    let size = "write a size as a whole number and B, KiB, MiB, GiB or TiB, such as \"100GiB\"";
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
            "[limits]\nidle_timeout = 30",
            "[limits] idle_timeout cannot be 30",
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
            "write true or false",
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
fn what_is_not_toml_is_told_with_its_line() {
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

#[test]
fn values_that_cannot_work_are_refused_where_they_stand() {
    let cases = [
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
        ("[s3]\ntls_key = \"/dev/null\"", "[s3] tls_key has no certificate"),
        (
            "[lake]\nendpoint = \"127.0.0.1:9090\"",
            "[lake] endpoint begins with neither http:// nor https://",
        ),
        ("[lake]\nendpoint = \"http:\"", "[lake] endpoint is not a URL"),
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
        ("[limits]\nconnections = 0", "[limits] connections is 0"),
        ("[limits]\nstall_timeout = \"0s\"", "[limits] stall_timeout is 0"),
        (
            "[limits]\nfill_bytes = \"4MiB\"",
            "[limits] fill_bytes holds fewer than 2 blocks",
        ),
        (
            "[limits]\nmapped_bytes = \"1MiB\"",
            "[limits] mapped_bytes holds not even one block",
        ),
        (
            "[limits]\nretry_budget_percent = 101",
            "[limits] retry_budget_percent is more than every request",
        ),
        (
            "[log]\nfilter = \"shoal=loud\"",
            "[log] filter is not a filter: invalid filter directive",
        ),
        ("[log]\nformat = \"xml\"", "[log] format is neither text nor json"),
    ];
    for (file, what) in cases {
        let problems = problems_of(file);
        assert_eq!(problems.len(), 1, "{file}: {problems:?}");
        assert!(
            problems[0].starts_with(&format!("shoal.toml:2: {what} | ")),
            "{file}: {problems:?}"
        );
    }
}

#[test]
fn what_an_operator_may_well_write_is_taken() {
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
    assert_eq!(rules[1].mode, FreshnessMode::Ttl(Duration::from_secs(60)));

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
        twice[0].starts_with("shoal.toml:5: [[freshness.rule]] \"s3://b/x/\" is written twice | "),
        "{twice:?}"
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
            "shoal.toml:2: [[identity]] lake_access_key has no lake_secret_key",
        ),
        (
            &format!("{file}lake_secret_key = \"l\""),
            "shoal.toml:2: [[identity]] lake_secret_key has no lake_access_key",
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
fn a_secret_may_lie_in_a_file_of_its_own() {
    let desk = Desk::new();
    let path = desk.write("secret", "from a file\n", 0o600);
    let path = path.display();
    let file = format!(
        "[lake]\naccess_key = \"L\"\nsecret_key_file = \"{path}\"\n\
         [[identity]]\naccess_key = \"A\"\nsecret_key_file = \"{path}\"\n\
         lake_access_key = \"B\"\nlake_secret_key_file = \"{path}\""
    );
    let desk = desk.file(&file);
    let config = desk.config();
    let identity = &config.identities[0];
    let secrets = [
        config.lake.secret_key.as_ref(),
        Some(&identity.secret_key),
        identity.lake_secret_key.as_ref(),
    ];
    for secret in secrets {
        assert_eq!(secret.unwrap().expose(), "from a file");
    }
    assert_eq!(desk.warnings(), [""; 0]);
}

#[test]
fn a_secret_file_that_cannot_serve_is_refused_and_a_public_one_is_told() {
    let desk = Desk::new();
    let file = |name: &str| {
        let path = desk.folder.path().join(name);
        format!(
            "[lake]\naccess_key = \"L\"\nsecret_key_file = \"{}\"",
            path.display()
        )
    };
    desk.write("empty", "\n", 0o600);
    desk.write("long", "one\ntwo\n", 0o600);
    let path = desk.write("public", "very secret\n", 0o644);
    let start = |name: &str| {
        Desk::new().file(&file(name)).problems()[0].replace(desk.folder.path().to_str().unwrap(), "")
    };
    assert!(
        start("absent").starts_with("shoal.toml:3: secret_key_file /absent cannot be read: No such file")
    );
    assert!(start("empty").starts_with("shoal.toml:3: secret_key_file /empty is not one line"));
    assert!(start("long").starts_with("shoal.toml:3: secret_key_file /long is not one line"));
    let public = Desk::new().file(&file("public")).warnings();
    let path = path.display();
    assert_eq!(
        public,
        [format!(
            "shoal.toml:3: secret_key_file {path} can be read by every user of this machine | chmod 600 {path}"
        )]
    );
}

#[test]
fn a_public_file_with_a_secret_in_it_is_told() {
    let desk = Desk::new().file("[[identity]]\naccess_key = \"A\"\nsecret_key = \"s\"");
    assert_eq!(desk.warnings(), [""; 0]);
    fs::set_permissions(
        desk.folder.path().join("shoal.toml"),
        fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    let warnings = desk.warnings();
    assert!(
        warnings[0]
            .starts_with("the configuration file, which holds a secret, shoal.toml can be read by every")
    );
}

#[test]
fn a_secret_of_a_higher_layer_replaces_one_of_the_other_spelling_below() {
    let desk = Desk::new();
    let path = desk.write("secret", "from a file", 0o600);
    let path = path.to_str().unwrap();
    let desk = desk
        .file("[lake]\naccess_key = \"L\"\nsecret_key = \"in place\"")
        .variable("SHOAL_LAKE_SECRET_KEY_FILE", path);
    assert_eq!(desk.config().lake.secret_key.unwrap().expose(), "from a file");

    let desk = Desk::new()
        .file("[lake]\naccess_key = \"L\"\nsecret_key_file = \"/absent\"")
        .variable("SHOAL_LAKE_SECRET_KEY", "from a variable");
    assert_eq!(desk.config().lake.secret_key.unwrap().expose(), "from a variable");

    let desk =
        Desk::new().file("[lake]\naccess_key = \"L\"\nsecret_key = \"s\"\nsecret_key_file = \"/absent\"");
    assert!(
        desk.problems()[0].contains("[lake] has both secret_key and secret_key_file | keep one of the two")
    );
}

#[test]
fn an_open_listener_without_identities_is_told() {
    let desk = Desk::new().file("[s3]\nlisten = \"0.0.0.0:9000\"");
    let warnings = desk.warnings();
    assert!(warnings[0].starts_with("shoal.toml:2: [s3] listen (0.0.0.0:9000) can be reached from outside"));
    let file = "[s3]\nlisten = \"0.0.0.0:9000\"\n[[identity]]\naccess_key = \"A\"\nsecret_key = \"s\"";
    assert_eq!(Desk::new().file(file).warnings(), [""; 0]);
}

#[test]
fn the_effective_configuration_hides_secrets_and_reads_back_as_itself() {
    let file = "[lake]\naccess_key = \"L\"\nsecret_key = \"hush-1\"\n[freshness]\ndefault = \"90s\"\n\
                [[freshness.rule]]\nprefix = \"s3://b/\"\nfreshness = \"immutable\"\n[[identity]]\n\
                access_key = \"A\"\nsecret_key = \"hush-2\"\nlake_access_key = \"B\"\nlake_secret_key = \"hush-3\"";
    let config = Desk::new().file(file).config();
    let (shown, json) = (config.to_toml(), config.to_json().to_string());
    assert!(!shown.contains("hush") && !json.contains("hush") && !format!("{config:?}").contains("hush"));
    let again = Desk::new().file(&shown).config();
    assert_eq!(again.to_toml(), shown);
    assert_eq!(
        (again.freshness.default, again.store),
        (config.freshness.default, config.store)
    );
    assert!(
        json.contains(r#""rule":[{"freshness":"immutable","prefix":"s3://b/"}]"#),
        "{json}"
    );
}

#[test]
fn no_problem_quotes_a_secret() {
    let desk = Desk::new()
        .file("[lake]\nsecret_key = 987654\n[[identity]]\nsecret_key = [\"hush\"]")
        .variable("SHOAL_LAKE_SECRET_KEY", "hush");
    let told = desk.problems().join("\n");
    assert!(!told.contains("987654") && !told.contains("hush"), "{told}");
}
