//! `[[tier]]` and the rules that write back: how they are parsed, and what is rejected.

use std::time::Duration;

use shoal_registry::Lifetime;

use super::Desk;
use crate::config::{Config, Fallback, PackConfig, RegistryConfig, Role, S3StoreConfig, TierStoreConfig};

const FOLDER: &str = "[[tier]]\nname = \"a\"\nfolder = \"/ssd/tier\"\ncapacity = \"1GiB\"\n";
const S3: &str = "[[tier]]\nname = \"a\"\nendpoint = \"https://store:9000\"\nbucket = \"tier\"\ncapacity = \"1GiB\"\n\
                  registry = \"https://etcd-1:2379, https://etcd-2:2379/\"\n";
const RULE: &str = "[[write.rule]]\nprefix = \"s3://b/tmp/\"\nmode = \"back\"\n";
const READER: &str = "[[identity]]\naccess_key = \"consumer\"\nsecret_key = \"hush\"\n";
/// An address of this node that other machines can reach.
const CLUSTER: &str =
    "[cooperation]\nmode = \"hierarchy\"\nlisten = \"10.0.0.1:9200\"\nsecret_key = \"0123456789abcdef\"\n";

fn problems_of(file: &str) -> Vec<String> {
    Desk::new().file(file).problems()
}

/// Asserts that each file has this problem and no other.
fn refuses(cases: &[(&str, &str)]) {
    for (file, expected) in cases {
        let problems = problems_of(file);
        assert_eq!(problems.len(), 1, "{file}\n{problems:?}");
        assert!(problems[0].starts_with(expected), "{file}\n{problems:?}");
        assert!(problems[0].contains(" | "), "no hint: {problems:?}");
    }
}

#[test]
fn a_tier_of_one_machine_is_a_folder_with_its_registry_in_it() {
    let config = Desk::new().file(&format!("{FOLDER}{RULE}")).config();
    let [tier] = &config.tiers[..] else {
        panic!("{:?}", config.tiers)
    };
    assert_eq!(
        (&*tier.name, tier.capacity_bytes, tier.inline_bytes),
        ("a", 1 << 30, 4 << 10)
    );
    assert_eq!(tier.store, TierStoreConfig::Folder("/ssd/tier".into()));
    assert_eq!(
        tier.registry,
        RegistryConfig::Embedded("/ssd/tier/registry".into())
    );
    let elsewhere = Desk::new()
        .file(&format!("{FOLDER}registry = \"/nvme/registry\""))
        .config();
    assert_eq!(
        elsewhere.tiers[0].registry,
        RegistryConfig::Embedded("/nvme/registry".into())
    );
}

#[test]
fn a_tier_of_a_cluster_is_a_bucket_and_an_etcd() {
    let desk = Desk::new();
    let secret = desk.write("secret", "hush\n", 0o600);
    let secret = secret.display();
    let config = desk
        .file(&format!(
            "{CLUSTER}{}access_key = \"AK\"\nsecret_key_file = \"{secret}\"\nclass_large = \"EC42\"\n\
             inline = \"64KiB\"\nregistry_password_file = \"{secret}\"\nregistry_quota = \"8GiB\"\n{RULE}",
            S3.replace("https://etcd-1", "https://shoal@etcd-1")
        ))
        .config();
    let TierStoreConfig::S3(store) = &config.tiers[0].store else {
        panic!("{:?}", config.tiers)
    };
    let keys = store.keys.as_ref().unwrap();
    assert_eq!((&*keys.access_key, keys.secret_key.expose()), ("AK", "hush"));
    assert_eq!((&*store.endpoint, &*store.bucket), ("https://store:9000", "tier"));
    assert_eq!(store.region, S3StoreConfig::REGION);
    assert_eq!(store.class_large.as_deref(), Some("EC42"));
    let RegistryConfig::Etcd(etcd) = &config.tiers[0].registry else {
        panic!("{:?}", config.tiers)
    };
    assert_eq!(etcd.endpoints, "https://etcd-1:2379,https://etcd-2:2379");
    let user = etcd.user.as_ref().unwrap();
    assert_eq!((&*user.name, user.password.expose()), ("shoal", "hush"));
    assert_eq!(etcd.quota_bytes, Some(8 << 30));
    assert_eq!(config.tiers[0].inline_bytes, 64 << 10);
}

