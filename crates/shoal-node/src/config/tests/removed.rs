//! Settings that earlier builds had.

use super::Desk;
use crate::config::settings::REMOVED;

#[test]
fn a_setting_of_an_earlier_build_is_refused_with_what_to_write_instead() {
    for (section, key, hint) in REMOVED {
        let title = if *section == "tier" {
            "[[tier]]"
        } else {
            &format!("[{section}]")
        };
        let problems = Desk::new().file(&format!("{title}\n{key} = true")).problems();
        let expected = format!("shoal.toml:2: {title} {key} was removed | {hint}");
        assert!(problems.contains(&expected), "{problems:?}");
    }
}

#[test]
fn so_is_its_variable() {
    for (section, key, hint) in REMOVED.iter().filter(|(section, ..)| *section != "tier") {
        let variable = format!("SHOAL_{section}_{key}").to_uppercase();
        let problems = Desk::new().variable(&variable, "1").problems();
        let expected = format!("{variable}: [{section}] {key} was removed | {hint}");
        assert_eq!(problems, [expected]);
    }
}

#[test]
fn no_setting_is_removed_and_still_there() {
    for (section, key, _) in REMOVED {
        assert!(
            crate::config::settings::position(section, key).is_none(),
            "[{section}] {key}"
        );
    }
}
