//! `[[key_source]]`: services that know the secrets of clients.

use super::Desk;

fn refuses(file: &str, expected: &str) {
    let problems = Desk::new().file(file).problems();
    assert_eq!(problems.len(), 1, "{file}\n{problems:?}");
    assert!(problems[0].starts_with(expected), "{file}\n{}", problems[0]);
}

#[test]
fn a_key_source_says_how_and_where_it_is_asked() {
    let http = |line: &str| format!("[[key_source]]\nkind = \"http\"\n{line}");
    refuses(&http(""), "shoal.toml:1: [[key_source]] has no url");
    refuses(
        &http("url = \"http://keys/v1\""),
        "shoal.toml:3: [[key_source]] url is http to another machine, and the answers are secrets",
    );
    refuses(
        &http("url = \"https://keys/v1?x=1\""),
        "shoal.toml:3: [[key_source]] url has a query",
    );
    refuses(
        &http("url = \"https://keys\"\ncache_time = \"2h\""),
        "shoal.toml:4: [[key_source]] cache_time is not between 1s and 1h",
    );
    refuses(
        &http("url = \"https://keys\"\nheaders = \"none\""),
        "shoal.toml:4: [[key_source]] has headers whose line 1 is none",
    );
    refuses(
        &http("url = \"https://keys\"\naccess_key = \"a\"\nsecret_key = \"s\""),
        "shoal.toml:4: [[key_source]] has an access_key beside kind",
    );
    refuses(
        "[[key_source]]\nkind = \"ceph\"",
        "shoal.toml:1: [[key_source]] has no access_key",
    );
    refuses(
        "[[key_source]]\nkind = \"ldap\"",
        "shoal.toml:2: [[key_source]] kind",
    );
    let written = http("url = \"https://keys/v1/\"\nheaders = \"Authorization: Bearer x\"");
    let config = Desk::new().file(&written).config();
    let source = &config.key_sources[0];
    assert_eq!(source.url.as_deref(), Some("https://keys/v1"));
    assert_eq!(source.cache_time, std::time::Duration::from_mins(1));
    assert!(!format!("{config:?}").contains("Bearer"), "headers are secret");
}
