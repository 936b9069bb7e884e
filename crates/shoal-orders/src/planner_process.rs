//! The planner, `shoal-planner`: where it is, and a request's way through its process. Its crash and its
//! memory are its own.

use std::env;
use std::ffi::OsStr;
use std::io::{Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use shoal_net::clock;

/// The name of the program.
pub const NAME: &str = "shoal-planner";

/// The interval at which the state of a planner is read.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The memory and time of a planner, and the bytes of its output that are read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The bytes of its plan.
    pub plan_bytes: u64,
    /// The bytes of its stderr; the rest is read and discarded.
    pub stderr_bytes: u64,
    /// The bytes of its memory, where the system can bound them.
    pub memory_bytes: Option<u64>,
    /// Its time.
    pub time: Option<Duration>,
}

/// The output of a planner, and how it ended.
#[derive(Debug)]
pub struct Answer {
    /// Its stdout: a plan in JSON, if it made one.
    pub plan: Vec<u8>,
    /// Its stderr.
    pub stderr: Vec<u8>,
    /// How it ended.
    pub status: ExitStatus,
}

/// The reason why a planner gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The program cannot be run.
    #[error("it cannot be run: {0}")]
    NotRun(std::io::Error),
    /// The plan is longer than it may be, or broke off.
    #[error("its answer is too long or broke off")]
    TooLong,
    /// The caller stopped it.
    #[error("it was stopped")]
    Stopped,
    /// It took more than its time.
    #[error("it took more than {} s", .0.as_secs())]
    OutOfTime(Duration),
}

/// Finds the planner beside this program, or else the first one on the `PATH`.
pub fn find() -> Option<PathBuf> {
    let this = env::current_exe().ok();
    let beside = this.as_deref().and_then(Path::parent);
    find_in(beside, env::var_os("PATH").as_deref())
}

/// Finds the planner in the folder `beside`, or else the first one on this path.
pub fn find_in(beside: Option<&Path>, path: Option<&OsStr>) -> Option<PathBuf> {
    let on_path = path.into_iter().flat_map(env::split_paths);
    let folders = beside.map(Path::to_owned).into_iter().chain(on_path);
    let mut programs = folders.map(|folder| folder.join(NAME));
    programs.find(|program| {
        let facts = program.metadata();
        facts.is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
    })
}

/// Runs the planner with a request on its stdin. Blocks until it has ended, or has to because it is out of
/// time or `stop` is set.
///
/// # Errors
///
/// Fails if there is no answer.
pub fn ask(
    mut command: Command,
    request: &[u8],
    limits: &Limits,
    stop: &AtomicBool,
) -> Result<Answer, NoAnswer> {
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(NoAnswer::NotRun)?;
    bound_memory(&child, limits.memory_bytes);
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let stdout = child.stdout.take().expect("stdout is piped");
    let mut pipe = child.stderr.take().expect("stderr is piped");
    thread::scope(|scope| {
        // A planner reads everything before it writes. One that rejects its arguments reads nothing, and its
        // exit code shows that.
        scope.spawn(move || drop(stdin.write_all(request)));
        let plan = scope.spawn(move || read(stdout, limits.plan_bytes + 1));
        let stderr = scope.spawn(move || {
            let beginning = read(&mut pipe, limits.stderr_bytes);
            // A pipe that is full would block the planner.
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
            beginning
        });
        let ended = wait(&mut child, limits.time, stop);
        if ended.is_err() {
            // The pipes end with the process.
            let _ = child.kill();
            let _ = child.wait();
        }
        let (plan, stderr) = (plan.join(), stderr.join());
        let plan = plan.expect("reading does not panic").ok();
        let plan = plan.filter(|plan| plan.len() as u64 <= limits.plan_bytes);
        Ok(Answer {
            status: ended?,
            plan: plan.ok_or(NoAnswer::TooLong)?,
            stderr: stderr.expect("reading does not panic").unwrap_or_default(),
        })
    })
}

fn bound_memory(child: &Child, memory_bytes: Option<u64>) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let (Some(pid), Some(_)) = (pid, memory_bytes) {
        let limit = Rlimit {
            current: memory_bytes,
            maximum: memory_bytes,
        };
        // A system that refuses has bounds of its own.
        let _ = prlimit(Some(pid), Resource::As, limit);
    }
}

/// Reads the first `most` bytes of a pipe, or all of them.
fn read(pipe: impl Read, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    pipe.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn wait(child: &mut Child, time: Option<Duration>, stop: &AtomicBool) -> Result<ExitStatus, NoAnswer> {
    let began = clock::instant();
    loop {
        if let Some(status) = child.try_wait().map_err(NoAnswer::NotRun)? {
            return Ok(status);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(NoAnswer::Stopped);
        }
        if let Some(time) = time
            && clock::instant().saturating_duration_since(began) > time
        {
            return Err(NoAnswer::OutOfTime(time));
        }
        thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::{env, fs};

    use super::{NAME, find_in};

    #[test]
    fn the_planner_beside_this_program_comes_before_the_path() {
        let (beside, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = |folder: &tempfile::TempDir| {
            let path = folder.path().join(NAME);
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let on_path = program(&other);
        let path = env::join_paths([other.path()]).unwrap();
        assert_eq!(find_in(Some(beside.path()), Some(&path)), Some(on_path));
        fs::write(beside.path().join(NAME), "no program").unwrap();
        assert_eq!(find_in(Some(beside.path()), None), None, "it cannot be executed");
        let own = program(&beside);
        assert_eq!(find_in(Some(beside.path()), Some(&path)), Some(own));
    }
}
