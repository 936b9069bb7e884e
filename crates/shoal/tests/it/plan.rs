//! `shoal plan`: from a history to a plan, and its answers about the plan. The tutorial is one of the tests.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use shoal_plan::Document;
use shoal_plan::document::Extent;
use tempfile::TempDir;

use crate::commands::shoal;

const GIB: u64 = 1 << 30;

/// Returns true if the planner is beside `shoal`. Only a script that names the skipped tests may do without
/// it.
fn has_planner() -> bool {
    let beside = Path::new(env!("CARGO_BIN_EXE_shoal")).with_file_name("shoal-planner");
    if beside.exists() {
        return true;
    }
    assert!(
        std::env::var_os("SHOAL_TESTS_WITHOUT_PLANNER").is_some(),
        "{} is missing\nhint: cargo build --package shoal-planner",
        beside.display()
    );
    eprintln!("skipped: the planner cannot be compiled on this machine");
    false
}

/// Three weeks of jobs: two read yesterday's orders in the night, one reads the hour before, every hour.
fn history(folder: &TempDir) -> String {
    let mut text = "name,submitted,ended,deadline,input,input_bytes\n".to_owned();
    for day in 2..=20 {
        let before = day - 1;
        for (name, at, deadline) in [
            ("etl", "02:00:00", "02:30:00"),
            ("report", "02:10:00", "02:40:00"),
        ] {
            let begin = format!("2026-11-{day:02}T{at}Z,2026-11-{day:02}T02:29:00Z");
            let orders = format!("s3://lake/orders/dt=2026-11-{before:02}/,{}", 40 * GIB);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name},{begin},2026-11-{day:02}T{deadline}Z,{orders}");
            let _ = writeln!(text, "{name},{begin},,s3://lake/dim/countries.csv,{GIB}");
        }
        for hour in 0..24 {
            let begin = format!("2026-11-{day:02}T{hour:02}:05:00Z,2026-11-{day:02}T{hour:02}:15:00Z");
            let before = day * 24 + hour - 1;
            let clicks = format!(
                "s3://lake/clicks/2026/11/{:02}/{:02}/,{GIB}",
                before / 24,
                before % 24
            );
            let _ = writeln!(text, "hourly,{begin},,{clicks}");
        }
    }
    file(folder, "jobs.csv", &text)
}

fn file(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn plan(arguments: &[&str]) -> Output {
    shoal(&["plan"]).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Stdout of `shoal plan` with these arguments, which must succeed.
fn output_of(arguments: &[&str]) -> String {
    let output = plan(arguments);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout).to_owned()
}

const TERMS: [&str; 8] = [
    "--from",
    "2026-11-21",
    "--window",
    "4h",
    "--bandwidth",
    "300Mbit",
    "--cache",
    "100GiB",
];

#[test]
fn a_history_becomes_a_plan_with_all_that_carrying_it_out_needs() {
    if !has_planner() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let history = history(&folder);
    let arguments = [&[history.as_str()], &TERMS[..]].concat();
    let output = plan(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).starts_with("6 of 6 jobs meet their deadlines, with "),
        "{}",
        text(&output.stderr)
    );
    let document: Document = serde_json::from_slice(&output.stdout).unwrap();
    document.check().unwrap();
    assert_eq!(document.epoch_ms, 1_795_219_200_000);
    let etl = document
        .request
        .jobs
        .iter()
        .position(|job| job.name.starts_with("etl@"))
        .unwrap();
    let job = &document.request.jobs[etl];
    assert_eq!(
        (job.name.as_str(), job.submit_s, job.deadline_s),
        ("etl@2026-11-21T02:00:00Z", 7_200.0, 9_000.0)
    );
    assert_eq!(document.jobs[etl].name, "etl");
    let orders = "s3://lake/orders/dt=2026-11-20/";
    assert_eq!(job.inputs, [orders, "s3://lake/dim/countries.csv"]);
    let number = document
        .request
        .files
        .iter()
        .position(|file| file.name == orders)
        .unwrap();
    assert_eq!(document.request.files[number].bytes, 40 * GIB);
    assert_eq!(
        (
            document.files[number].path.as_str(),
            document.files[number].extent
        ),
        (orders, Extent::Prefix)
    );
    // 80 GiB in half an hour need more than the link has: orders are fetched once, before etl comes.
    let planned = document
        .plan
        .files
        .iter()
        .find(|file| file.file == orders)
        .unwrap();
    let blocks: u64 = planned.transfers.iter().map(|transfer| transfer.blocks).sum();
    assert!(blocks * (4 << 20) > 30 * GIB, "{planned:?}");
    let kept_until = planned
        .cached
        .iter()
        .map(|cached| cached.until_s)
        .fold(0.0, f64::max);
    assert!(
        kept_until >= 9_600.0,
        "the report reads them as well: {planned:?}"
    );
    assert!(planned.evictions.iter().all(|eviction| eviction.at_s >= 9_600.0));
    // An hour's clicks are not in the lake before the hour is over.
    let clicks = "s3://lake/clicks/2026/11/21/01/";
    let available = document
        .request
        .files
        .iter()
        .find(|file| file.name == clicks)
        .unwrap();
    assert_eq!(available.available_s, Some(7_200.0));
    let fetched = document.plan.files.iter().find(|file| file.file == clicks);
    let mut transfers = fetched.iter().flat_map(|file| &file.transfers);
    assert!(transfers.all(|transfer| transfer.start_s >= 7_200.0));
    // The same history gives the same plan.
    assert_eq!(plan(&arguments).stdout, output.stdout);
}