#[test]
fn a_rule_says_into_which_tier_and_for_how_long() {
    let second = FOLDER
        .replace("\"a\"", "\"b\"")
        .replace("/ssd/tier", "/ssd/other");
    let file = format!(
        "[write]\nage = \"2m\"\n{FOLDER}{second}{RULE}tier = \"b\"\nlifetime = \"short\"\nfallback = \"refuse\"\n\
         readers = [\"consumer\"]\n{READER}"
    );
    let write = Desk::new().file(&file).config().write;
    assert_eq!(write.rules[0].readers, ["consumer"]);
    assert_eq!(write.rules[0].pack, None);
    assert_eq!(write.rules[0].tier.as_deref(), Some("b"));
    assert_eq!(write.rules[0].lifetime, Lifetime::Short);
    assert_eq!(write.rules[0].fallback, Fallback::Refuse);
    let times = [write.age, write.short_age(), write.permission];
    assert_eq!(
        times,
        [
            Duration::from_mins(2),
            Duration::from_mins(10),
            Duration::from_mins(1)
        ]
    );
}

#[test]
fn a_rule_packs_only_if_it_says_so_and_names_a_keeper() {
    let pack_of = |lines: &str| {
        let file = format!("{FOLDER}{RULE}pack_as = \"consumer\"\n{lines}\n{READER}");
        Desk::new().file(&file).config().write.rules[0].pack.clone()
    };
    let default = PackConfig {
        below_bytes: 4 << 20,
        pack_bytes: 32 << 20,
        idle: Duration::from_secs(10),
        keeper: "consumer".into(),
    };
    assert_eq!(pack_of("pack = true"), Some(default));
    let set = "pack = true\npack_below = \"1MiB\"\npack_bytes = \"8MiB\"\npack_idle = \"1m\"";
    let set = pack_of(set).unwrap();
    assert_eq!((set.below_bytes, set.pack_bytes), (1 << 20, 8 << 20));
    assert_eq!(set.idle, Duration::from_mins(1));

    let with = |lines: &str| format!("{FOLDER}{RULE}{lines}\n{READER}");
    let no_slash = RULE.replace("tmp/", "tmp");
    refuses(&[
        (
            &with("pack = true"),
            "shoal.toml:5: [[write.rule]] has no pack_as | add a line",
        ),
        (
            &with("pack_below = \"1MiB\""),
            "shoal.toml:8: [[write.rule]] pack_below stands without pack = true | leave it out",
        ),
        (
            &with("pack = true\npack_as = \"consumr\""),
            "shoal.toml:9: [[write.rule]] pack_as names \"consumr\", which is the access_key of no [[identity]] \
             | did you mean \"consumer\"?",
        ),
        (
            &with("pack = true\npack_as = \"consumer\"\npack_below = \"64MiB\""),
            "shoal.toml:10: [[write.rule]] pack_below is not between 1 and pack_bytes | leave it out",
        ),
        (
            &with("pack = true\npack_as = \"consumer\"\npack_bytes = \"2GiB\""),
            "shoal.toml:10: [[write.rule]] pack_bytes is not between 64KiB and 1GiB | leave it out",
        ),
        (
            &with("pack = true\npack_as = \"consumer\"\npack_idle = \"2h\""),
            "shoal.toml:10: [[write.rule]] pack_idle is more than 1h | leave it out",
        ),
        (
            &format!("{FOLDER}{no_slash}pack = true\npack_as = \"consumer\"\n{READER}"),
            "shoal.toml:8: [[write.rule]] pack needs a prefix that ends with a slash",
        ),
        (
            &with(
                "pack = true\npack_as = \"consumer\"\n[[write.rule]]\nprefix = \"s3://b/tmp/x/\"\nmode = \"around\"",
            ),
            "shoal.toml:8: [[write.rule]] pack stands beside the rule for \"s3://b/tmp/x/\"",
        ),
    ]);
}

