//! Errors about unusable files name the file and the remedy.

use super::{TlsError, TlsReloader, is_worth_reporting};

fn data(name: &str) -> String {
    format!("{}/tests/data/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn error_of(certificate: &str, key: &str) -> (TlsError, String) {
    let error = TlsReloader::load(data(certificate), data(key), None)
        .err()
        .unwrap();
    let text = error.to_string();
    assert!(text.contains("\nhint: "), "{text}");
    (error, text)
}

#[test]
fn every_broken_file_is_named() {
    let (_, text) = error_of("missing.pem", "first.key");
    assert!(
        text.starts_with("cannot read ") && text.contains("missing.pem"),
        "{text}"
    );
    let (_, text) = error_of("first.key", "first.key");
    assert!(text.contains("first.key holds no certificate"), "{text}");
    let (_, text) = error_of("first.pem", "first.pem");
    assert!(text.contains("first.pem holds no private key"), "{text}");
    let (_, text) = error_of("first.pem", "second.key");
    assert!(text.contains("cannot be used: "), "{text}");
    assert!(
        text.contains("first.pem") && text.contains("second.key"),
        "{text}"
    );
}

#[test]
fn an_error_never_shows_the_key() {
    let key = std::fs::read_to_string(data("second.key")).unwrap();
    let (error, text) = error_of("first.pem", "second.key");
    let shown = format!("{text} {error:?}");
    assert!(
        !key.lines()
            .filter(|line| !line.starts_with('-'))
            .any(|line| shown.contains(line))
    );
}

#[test]
fn a_lasting_failure_is_told_from_the_second_look_on_but_not_every_time() {
    let told: Vec<u32> = (0..3000)
        .filter(|&failures| is_worth_reporting(failures))
        .collect();
    assert_eq!(told, [2, 720, 1440, 2160, 2880]);
}
