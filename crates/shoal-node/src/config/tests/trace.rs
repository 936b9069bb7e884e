//! `[trace]`: the collector of traces, and what it asks of the node.

use super::Desk;

#[test]
fn the_headers_for_a_collector_stand_in_a_file_one_on_a_line() {
    let desk = Desk::new();
    let file = desk.write(
        "collector-headers",
        "authorization: Bearer x\nx-tenant: one\n",
        0o600,
    );
    let with = |endpoint: &str, rest: &str| {
        format!(
            "[trace]\nendpoint = \"{endpoint}\"\nheaders_file = \"{}\"\n{rest}",
            file.display()
        )
    };
    let config = Desk::new().file(&with("https://collector", "")).config();
    let headers = config.trace.headers.as_ref().unwrap();
    assert_eq!(headers.expose(), "authorization: Bearer x\nx-tenant: one");
    assert!(!format!("{config:?}").contains("Bearer"), "headers are secret");
    assert_eq!(
        Desk::new()
            .file(&with("http://127.0.0.1:4318", ""))
            .config()
            .trace
            .headers,
        config.trace.headers,
        "an agent on this machine"
    );

    let problem = |text: &str| {
        let problems = Desk::new().file(text).problems();
        assert_eq!(problems.len(), 1, "{text}\n{problems:?}");
        problems[0].clone()
    };
    let open = problem(&with("http://collector:4318", ""));
    assert!(
        open.starts_with("shoal.toml:3: [trace] headers_file would pass the network unencrypted"),
        "{open}"
    );
    let absent = problem(&with("https://collector", "ca_file = \"/absent\""));
    assert!(
        absent.starts_with("shoal.toml:4: [trace] ca_file cannot be read"),
        "{absent}"
    );
    let inline = problem("[trace]\nheaders = \"authorization: Bearer x\"");
    assert!(
        inline.contains("path of that as headers_file") && !inline.contains("Bearer"),
        "{inline}"
    );
    let wrong = desk.write("wrong", "authorization: Bearer x\nhost: other\n", 0o600);
    let wrong = problem(&format!("[trace]\nheaders_file = \"{}\"", wrong.display()));
    assert!(
        wrong.contains("has headers whose line 2 is none") && !wrong.contains("Bearer"),
        "{wrong}"
    );
}

#[test]
fn other_headers_for_a_collector_need_a_restart() {
    let desk = Desk::new();
    let config = |text: &str| {
        let file = desk.write("collector-headers", text, 0o600);
        let lines = format!("[trace]\nheaders_file = \"{}\"", file.display());
        Desk::new().file(&lines).config()
    };
    let [one, other] = ["a: 1", "a: 2"].map(config);
    assert_eq!(crate::config::differences(&one, &other), ["[trace] headers_file"]);
}