#[test]
fn the_effective_configuration_hides_the_keys_of_a_tier_and_reads_back_as_itself() {
    let tiers = format!("{S3}access_key = \"AK\"\nsecret_key = \"hush\"\n{RULE}");
    for file in [
        &tiers,
        &format!("{FOLDER}{RULE}lifetime = \"short\"\nreaders = \"consumer\"\n{READER}"),
        &format!("{FOLDER}{RULE}pack = true\npack_as = \"consumer\"\npack_idle = \"1s\"\n{READER}"),
    ] {
        let config = Desk::new().file(file).config();
        let (shown, json) = (config.to_toml(Role::Node), config.to_json(Role::Node));
        assert!(
            !shown.contains("hush") && !json.to_string().contains("hush"),
            "{shown}"
        );
        assert_eq!(json["tier"][0]["name"], "a");
        let again = Desk::new().file(&shown).config();
        assert_eq!(again.to_toml(Role::Node), shown);
        assert_eq!(again.write, config.write);
        assert_eq!(again.tiers[0].registry, config.tiers[0].registry);
    }
    let nothing = Config::default().to_toml(Role::Node);
    assert!(!nothing.contains("[[tier]]"), "{nothing}");
}

#[test]
fn write_back_is_refused_as_the_default_and_without_a_tier() {
    refuses(&[
        (
            "[write]\ndefault = \"back\"",
            "shoal.toml:2: [write] default cannot be \"back\" | write [[write.rule]]",
        ),
        (
            RULE,
            "shoal.toml:3: [[write.rule]] mode cannot be \"back\" without a [[tier]] | write [[tier]] with",
        ),
        (
            &format!("{}{FOLDER}", RULE.replace("/tmp/", "")),
            "shoal.toml:2: [[write.rule]] prefix \"s3://b\" does not end the bucket's name | write s3://bucket/",
        ),
    ]);
}

#[test]
fn times_of_writing_back_have_bounds() {
    refuses(&[
        (
            "[write]\nage = \"900ms\"",
            "shoal.toml:2: [write] age is not between 1s and 7d",
        ),
        (
            "[write]\nage = \"8d\"",
            "shoal.toml:2: [write] age is not between 1s and 7d",
        ),
        (
            "[write]\npermission = \"11m\"",
            "shoal.toml:2: [write] permission is longer than 10m",
        ),
    ]);
    let longest = Desk::new().file("[write]\nage = \"7d\"").config().write;
    assert_eq!(longest.short_age(), longest.age);
}