#[test]
fn an_old_history_is_planned_with_a_warning() {
    if !has_planner() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let terms = [
        "--from",
        "2026-12-21",
        "--window",
        "1h",
        "--bandwidth",
        "1Gbit",
        "--cache",
        "1TiB",
    ];
    let output = plan(&[&[history(&folder).as_str()], &terms[..]].concat());
    assert_eq!(output.status.code(), Some(0));
    assert!(
        text(&output.stderr).starts_with("warning: the window begins at 2026-12-21T00:00:00Z, long after"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn what_the_cache_holds_is_not_fetched_again() {
    if !has_planner() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let history = history(&folder);
    let held = "{\"path\": \"s3a://lake/orders/dt=2026-11-20/part-0\", \"bytes\": 42949672960}\n\
                {\"path\": \"s3://lake/of-no-job/\", \"bytes\": 5}\n";
    let held = file(&folder, "held", held);
    let arguments = [
        &[history.as_str(), "--held", &held, "--explain", "etl"],
        &TERMS[..],
    ]
    .concat();
    let told = output_of(&arguments);
    assert!(
        told.contains(
            "  s3://lake/orders/dt=2026-11-20/ (40.0 GiB)\n    40.0 GiB are in the cache already\n"
        ),
        "{told}"
    );
    let output = plan(&arguments);
    let note = "note: 1 path of the 2 that --held names are no input of a job";
    assert!(text(&output.stderr).contains(note), "{}", text(&output.stderr));
    let broken = file(&folder, "broken", "\n{\"path\": 5}\n");
    let output = plan(&[&[history.as_str(), "--held", &broken], &TERMS[..]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("broken:2: "),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_plan_answers_questions() {
    if !has_planner() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let made = output_of(&[&[history(&folder).as_str()], &TERMS[..]].concat());
    let made = file(&folder, "plan", &made);
    let report = output_of(&["--plan", &made, "--explain", "report@2026-11-21T02:10:00Z"]);
    for part in [
        "report@2026-11-21T02:10:00Z: planned, meets its deadline\n",
        "  it is submitted at 2026-11-21 02:10:00 and reads 41.0 GiB of 2 inputs\n",
        "  its deadline is 2026-11-21 02:40:00, 0:30:00 later (its slack)\n  over an idle link, reading takes 0:19:34\n",
        " are fetched ",
        "    what is cached is pinned until 2026-11-21 02:40:00\n",
        "; the deadline is the one that the history gives\n",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    // All runs of a job.
    let hourly = output_of(&["--plan", &made, "--explain", "hourly"]);
    assert_eq!(
        hourly.matches(": planned, meets its deadline\n").count(),
        4,
        "{hourly}"
    );

    let picture = folder.path().join("plan.svg");
    let drawn = output_of(&["--plan", &made, "--plot", picture.to_str().unwrap()]);
    assert!(drawn.is_empty(), "{drawn}");
    let picture = fs::read_to_string(&picture).unwrap();
    for part in [
        "Transfers and cached files",
        "The link",
        "The cache",
        "s3://lake/orders/dt=2026-11-20/",
    ] {
        assert!(picture.contains(part), "{part}");
    }

    let questions = [
        "--what-if",
        "bandwidth=30Mbit",
        "--what-if",
        "cache=0B,slack=0.5x",
        "--what-if",
        "bandwidth=2x",
    ];
    let answers = output_of(&[&["--plan", made.as_str()], &questions[..]].concat());
    let rows: Vec<&str> = answers.lines().collect();
    assert!(
        rows[1].starts_with("as it is ") && rows[1].contains("6 of 6"),
        "{answers}"
    );
    assert!(
        rows[2].contains(" loses ") && rows[3].contains(" loses "),
        "{answers}"
    );
    assert!(rows[4].contains("6 of 6") && rows[4].ends_with('-'), "{answers}");

    let json = output_of(&["--plan", &made, "--what-if", "bandwidth=30Mbit", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let (planned, lost) = (
        json["what_if"][1]["planned"].as_u64().unwrap(),
        json["what_if"][1]["lost"].as_array().unwrap(),
    );
    assert_eq!(planned + lost.len() as u64, 6);
}

#[test]
fn a_deadline_that_cannot_be_kept_is_no_failure_and_is_explained() {
    if !has_planner() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let history = history(&folder);
    let narrow = [
        "--from",
        "2026-11-21",
        "--window",
        "4h",
        "--bandwidth",
        "30Mbit",
        "--cache",
        "100GiB",
    ];
    let output = plan(&[&[history.as_str()], &narrow[..]].concat());
    assert_eq!(output.status.code(), Some(0));
    assert!(
        text(&output.stderr).contains("Nothing is promised to "),
        "{}",
        text(&output.stderr)
    );
    let told = output_of(&[&[history.as_str(), "--explain", "report"], &narrow[..]].concat());
    assert!(
        told.contains("best effort, nothing is promised\n") && told.contains("\n  hint: "),
        "{told}"
    );
}

#[test]
fn what_cannot_be_planned_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let history = history(&folder);
    let held = file(
        &folder,
        "held",
        "{\"path\": \"s3://lake/orders/dt=2026-11-20/\", \"bytes\": 42949672960}",
    );
    let broken = file(&folder, "broken", "{\"version\": 1}");
    let with = |more: &[&'static str]| [&[history.as_str()], more].concat();
    for (arguments, said) in [
        (
            with(&["--cache", "1TiB"]),
            "error: a plan needs --bandwidth and --cache\n",
        ),
        (
            vec!["--bandwidth", "1Gbit", "--cache", "1TiB"],
            "error: there is no history to learn from\n",
        ),
        (
            with(&["--bandwidth", "fast", "--cache", "1TiB"]),
            "invalid value 'fast'",
        ),
        (
            with(&["--bandwidth", "1Gbit", "--cache", "1"]),
            "invalid value '1'",
        ),
        (
            with(&["--bandwidth", "1Gbit", "--cache", "1TiB", "--from", "soon"]),
            "invalid value 'soon'",
        ),
        (
            with(&["--bandwidth", "1Gbit", "--cache", "1TiB", "--from", "1990-01-01"]),
            "error: the window begins at 1990-01-01T00:00:00Z, before the history at 2026-",
        ),
        (
            with(&["--bandwidth", "1Gbit", "--cache", "1TiB", "--what-if", "luck=2x"]),
            "`luck` is nothing",
        ),
        (
            with(&[
                "--bandwidth",
                "1Gbit",
                "--cache",
                "1TiB",
                "--from",
                "2026-11-21T00:10:00Z",
                "--window",
                "10m",
            ]),
            "error: no job is expected in the window from 2026-11-21T00:10:00Z on\n",
        ),
        (
            with(&[
                "--bandwidth",
                "1Gbit",
                "--cache",
                "1TiB",
                "--slot",
                "1s",
                "--window",
                "3d",
            ]),
            "at most 2000 are planned at once",
        ),
        (
            vec![
                history.as_str(),
                "--bandwidth",
                "1Gbit",
                "--cache",
                "1GiB",
                "--held",
                held.as_str(),
            ],
            "error: the cache holds 42949672960 bytes and has room for 1073741824\n",
        ),
        (
            vec!["--plan", broken.as_str()],
            "broken is no plan: missing field",
        ),
        (
            vec!["--plan", broken.as_str(), "--bandwidth", "1Gbit"],
            "cannot be used with",
        ),
    ] {
        let output = plan(&arguments);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(said), "{arguments:?}: {told}");
        assert!(
            told.contains("hint: ") || told.contains("For more information"),
            "{told}"
        );
        assert!(output.stdout.is_empty());
    }
}

/// A program in the place of the planner.
fn instead(folder: &TempDir, script: &str) -> String {
    let path = file(folder, "planner", &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_planner_that_is_missing_or_fails_is_told_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let history = history(&folder);
    let with = |planner: &str| {
        let output = plan(&[&[history.as_str(), "--planner", planner], &TERMS[..]].concat());
        assert!(output.stdout.is_empty());
        (output.status.code(), text(&output.stderr).to_owned())
    };
    let (code, said) = with("/nonexistent/shoal-planner");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("error: the planner /nonexistent/shoal-planner cannot be run: ")
            && said.contains("\nhint: build it in the source tree by `make planner PROFILE=release`"),
        "{said}"
    );
    let (code, said) = with(&instead(&folder, "echo 'error: no time\nhint: more' >&2; exit 3"));
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.starts_with("error: no time\nhint: give it longer (--time-limit)"),
        "{said}"
    );
    // One that says more than is shown does so to its end.
    let (_, said) = with(&instead(
        &folder,
        "head -c 300000 /dev/zero >&2 || exit 9; exit 3",
    ));
    assert!(
        said.contains("\nhint: give it longer (--time-limit)"),
        "{}",
        said.len()
    );
    // It is given the request, and its answer must be one to that.
    let script = "cat > \"$0.request\"; echo '{\"version\":1,\"objective\":\"least-peak\",\"quality\":{\"planned\":0,\
                  \"planned_at_most\":0,\"peak_share\":0,\"peak_share_at_least\":null,\"fetched_bytes\":0,\
                  \"remote_bytes\":0,\"paged_bytes\":0},\"jobs\":[],\"files\":[],\"usage\":{\"start_s\":0,\"slot_s\":1,\
                  \"link_bytes_per_second\":[],\"promised_bytes_per_second\":[],\"fetched_bytes_per_second\":[],\
                  \"remote_bytes_per_second\":[],\"capacity_bytes\":0,\"cached_bytes\":[],\"paged_bytes\":[]}}'";
    let planner = instead(&folder, script);
    let (code, said) = with(&planner);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.starts_with(
            "error: the plan contradicts its request: 0 planned jobs, and the request has 6\nhint: "
        ),
        "{said}"
    );
    let request = fs::read_to_string(format!("{planner}.request")).unwrap();
    let request: Value = serde_json::from_str(&request).unwrap();
    assert_eq!(request["link"]["bytes_per_second"], 37_500_000.0);
    assert_eq!(request["cache"]["capacity_bytes"], 100 * GIB);
}

/// A command of a page, and the output that the page shows for it.
struct Shown {
    command: String,
    output: Vec<String>,
}

/// The commands in the blocks of `console` of a page.
fn commands(page: &str) -> Vec<Shown> {
    let mut commands: Vec<Shown> = Vec::new();
    let mut is_shown = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_shown = line == "```console";
        } else if is_shown {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push(Shown {
                    command: command.to_owned(),
                    output: Vec::new(),
                }),
                (None, Some(shown)) => shown.output.push(line.to_owned()),
                (None, None) => panic!("output without a command: {line}"),
            }
        }
    }
    commands
}

/// Returns true if the lines are those that are shown; `...` stands for any number of them.
fn matches(shown: &[String], printed: &[&str]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line.trim() == "..." => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(first, printed)| line.trim_end() == first.trim_end() && matches(rest, printed)),
    }
}

#[test]
fn the_tutorial_does_what_it_says() {
    if !has_planner() {
        return;
    }
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: python3 is not installed");
        return;
    }
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tutorials = repository.join("docs/tutorials");
    let page = fs::read_to_string(tutorials.join("spark-to-plan.md")).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_shoal")).parent().unwrap();
    let others = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(
        [programs.to_owned()]
            .into_iter()
            .chain(std::env::split_paths(&others)),
    );
    let folder = tempfile::tempdir().unwrap();
    let shown = commands(&page);
    assert!(shown.len() > 5);
    for Shown { command, output } in shown {
        let done = Command::new("sh")
            .args(["-c", &format!("exec 2>&1; {command}")])
            .current_dir(folder.path())
            .env("PATH", path.as_ref().unwrap())
            .env("REPOSITORY", &repository)
            .env("NO_COLOR", "1")
            .output()
            .unwrap();
        let printed = text(&done.stdout);
        assert!(done.status.success(), "{command}: {printed}");
        let lines: Vec<&str> = printed.lines().collect();
        assert!(
            matches(&output, &lines),
            "{command}\n{printed}\nThe page has:\n{}",
            output.join("\n")
        );
    }
    let drawn = fs::read_to_string(folder.path().join("plan.svg")).unwrap();
    assert!(
        drawn == fs::read_to_string(tutorials.join("plan.svg")).unwrap(),
        "the picture of the tutorial is another one\nhint: its commands make plan.svg; copy that to {}",
        tutorials.display()
    );
}

#[test]
fn a_page_is_compared_line_by_line() {
    let page = "```console\n$ a\n1\n...\n3\n$ b\n```\n```json\n{}\n```\n";
    let shown = commands(page);
    assert_eq!((shown.len(), shown[1].output.len()), (2, 0));
    assert!(matches(&shown[0].output, &["1", "2", "2", "3"]));
    assert!(!matches(&shown[0].output, &["1", "2"]) && !matches(&shown[0].output, &["1", "3", "4"]));
}
