//! The planner, `shoal-planner`: where it is, and a request's way through its process. Its crash and its
//! memory are its own.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use clap::Args;
use shoal_plan::{Plan, Request};

use crate::cli::failure::Failure;

const NAME: &str = "shoal-planner";
const BUILD: &str = "build it by `cargo build --release -p shoal-planner` (it needs a C++ compiler, CMake and \
                     libclang) and put it beside shoal, or name it by --planner";
/// The largest plan that is read: that of a day with 20,000 jobs has some 30 MB.
const PLAN_BYTES_MAX: u64 = 1 << 30;
/// Bytes of the planner's stderr that are read at most.
const STDERR_BYTES_MAX: u64 = 64 << 10;

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
            None => found(beside().as_deref(), env::var_os("PATH").as_deref())?,
        };
        let mut command = Command::new(&program);
        command
            .arg("--time-limit")
            .arg(self.time_limit.to_string())
            .arg("--threads")
            .arg(self.threads.to_string());
        let text = serde_json::to_vec(request).expect("numbers and names are JSON");
        let answer = ask(command, &text).map_err(|error| {
            Failure::new(
                &format!("the planner {} cannot be run", program.display()),
                &error,
            )
            .hinting(BUILD)
        })?;
        answer.plan()
    }
}

/// Stdout, stderr and exit code of a planner. There is no code if a signal ended it.
struct Answer {
    plan: Vec<u8>,
    stderr: Vec<u8>,
    code: Option<i32>,
}

impl Answer {
    fn plan(self) -> Result<Plan, Failure> {
        let stderr_text = String::from_utf8_lossy(&self.stderr);
        let stderr_text = stderr_text.trim().trim_start_matches("error: ");
        let (what, hint) = stderr_text.split_once("\nhint: ").unwrap_or((stderr_text, ""));
        let (what, hint) = (what.to_owned(), hint.to_owned());
        match self.code {
            Some(0) => serde_json::from_slice(&self.plan).map_err(|error| Failure::Failed {
                what: format!("the planner's answer is no plan: {error}"),
                hint: Some(format!("shoal and {NAME} must be of one version: {BUILD}")),
            }),
            Some(2) => Err(Failure::Misused { what, hint }),
            Some(3) => Err(Failure::Failed {
                what,
                hint: Some(
                    "give it longer (--time-limit), a shorter window, or longer slots (--slot)".to_owned(),
                ),
            }),
            Some(code) => Err(Failure::Failed {
                what: format!("the planner failed with exit code {code}: {what}"),
                hint: Some(hint).filter(|hint| !hint.is_empty()),
            }),
            None => Err(Failure::Failed {
                what: "the planner was killed".to_owned(),
                hint: Some(
                    "it may have been out of memory: plan a shorter window, or longer slots (--slot)"
                        .to_owned(),
                ),
            }),
        }
    }
}

/// The folder of this program.
fn beside() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.parent()?.to_owned())
}

/// The planner beside this program, or else the first one on the path.
fn found(beside: Option<&Path>, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let on_path = path.map(|path| env::split_paths(path).collect::<Vec<_>>());
    let folders = beside.map(Path::to_owned).into_iter();
    folders
        .chain(on_path.into_iter().flatten())
        .map(|folder| folder.join(NAME))
        .find(|program| is_program(program))
        .ok_or_else(|| Failure::Failed {
            what: format!("{NAME} is neither beside this program nor on the PATH"),
            hint: Some(BUILD.to_owned()),
        })
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Runs the command with the request on its stdin, and reads both of its outputs meanwhile: a planner that
/// speaks before it has read everything must not wait for us.
fn ask(mut command: Command, request: &[u8]) -> std::io::Result<Answer> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let answer = talk(&mut child, request);
    if answer.is_err() {
        // It has ended already, or its answer is of no use.
        let _ = child.kill();
    }
    let status = child.wait()?;
    let (plan, stderr_text) = answer?;
    Ok(Answer {
        plan,
        stderr: stderr_text,
        code: status.code(),
    })
}

fn talk(child: &mut Child, request: &[u8]) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let mut stdout = child.stdout.take().expect("stdout is piped");
    let stderr = child.stderr.take().expect("stderr is piped");
    thread::scope(|scope| {
        // A planner that rejects its arguments does not read its stdin; its exit code shows that.
        scope.spawn(move || drop(stdin.write_all(request)));
        let stderr_text = scope.spawn(move || {
            let (mut stderr, mut stderr_text) = (stderr, Vec::new());
            stderr
                .by_ref()
                .take(STDERR_BYTES_MAX)
                .read_to_end(&mut stderr_text)?;
            // The rest is read and discarded, so that the planner does not block.
            std::io::copy(&mut stderr, &mut std::io::sink()).map(|_| stderr_text)
        });
        let mut plan = Vec::new();
        let read = stdout.by_ref().take(PLAN_BYTES_MAX + 1).read_to_end(&mut plan);
        // A planner that goes on writing gets an error, and ends.
        drop(stdout);
        let stderr_text = stderr_text.join().expect("reading does not panic")?;
        read?;
        if plan.len() as u64 > PLAN_BYTES_MAX {
            return Err(std::io::Error::other("its plan is larger than 1 GiB"));
        }
        Ok((plan, stderr_text))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::{Command, ExitCode};

    use super::{ask, found};
    use crate::cli::failure::Failure;

    fn answer(script: &str) -> Failure {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        // More than a pipe holds.
        let request = vec![b' '; 1 << 20];
        ask(command, &request).unwrap().plan().unwrap_err()
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
            let (what, hint) = match failure {
                Failure::Misused { what, hint } | Failure::Interrupted { what, hint } => (what, hint),
                Failure::Failed { what, hint } => (what, hint.unwrap_or_default()),
                Failure::Refused(error) => panic!("{error:?}"),
            };
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
        let of = |folder: &Path| found(Some(folder), Some(&path)).unwrap();
        assert_eq!(of(&beside), beside.join("shoal-planner"));
        assert_eq!(of(folder.path()), on_path.join("shoal-planner"));
        assert_eq!(of(&text), on_path.join("shoal-planner"));
        let failure = found(Some(&text), None).unwrap_err();
        let Failure::Failed { what, hint } = failure else {
            panic!("{failure:?}")
        };
        assert!(what.contains("neither beside"), "{what}");
        assert!(hint.unwrap().contains("cargo build --release -p shoal-planner"));
    }
}
