//! Settings that earlier builds had.

use super::Desk;

#[test]
fn a_setting_of_an_earlier_build_is_refused_with_what_to_write_instead() {
    for (written, expected) in [
        (
            "[s3]\nsignature_v2 = true",
            "[s3] signature_v2 was removed | leave it out, and let clients sign with version 4",
        ),
        (
            "[write]\nallow_volatile = true",
            "[write] allow_volatile was removed | leave it out: writing back is durable now",
        ),
        (
            "[write]\nflush_interval = \"1m\"",
            "[write] flush_interval was removed | write age instead",
        ),
        (
            "[cooperation]\nencrypt = true",
            "[cooperation] encrypt was removed | leave it out: nodes always encrypt",
        ),
        (
            "[cooperation]\nencrypt = false",
            "[cooperation] encrypt was removed | leave it out: nodes always encrypt",
        ),
    ] {
        let problems = Desk::new().file(written).problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].starts_with(&format!("shoal.toml:2: {expected}")),
            "{problems:?}"
        );
    }
    let variable = Desk::new()
        .variable("SHOAL_COOPERATION_ENCRYPT", "false")
        .problems();
    assert!(
        variable[0]
            .starts_with("SHOAL_COOPERATION_ENCRYPT: [cooperation] encrypt was removed | leave it out"),
        "{variable:?}"
    );
}