#[test]
fn a_rule_names_a_tier_that_is_there_and_only_if_it_writes_back() {
    let second = FOLDER
        .replace("\"a\"", "\"spare\"")
        .replace("/ssd/tier", "/ssd/other");
    let two = format!("{RULE}{FOLDER}{second}");
    let with = |line: &str| two.replacen("\"back\"\n", &format!("\"back\"\n{line}\n"), 1);
    let through = |line: &str| format!("{}{line}\n{FOLDER}", RULE.replace("back", "through"));
    refuses(&[
        (
            &two,
            "shoal.toml:3: [[write.rule]] mode = \"back\" does not say into which tier | add tier = with one of a, spare",
        ),
        (
            &with("tier = \"spar\""),
            "shoal.toml:4: [[write.rule]] tier cannot be \"spar\" | did you mean \"spare\"?",
        ),
        (
            &with("tier = \"zzz\""),
            "shoal.toml:4: [[write.rule]] tier cannot be \"zzz\" | the tiers are a, spare",
        ),
        (
            &with("lifetime = \"long\""),
            "shoal.toml:4: [[write.rule]] lifetime cannot be \"long\" | write \"normal\" or \"short\"",
        ),
        (
            &with("fallback = \"wait\""),
            "shoal.toml:4: [[write.rule]] fallback cannot be \"wait\" | write \"through\" or \"refuse\"",
        ),
        (
            &format!(
                "{}{READER}",
                with("tier = \"a\"\nreaders = [\"consumer\", \"consumr\"]")
            ),
            "shoal.toml:5: [[write.rule]] readers names \"consumr\", which is the access_key of no [[identity]] | did you mean \"consumer\"?",
        ),
        (
            &with("tier = \"a\"\nreaders = \"zzz\""),
            "shoal.toml:5: [[write.rule]] readers names \"zzz\", which is the access_key of no [[identity]] | add its [[identity]]",
        ),
        (
            &through("readers = [\"AK2\"]"),
            "shoal.toml:4: [[write.rule]] readers stands beside mode = \"through\" | leave it out",
        ),
        (
            &through("fallback = \"refuse\""),
            "shoal.toml:4: [[write.rule]] fallback stands beside mode = \"through\" | leave it out",
        ),
        (
            &through("tier = \"a\""),
            "shoal.toml:4: [[write.rule]] tier stands beside mode = \"through\" | leave it out",
        ),
        (
            &through("lifetime = \"normal\""),
            "shoal.toml:4: [[write.rule]] lifetime stands beside mode = \"through\"",
        ),
    ]);
}

#[test]
fn a_tier_has_a_name_a_store_some_room_and_a_registry() {
    let without = |file: &str, key: &str| {
        let lines = file.lines().filter(|line| !line.starts_with(&format!("{key} =")));
        lines.collect::<Vec<_>>().join("\n")
    };
    let with = |file: &str, line: &str| format!("{file}{line}");
    refuses(&[
        (
            "[tier]\nname = \"a\"",
            "shoal.toml:1: [tier] is a list of tables | write [[tier]]",
        ),
        (
            "[[tiers]]\nname = \"a\"",
            "shoal.toml:1: unknown section [tiers] | did you mean [[tier]]?",
        ),
        (
            &with(FOLDER, "capcity = 1"),
            "shoal.toml:5: unknown key \"capcity\" in [[tier]] | did you mean",
        ),
        (&without(FOLDER, "name"), "shoal.toml:1: [[tier]] has no name"),
        (
            &FOLDER.replace("\"a\"", "\"A b\""),
            "shoal.toml:2: [[tier]] name cannot be \"A b\" | use 1 to 32",
        ),
        (
            &without(FOLDER, "capacity"),
            "shoal.toml:1: [[tier]] has no capacity",
        ),
        (
            &FOLDER.replace("1GiB", "0B"),
            "shoal.toml:4: [[tier]] capacity is 0",
        ),
        (
            &with(FOLDER, "inline = \"65KiB\""),
            "shoal.toml:5: [[tier]] inline is more than 64.0 KiB | a registry orders names",
        ),
        (
            &without(FOLDER, "folder"),
            "shoal.toml:1: [[tier]] has neither folder nor endpoint | add endpoint",
        ),
        (
            &with(S3, "folder = \"/ssd/tier\""),
            "shoal.toml:3: [[tier]] has both folder and endpoint | keep one",
        ),
        (&without(S3, "bucket"), "shoal.toml:1: [[tier]] has no bucket"),
        (
            &with(FOLDER, "bucket = \"b\""),
            "shoal.toml:5: [[tier]] bucket stands beside a folder | leave it out",
        ),
        (
            &without(S3, "registry"),
            "shoal.toml:1: [[tier]] has no registry | add registry = \"https://",
        ),
        (
            &with(FOLDER, "registry_key = \"k\""),
            "shoal.toml:5: [[tier]] registry_key stands beside a registry in a folder | leave it out",
        ),
        (
            &with(FOLDER, "ca_file = \"c\""),
            "shoal.toml:5: [[tier]] ca_file stands beside a folder | leave it out",
        ),
    ]);
}

