//! The binary as scripts meet it: exit codes, what goes to stdout and to stderr, signals.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) fn shoal(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.args(arguments).stdin(Stdio::null());
    // The tests do not depend on the variables of the shell that runs them.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SHOAL_")) {
        command.env_remove(name);
    }
    command
}

/// `shoal dev` on free ports, so that the tests that run at the same time do not meet.
fn dev(arguments: &[&str]) -> Command {
    let mut command = shoal(&["dev"]);
    for flag in ["--s3-port", "--admin-port", "--peer-port", "--lake-port"] {
        command.args([flag, "0"]);
    }
    command.args(arguments);
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    shoal(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A server that is stopped with the test, whatever becomes of it.
struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// Everything up to a line, or to the end.
    fn read_until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for line in self.stdout.by_ref().lines().map(Result::unwrap) {
            let done = line == last;
            lines.push(line);
            if done {
                break;
            }
        }
        lines
    }

    /// Stops the server and returns its exit code. Another reader has its stderr.
    fn stop_quietly(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }

    /// Stops the server, and returns its exit code and its stderr.
    fn stop(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut said = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has exited already when the test was successful.
        let _ = self.child.kill();
    }
}

fn config(folder: &TempDir, text: &str) -> String {
    let path = folder.path().join("shoal.toml");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

/// The status of an unsigned GET.
fn status(url: &str) -> String {
    let mut socket = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    socket
        .write_all(b"GET /demo/x HTTP/1.1\r\nHost: shoal\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap_or_default().into()
}

#[test]
fn check_prints_what_is_in_force_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = config(
        &folder,
        "[[identity]]\naccess_key = \"A\"\nsecret_key = \"hush\"\n[store]\ncapacity = \"1GiB\"",
    );
    let output = run(&[
        "serve",
        "--config",
        &file,
        "--check",
        "--store-block-size",
        "1MiB",
    ]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let shown = text(&output.stdout);
    for line in [
        "capacity = \"1GiB\"",
        "block_size = \"1MiB\"",
        "access_key = \"A\"",
        "secret_key = \"[hidden]\"",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} in {shown}");
    }
    assert!(!shown.contains("hush"));

    let json = run(&["serve", "--config", &file, "--check", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&json["store"]["capacity"], &json["identity"][0]["access_key"]),
        (&"1GiB".into(), &"A".into())
    );
}

#[test]
fn a_refused_configuration_is_told_on_stderr_with_hints() {
    let folder = tempfile::tempdir().unwrap();
    let file = config(&folder, "[store]\ncapcity = \"1GiB\"\nblock_size = \"3\"");
    for verb in [
        &["serve", "--config", &file, "--check"][..],
        &["serve", "--config", &file],
    ] {
        let output = run(verb);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
        let told: Vec<_> = text(&output.stderr).lines().collect();
        assert_eq!(
            told[0],
            format!("error: {file}:2: unknown key \"capcity\" in [store]")
        );
        assert_eq!(told[1], "hint: did you mean \"capacity\"?");
        assert!(told[2].starts_with(&format!("error: {file}:3: [store] block_size cannot be \"3\"")));
        assert!(told[3].starts_with("hint: write a size"));
    }
    let flag = run(&["serve", "--store-capacty", "1GiB"]);
    assert_eq!(flag.status.code(), Some(2));
    assert!(
        text(&flag.stderr).contains("--store-capacity"),
        "{}",
        text(&flag.stderr)
    );
}

#[test]
fn a_node_serves_until_it_is_told_to_stop() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = shoal(&[
            "serve",
            "--s3-listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
        ]);
        command.args(["--node-name", "a1", "--store-path"]).arg(&store);
        let mut server = Server::start(command);
        let mut said = BufReader::new(server.child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("serving") {
            line.clear();
            assert!(
                said.read_line(&mut line).unwrap() > 0,
                "it ended before it served"
            );
        }
        assert!(line.contains("a1") && line.contains("127.0.0.1:"), "{line}");
        kill_process(Pid::from_child(&server.child), signal).unwrap();
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
        assert_eq!(server.read_until(""), [""; 0], "a node has no data for stdout");
    }
}

