//! The contract of the configuration: where values come from, which one wins, and how they are shown.

mod advice;
mod directory;
mod hints;
mod key_source;
mod link;
mod lookup;
mod quotas;
mod refusals;
mod removed;
mod shared;
mod sts;
mod syntax;
mod tiers;
mod trace;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::config::settings::SETTINGS;
use crate::config::{AccessFormat, Config, ConfigError, FreshnessMode, Loaded, Problem, Role, Sources};

/// `shoal.toml` at the root of the repository.
const REFERENCE: &str = include_str!("../../../../../shoal.toml");

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

    fn of(mut self, role: Role) -> Self {
        self.sources.role = role;
        self
    }

    fn load(&self) -> Result<Loaded, ConfigError> {
        Config::load(&self.sources)
    }

    fn config(&self) -> Config {
        self.load().unwrap().config
    }

    /// Problems as printed, each with its hint, without the name of the folder.
    fn problems(&self) -> Vec<String> {
        let error = self.load().expect_err("this configuration should be refused");
        self.print(&error.problems)
    }

    fn warnings(&self) -> Vec<String> {
        self.print(&self.load().unwrap().warnings)
    }

    fn print(&self, problems: &[Problem]) -> Vec<String> {
        let folder = format!("{}/", self.folder.path().display());
        let print = |problem: &Problem| match &problem.hint {
            Some(hint) => format!("{problem} | {hint}"),
            None => problem.to_string(),
        };
        problems
            .iter()
            .map(|problem| print(problem).replace(&folder, ""))
            .collect()
    }
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
            .position(written)
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
        "sts-ca.pem",
        "lake-secret",
        "cluster-secret",
        "ak-secret",
        "ak-lake-secret",
        "tier-ca.pem",
        "tier-secret",
        "etcd-client.pem",
        "etcd-client-key.pem",
        "etcd-password",
        "directory-password",
        "admin-tokens",
        "admin-token",
        "admin.pem",
        "admin.key",
        "admin-ca.pem",
        "operators.pem",
        "keys-ca.pem",
        "admin-secret",
        "engine-tokens",
        "collector-ca.pem",
    ] {
        desk.write(file, file, 0o600);
    }
    desk.write("keys-headers", "Authorization: Bearer x\nx-site: 1\n", 0o600);
    desk.write("collector-headers", "Authorization: Bearer x\n", 0o600);
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
    let cooperation = &config.cooperation;
    assert!(cooperation.secrets().eq(["cluster-secret"]));
    assert_eq!(cooperation.advertise.unwrap().to_string(), "10.0.0.1:9200");
    let password = config.directory.password.as_ref().unwrap();
    assert_eq!(password.expose(), "directory-password");
    assert_eq!(config.freshness.rules[0].mode, FreshnessMode::Immutable);
    assert_eq!(
        config.identities[0]
            .lake_account
            .as_ref()
            .unwrap()
            .secret_key
            .expose(),
        "ak-lake-secret"
    );
    let tiers: Vec<_> = config.tiers.iter().map(|tier| &*tier.name).collect();
    assert_eq!(
        (tiers, config.write.rules[0].tier.as_deref()),
        (vec!["a", "b"], Some("a"))
    );
    assert_eq!(config.hints.rules[0].identity.as_deref(), Some("AK"));
    assert_eq!(config.hints.tables[0].location, "s3://warehouse/sales/");
    let lookup = Desk::new().file(&text).of(Role::Lookup).config().lookup;
    assert_eq!(lookup.places[0].topology, "dc1/cluster-a/rack-1");
    assert_eq!(lookup.name.as_deref(), Some("s3.example.org"));
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
        .variable("SHOAL_LIMITS_REQUESTS", "77")
        .variable("SHOAL_LAKE_WRITE_TIMEOUT", "7s")
        .variable("SHOAL_LOG_ACCESS", "true")
        .variable("SHOAL_FRESHNESS_DEFAULT", "30s")
        .variable("PATH", "ignored")
        .config();
    assert_eq!(config.s3.listen.port(), 9500);
    assert_eq!(config.limits.requests, 77);
    assert_eq!(config.lake.write_timeout, Duration::from_secs(7));
    assert_eq!(config.log.access, AccessFormat::Events);
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
        identity.lake_account.as_ref().map(|account| &account.secret_key),
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
    let told = format!(
        "shoal.toml:3: secret_key_file {path} can be read by every user of this machine | chmod 600 {path}"
    );
    assert!(public.contains(&told), "{public:?}");
}

#[test]
fn the_file_of_a_cluster_secret_may_hold_the_one_before() {
    let desk = Desk::new();
    let load = |text: &str| {
        let path = desk.write("secret", text, 0o600);
        let file = format!(
            "[cooperation]\nmode = \"hierarchy\"\nsecret_key_file = \"{}\"",
            path.display()
        );
        Desk::new().file(&file)
    };
    let (new, old) = ("a new secret of all", "the former secret");
    let secrets = |text: &str| {
        let cooperation = load(text).config().cooperation;
        cooperation.secrets().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(secrets(&format!("{new}\n")), [new]);
    assert_eq!(secrets(&format!("{new}\n{old}\n")), [new, old]);
    for wrong in [
        "\n",
        "a new secret of all\n\nthe former secret",
        "one\ntwo\nthree",
    ] {
        let problems = load(wrong).problems();
        assert!(problems[0].contains(" is not one line or two"), "{problems:?}");
    }
    let problems = load(&format!("{new}\nshort")).problems();
    assert!(
        problems[0].contains("secret_key has fewer than 16 characters"),
        "{problems:?}"
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
fn a_lake_has_one_spelling() {
    let desk = Desk::new().file("[lake]\nendpoint = \"http://lake:9090/\"");
    assert_eq!(desk.config().lake.endpoint, "http://lake:9090");
}

#[test]
fn the_effective_configuration_hides_secrets_and_reads_back_as_itself() {
    let file = "[lake]\naccess_key = \"L\"\nsecret_key = \"hush-1\"\n[freshness]\ndefault = \"90s\"\n\
                [[freshness.rule]]\nprefix = \"s3://b/\"\nfreshness = \"immutable\"\n\
                [[write.rule]]\nprefix = \"s3://b/\"\nmode = \"through\"\n[[identity]]\n\
                access_key = \"A\"\nsecret_key = \"hush-2\"\nlake_access_key = \"B\"\nlake_secret_key = \"hush-3\"";
    let config = Desk::new().file(file).config();
    let (shown, json) = (config.to_toml(Role::Node), config.to_json(Role::Node).to_string());
    assert!(!shown.contains("hush") && !json.contains("hush") && !format!("{config:?}").contains("hush"));
    let again = Desk::new().file(&shown).config();
    assert_eq!(again.to_toml(Role::Node), shown);
    assert_eq!(
        (again.freshness.default, again.store),
        (config.freshness.default, config.store)
    );
    assert!(
        json.contains(r#""rule":[{"mode":"through","prefix":"s3://b/"}]"#),
        "{json}"
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

#[test]
fn no_timeout_of_the_lake_is_zero() {
    for key in ["answer_timeout", "write_timeout"] {
        let refused = Desk::new().file(&format!("[lake]\n{key} = \"0s\"")).load();
        let problems = refused.expect_err("nothing could be in time").problems;
        assert!(problems[0].to_string().contains(&format!("[lake] {key} is 0")));
    }
}