#[test]
fn addresses_and_accounts_of_a_tier_are_checked_as_those_of_the_lake() {
    let with = |line: &str| format!("{S3}{line}");
    let instead = |old: &str, new: &str| S3.replace(old, new);
    refuses(&[
        (
            &instead("https://store:9000", "store:9000"),
            "shoal.toml:3: [[tier]] endpoint begins with neither http:// nor https://",
        ),
        (
            &instead("https://store:9000", "http://localhost:9000"),
            "shoal.toml:3: [[tier]] endpoint is an address of this node itself",
        ),
        (
            &instead("\"tier\"", "\"tier/x\""),
            "shoal.toml:4: [[tier]] bucket cannot be \"tier/x\"",
        ),
        (
            &with("region = \"us east\""),
            "shoal.toml:7: [[tier]] region is not a region",
        ),
        (
            &with("class_large = \"a b\""),
            "shoal.toml:7: [[tier]] class_large is not a storage class",
        ),
        (
            &with("ca_file = \"/absent\""),
            "shoal.toml:7: [[tier]] ca_file cannot be read: No such file",
        ),
        (
            &with("access_key = \"A\""),
            "shoal.toml:7: [[tier]] access_key has no secret_key",
        ),
        (
            &with("secret_key = \"s\""),
            "shoal.toml:7: [[tier]] secret_key has no access_key",
        ),
        (
            &with("access_key = \"A/B\"\nsecret_key = \"s\""),
            "shoal.toml:7: [[tier]] access_key has characters that a signature cannot carry",
        ),
        (
            &with("access_key = \"A\"\nsecret_key = \"s\"\nsecret_key_file = \"f\""),
            "shoal.toml:9: [[tier]] has both secret_key and secret_key_file",
        ),
        (
            &instead("https://etcd-2:2379/", "https://etcd-2:2379/v3"),
            "shoal.toml:6: [[tier]] registry names \"https://etcd-2:2379/v3\", which has a path",
        ),
        (
            &instead(
                "https://etcd-1:2379, https://etcd-2:2379/",
                "etcd-1:2379,etcd-2:2379",
            ),
            "shoal.toml:6: [[tier]] registry is neither a URL nor a folder | write https://etcd-1:2379",
        ),
        (
            &instead("https://etcd-1", "https://shoal@etcd-1"),
            "shoal.toml:6: [[tier]] registry has a user without a password | add registry_password_file",
        ),
        (
            &with("registry_password_file = \"/absent\""),
            "shoal.toml:7: [[tier]] registry_password_file has no user | write https://USER@HOST:PORT",
        ),
        (
            &instead("https://etcd-1", "https://shoal@etcd-1")
                .replace("capacity", "registry_password_file = \"/absent\"\ncapacity"),
            "shoal.toml:5: registry_password_file /absent cannot be read: No such file",
        ),
        (
            &with("registry_key = \"/dev/null\""),
            "shoal.toml:7: [[tier]] registry_key has no registry_certificate",
        ),
        (
            &with("registry_certificate = \"/absent\"\nregistry_key = \"/dev/null\""),
            "shoal.toml:7: [[tier]] registry_certificate cannot be read",
        ),
    ]);
    let password = problems_of(&instead("https://etcd-1", "https://shoal:hush@etcd-1"));
    assert!(
        password[0].starts_with("shoal.toml:6: [[tier]] registry holds a password | write it into a file"),
        "{password:?}"
    );
    assert!(!password[0].contains("hush"), "{password:?}");
}