#[test]
fn dev_serves_a_lake_and_nodes_until_it_is_told_to_stop() {
    let mut server = Server::start(dev(&["--nodes", "2"]));
    let lines = server.read_until("ready");
    let word = |start: &str, index: usize| {
        let line = lines.iter().find(|line| line.trim_start().starts_with(start));
        line.and_then(|line| line.split_whitespace().nth(index))
            .unwrap_or_else(|| panic!("{lines:?}"))
            .to_string()
    };
    let (lake, folder) = (word("lake", 1), word("folder", 1));
    for node in ["node-0", "node-1"] {
        assert_eq!(status(&word(node, 1)), "403", "a stranger is refused");
        assert_ne!(word(node, 1), lake);
    }
    let try_it = format!("aws --endpoint-url {} s3 ls s3://demo", word("node-0", 1));
    assert!(
        lines
            .iter()
            .any(|line| line.contains("shoaldev-secret") && line.ends_with(&try_it)),
        "{lines:?}"
    );
    assert!(Path::new(&folder).join("lake/demo").is_dir());
    assert_eq!(word("back", 1), "s3://demo/back/");
    assert_eq!(server.stop(Signal::INT), (Some(0), String::new()));
    assert!(
        !Path::new(&folder).exists(),
        "a temporary folder goes with the process"
    );
}

