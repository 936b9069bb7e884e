//! The planner on the command line: which one, its limits, and its answer in words.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use clap::Args;
use shoal_orders::planner_process::{self, Answer, Limits, NAME, NoAnswer};
use shoal_plan::{Plan, Request};

use crate::cli::failure::Failure;

const BUILD: &str = "build it in the source tree by `make planner PROFILE=release`, which installs what it needs, \
                     and put it beside shoal, or name it by --planner";
/// The plan of a day with 20,000 jobs has some 30 MB.
const LIMITS: Limits = Limits {
    plan_bytes: 1 << 30,
    stderr_bytes: 64 << 10,
    memory_bytes: None,
    time: None,
};

/// The planner, and the limits of its time and processors.
#[derive(Debug, Args)]
pub(super) struct PlannerFlags {
    /// The program that plans; the default is shoal-planner beside this program, or else on the PATH
    #[arg(long, value_name = "PROGRAM")]
    planner: Option<PathBuf>,
    /// The longest that the planner may take for one linear program, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    time_limit: u64,
    /// Processors that the planner may use; with one, the same history always gives the same plan
    #[arg(long, value_name = "N", default_value_t = NonZeroU32::MIN)]
    threads: NonZeroU32,
}

impl PlannerFlags {
    /// Plans the request in a process of its own.
    pub(super) fn plan(&self, request: &Request) -> Result<Plan, Failure> {
        let program = match &self.planner {
            Some(program) => program.clone(),
            None => planner_process::find().ok_or_else(missing)?,
        };
        let mut command = Command::new(&program);
        command
            .arg("--time-limit")
            .arg(self.time_limit.to_string())
            .arg("--threads")
            .arg(self.threads.to_string());
        let text = serde_json::to_vec(request).expect("numbers and names are JSON");
        let answer = ask(command, &text).map_err(|error| {
            let what = format!("the planner {} cannot be run", program.display());
            Failure::new(&what, &error).hinting(BUILD)
        })?;
        planned(&answer)
    }
}

/// Returns the plan of an answer.
fn planned(answer: &Answer) -> Result<Plan, Failure> {
    if answer.status.success() {
        return serde_json::from_slice(&answer.plan).map_err(|error| {
            Failure::failed(format!("the planner's answer is no plan: {error}"))
                .hinting(format!("shoal and {NAME} must be of one version: {BUILD}"))
        });
    }
    let stderr_text = String::from_utf8_lossy(&answer.stderr);
    let stderr_text = stderr_text.trim().trim_start_matches("error: ");
    let (what, hint) = stderr_text.split_once("\nhint: ").unwrap_or((stderr_text, ""));
    Err(match answer.status.code() {
        Some(2) => Failure::misused(what, hint),
        Some(3) => Failure::failed(what)
            .hinting("give it longer (--time-limit), a shorter window, or longer slots (--slot)"),
        Some(code) => Failure::failed(format!("the planner failed with exit code {code}: {what}"))
            .hinting_if((!hint.is_empty()).then(|| hint.to_owned())),
        // A signal ended it.
        None => Failure::failed("the planner was killed")
            .hinting("it may have been out of memory: plan a shorter window, or longer slots (--slot)"),
    })
}

fn missing() -> Failure {
    Failure::failed(format!("{NAME} is neither beside this program nor on the PATH")).hinting(BUILD)
}

fn ask(command: Command, request: &[u8]) -> std::io::Result<Answer> {
    let answer = planner_process::ask(command, request, &LIMITS, &AtomicBool::new(false));
    answer.map_err(|error| match error {
        NoAnswer::NotRun(error) => error,
        NoAnswer::TooLong => std::io::Error::other("its plan is larger than 1 GiB"),
        error @ (NoAnswer::Stopped | NoAnswer::OutOfTime(_)) => std::io::Error::other(error),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::{Command, ExitCode};

    use shoal_orders::planner_process::find_in;

    use super::{ask, missing, planned};
    use crate::cli::failure::Failure;

    fn answer(script: &str) -> Failure {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        // More than a pipe holds.
        let request = vec![b' '; 1 << 20];
        planned(&ask(command, &request).unwrap()).unwrap_err()
    }

    #[test]
    fn every_end_of_a_planner_is_told_with_a_hint() {
        for (script, code, stderr_text, hinted) in [
            (
                "echo '{}'",
                1,
                "the planner's answer is no plan: missing field",
                "one version",
            ),
            (
                "cat > /dev/null; echo 'error: absurd\nhint: be sensible' >&2; exit 2",
                2,
                "absurd",
                "be sensible",
            ),
            (
                "echo 'error: out of time' >&2; exit 3",
                1,
                "out of time",
                "--time-limit",
            ),
            (
                "echo 'error: numbers\nhint: scale' >&2; exit 4",
                1,
                "exit code 4: numbers",
                "scale",
            ),
            ("kill -9 $$", 1, "was killed", "memory"),
        ] {
            let failure = answer(script);
            assert_eq!(failure.exit_code(), ExitCode::from(code), "{script}");
            let (what, hint) = failure.message();
            assert!(
                what.contains(stderr_text) && hint.contains(hinted),
                "{script}: {what}; {hint}"
            );
        }
    }

    #[test]
    fn the_planner_beside_this_program_comes_before_those_on_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let program = |name: &str, mode| {
            let folder = folder.path().join(name);
            fs::create_dir(&folder).unwrap();
            let file = folder.join("shoal-planner");
            fs::write(&file, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            folder
        };
        let (beside, on_path, text) = (
            program("beside", 0o755),
            program("on-path", 0o755),
            program("text", 0o644),
        );
        let path = std::env::join_paths([&text, &on_path]).unwrap();
        let of = |folder: &Path| find_in(Some(folder), Some(&path)).unwrap();
        assert_eq!(of(&beside), beside.join("shoal-planner"));
        assert_eq!(of(folder.path()), on_path.join("shoal-planner"));
        assert_eq!(of(&text), on_path.join("shoal-planner"));
        assert_eq!(find_in(Some(&text), None), None);
        let failure = missing();
        let (what, hint) = failure.message();
        assert!(what.contains("neither beside"), "{what}");
        assert!(hint.contains("make planner PROFILE=release"));
    }
}