#[test]
fn no_two_tiers_share_a_name_a_folder_or_a_bucket() {
    let second = |file: &str, old: &str, new: &str| file.replace("\"a\"", "\"b\"").replace(old, new);
    let both = |second: &str| format!("{FOLDER}{second}");
    refuses(&[
        (
            &both(&FOLDER.replace("/ssd/tier", "/ssd/other")),
            "shoal.toml:6: [[tier]] name \"a\" is written twice | the first stands at shoal.toml:2",
        ),
        (
            &both(&second(FOLDER, "/ssd/tier", "/ssd/tier/of/b")),
            "shoal.toml:7: [[tier]] folder lies in or around a folder of the [[tier]] a",
        ),
        (
            &both(&second(
                S3,
                "https://etcd-1:2379, https://etcd-2:2379/",
                "/ssd/tier/registry",
            )),
            "shoal.toml:10: [[tier]] registry lies in or around a folder of the [[tier]] a",
        ),
        (
            &format!("{S3}{}", second(S3, "https://store:9000", "https://STORE:9000/")),
            "shoal.toml:10: [[tier]] bucket \"tier\" is that of the [[tier]] a, too",
        ),
    ]);
    let one_etcd = format!("{S3}{}", second(S3, "\"tier\"", "\"other\""));
    assert!(
        Desk::new().file(&one_etcd).load().is_ok(),
        "their keys begin with their names"
    );
}

#[test]
fn a_tier_is_apart_from_the_cache_from_its_own_registry_and_from_the_data_of_clients() {
    let at_lake = format!("[lake]\nendpoint = \"https://store:9000\"\n{S3}");
    let rule = |prefix: &str| format!("[[write.rule]]\nprefix = \"{prefix}\"\nmode = \"around\"\n");
    refuses(&[
        (
            &format!("[store]\npath = \"/ssd/tier/cache\"\n{FOLDER}"),
            "shoal.toml:5: [[tier]] folder lies in or around [store] path (/ssd/tier/cache)",
        ),
        (
            &format!("[store]\npath = \"/ssd\"\n{FOLDER}"),
            "shoal.toml:5: [[tier]] folder lies in or around [store] path (/ssd)",
        ),
        (
            &format!("{FOLDER}registry = \"/ssd/tier/x\""),
            "shoal.toml:5: [[tier]] registry lies in or around the folder of its tier",
        ),
        (
            &format!("{at_lake}{}", rule("s3://tier/x/")),
            "shoal.toml:10: [[write.rule]] prefix \"s3://tier/x/\" is in the bucket of the [[tier]] a",
        ),
    ]);
    let other_bucket = format!("{at_lake}{}", rule("s3://tier-2/x/"));
    assert!(Desk::new().file(&other_bucket).load().is_ok());
}

#[test]
fn a_folder_is_refused_where_other_machines_have_nodes() {
    refuses(&[
        (
            &format!("{CLUSTER}{FOLDER}"),
            "shoal.toml:7: [[tier]] folder is a folder of this machine, and nodes on others (10.0.0.1:9200) cannot use it",
        ),
        (
            &format!(
                "{CLUSTER}{}",
                S3.replace("https://etcd-1:2379, https://etcd-2:2379/", "/ssd/registry")
            ),
            "shoal.toml:10: [[tier]] registry is a folder of this machine, and nodes on others",
        ),
    ]);
    let one_machine = CLUSTER.replace("10.0.0.1", "127.0.0.1");
    for file in [format!("{CLUSTER}{S3}"), format!("{one_machine}{FOLDER}")] {
        assert!(Desk::new().file(&file).load().is_ok(), "{file}");
    }
}

#[test]
fn links_between_folders_are_followed() {
    let desk = Desk::new();
    let folder = desk.folder.path().display();
    std::fs::create_dir(desk.folder.path().join("cache")).unwrap();
    std::os::unix::fs::symlink("cache", desk.folder.path().join("link")).unwrap();
    let file = format!(
        "[store]\npath = \"{folder}/cache\"\n{}",
        FOLDER.replace("/ssd/tier", &format!("{folder}/link/tier"))
    );
    let problems = desk.file(&file).problems();
    assert!(
        problems[0].contains("folder lies in or around [store] path"),
        "{problems:?}"
    );
}