#[test]
fn dev_keeps_a_folder_that_was_named_and_prints_data_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let mut command = dev(&["--nodes", "1", "--json", "--dir"]);
    command.arg(&kept);
    let mut server = Server::start(command);
    let mut line = String::new();
    server.stdout.read_line(&mut line).unwrap();
    let data: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(status(data["lake"].as_str().unwrap()), "403");
    assert_eq!(data["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(data["back"], "s3://demo/back/");
    assert_eq!(server.stop(Signal::TERM).0, Some(0));
    for folder in ["lake/demo", "node-0", "tier"] {
        assert!(kept.join(folder).is_dir(), "{folder}");
    }
}

#[test]
fn a_taken_port_is_told_with_its_number() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    let output = run(&[
        "dev",
        "--s3-port",
        "0",
        "--admin-port",
        "0",
        "--peer-port",
        "0",
        "--lake-port",
        &port,
    ]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    let told = text(&output.stderr);
    assert!(
        told.starts_with(&format!("error: port {port} is not free for the lake: ")),
        "{told}"
    );
    assert!(told.contains("\nhint: choose another with --lake-port"), "{told}");

    let listen = format!("127.0.0.1:{port}");
    let folder = tempfile::tempdir().unwrap();
    let mut serve = shoal(&[
        "serve",
        "--s3-listen",
        &listen,
        "--admin-listen",
        "127.0.0.1:0",
        "--store-path",
    ]);
    let output = serve.arg(folder.path().join("store")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(
        told.contains("error: node node-1 cannot start: ") && told.contains(&listen),
        "{told}"
    );
    assert!(told.contains("\nhint: another process listens there"), "{told}");
    assert_eq!(told.matches("Address already in use").count(), 1, "{told}");
    assert_eq!(told.matches("hint: ").count(), 1, "{told}");
    let last = told.trim_end().lines().last().unwrap();
    assert!(last.starts_with("hint: "), "{told}");
}

#[test]
fn a_lake_that_is_no_url_is_refused_by_the_flag_that_named_it() {
    let output = dev(&["--lake", "http://lake/path"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    assert!(
        told.starts_with("error: --lake: [lake] endpoint has a path or a query\nhint: "),
        "{told}"
    );
}

#[test]
fn a_name_server_is_checked_like_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let file = config(
        &folder,
        "[lookup]\nname = \"s3.example.org\"\nnodes = [\"http://127.0.0.1:9100\"]\n\
         [[lookup.place]]\nnetwork = \"0.0.0.0/0\"\ntopology = \"dc1\"",
    );
    let output = run(&["lookup", "--config", &file, "--check", "--lookup-answers", "2"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let shown = text(&output.stdout);
    assert!(
        shown.starts_with("[lookup]\n") && shown.contains("\nanswers = 2\n"),
        "{shown}"
    );

    let refused = run(&["lookup", "--lookup-nodes", "http://127.0.0.1:9100"]);
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(2), ""));
    let told = text(&refused.stderr);
    assert!(told.contains("error: [lookup] name is not set\nhint: "), "{told}");
}

#[test]
fn an_explanation_names_the_node_that_a_client_is_led_to() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = shoal(&[
        "serve",
        "--s3-listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
    ]);
    command
        .args(["--node-name", "a1", "--store-path"])
        .arg(folder.path().join("store"));
    command.env("NO_COLOR", "1").env("SHOAL_LOG_FORMAT", "json");
    let mut server = Server::start(command);
    let mut said = BufReader::new(server.child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("\"serving\"") {
        line.clear();
        assert!(
            said.read_line(&mut line).unwrap() > 0,
            "it ended before it served"
        );
    }
    let started: serde_json::Value = serde_json::from_str(&line).unwrap();
    let admin = format!("http://{}", started["admin"].as_str().unwrap());
    let explain = |client: &str, json: &[&str]| {
        let client = ["lookup", "explain", "--client", client];
        let configured = ["--lookup-name", "s3.example.org", "--lookup-nodes", &admin];
        run(&[&client[..], &configured, json].concat())
    };
    let json = explain("10.1.2.0/24", &["--json"]);
    assert_eq!(json.status.code(), Some(0));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let node = &json["nodes"][0];
    assert_eq!((&node["name"], &node["answered"]), (&"a1".into(), &true.into()));
    assert_eq!(
        (&node["address"], &node["state"]),
        (&started["s3"], &"serving".into())
    );
    assert_eq!(server.stop_quietly(), Some(0));

    let nobody = explain("10.1.2.3", &[]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(text(&nobody.stdout).contains(&admin), "{}", text(&nobody.stdout));
    let told = text(&nobody.stderr);
    assert!(
        told.contains("error: the answer would name no node\nhint: "),
        "{told}"
    );
}

#[test]
fn a_name_of_a_job_reaches_the_terminal_without_what_it_would_obey() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.csv");
    let mut text = "name,submitted,ended,deadline,input,input_bytes\n".to_owned();
    for day in 2..=20 {
        let times = format!("2026-11-{day:02}T02:00:00Z,2026-11-{day:02}T02:29:00Z,");
        let run = format!("etl\u{9b}31m,{times},s3://lake/dim/countries.csv,1000\n");
        text.push_str(&run);
    }
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    for more in [&[][..], &["--json"]] {
        let output = shoal(&[&["plan", "predict", path], more].concat())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            said.contains("etl\\u009b31m") && !said.contains('\u{9b}'),
            "{said}"
        );
    }
}

#[test]
fn a_shell_completes_commands_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let printed = run(&["completions", shell]);
        assert!(printed.status.success());
        let script = text(&printed.stdout);
        for word in ["prefetch", "undrain", "unknown-identities"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let completed = |line: &str| {
        let script = "source <(\"$0\" completions bash); COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
                      _shoal shoal \"${COMP_WORDS[$COMP_CWORD]}\" shoal; echo \"${COMPREPLY[@]}\"";
        let done = Command::new("bash")
            .args(["-c", script, env!("CARGO_BIN_EXE_shoal"), line])
            .output()
            .unwrap();
        text(&done.stdout).trim().to_owned()
    };
    assert_eq!(completed("shoal pref"), "prefetch");
    assert_eq!(completed("shoal serve --s3-unk"), "--s3-unknown-identities");
    assert_eq!(run(&["completions", "csh"]).status.code(), Some(2));
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    let written = run(&["man", pages.to_str().unwrap()]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    for (page, word) in [
        ("shoal.1", "prefetch"),
        ("shoal-serve.1", r"store\-block\-size"),
        ("shoal-plan-start.1", "stdin"),
    ] {
        let page = fs::read_to_string(pages.join(page)).unwrap();
        assert!(page.contains(word), "{page}");
    }
    let refused = run(&["man", "/dev/null/man1"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).starts_with("error: the manual pages cannot be written to /dev/null/man1: ")
    );
}

#[test]
fn a_doctor_and_a_bundle_say_how_a_cluster_is_without_its_secrets() {
    let mut server = Server::start(dev(&["--json", "--nodes", "2"]));
    let mut line = String::new();
    server.stdout.read_line(&mut line).unwrap();
    let started: serde_json::Value = serde_json::from_str(&line).unwrap();
    let secret = started["secret_key"].as_str().unwrap();
    let node = &started["nodes"][0];
    let (admin, s3) = (node["admin"].as_str().unwrap(), node["s3"].as_str().unwrap());

    let well = run(&["doctor", "--node", admin]);
    assert_eq!(well.status.code(), Some(0), "{}", text(&well.stdout));
    assert!(
        text(&well.stdout).contains("2 of 2 nodes answer"),
        "{}",
        text(&well.stdout)
    );

    let folder = tempfile::tempdir().unwrap();
    let file = config(
        &folder,
        &format!("[[identity]]\naccess_key = \"A\"\nsecret_key = \"{secret}\""),
    );
    let bundle = folder.path().join("bundle");
    let bundled = bundle.display().to_string();
    let arguments = ["support", &bundled, "--config", &file, "--node", admin];
    assert_eq!(run(&arguments).status.code(), Some(0));
    let files = fs::read_dir(&bundle).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.collect();
    assert_eq!(files.len(), 2 * 3 + 4 + 2, "{files:?}");
    for file in files {
        let content = fs::read_to_string(&file).unwrap();
        assert!(
            !content.is_empty() && !content.contains(secret),
            "{}",
            file.display()
        );
    }
    let again = run(&arguments);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("hint: name a folder that does not exist yet"));

    let wrong_port = run(&["doctor", "--node", s3]);
    let said = text(&wrong_port.stderr);
    assert!(
        said.contains("not an admin port") && said.contains("[admin] listen"),
        "{said}"
    );
    let refused = run(&["prefetch", "demo/", "--node", admin]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert_eq!(server.stop_quietly(), Some(0));
}
