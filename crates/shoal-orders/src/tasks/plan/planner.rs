//! Makes a new plan when the world is not as planned: by the planner, a process of its own, or in this one.

use std::env;
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use shoal_net::clock;
use shoal_plan::replan::replan;
use shoal_plan::{Plan, Request};
use tokio::task::spawn_blocking;

/// The name of the planner.
const NAME: &str = "shoal-planner";

/// The longest that the planner may take, in all and for one linear program.
const PATIENCE: Duration = Duration::from_mins(2);
const PROGRAM_SECONDS: &str = "60";

/// The most memory that the planner may take.
const MEMORY_BYTES: u64 = 4 << 30;

/// The longest plan that is read, and what is read of the planner's words.
const PLAN_BYTES_MAX: u64 = 128 << 20;
const TOLD_BYTES_MAX: u64 = 4 << 10;

/// How often a node looks whether the planner is done.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Makes new plans.
#[derive(Clone, Debug)]
pub(super) struct Planner {
    program: Option<PathBuf>,
}

/// A new plan.
#[derive(Debug)]
pub(super) struct NewPlan {
    /// The plan; or why there is none.
    pub(super) plan: Result<Plan, String>,
    /// `planner` or `node`.
    pub(super) by: &'static str,
    /// Why the planner did not make it, although there is one.
    pub(super) detail: Option<String>,
}

/// Ends the planner when the node no longer waits for it.
struct EndOnDrop(Arc<AtomicBool>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Planner {
    /// The planner at `program`; without one, that beside this program or on the `PATH`, if there is one.
    pub(super) fn new(program: Option<PathBuf>) -> Self {
        Self { program }
    }

    /// Plans a request on the base of a former plan. The planner makes the better plan; without it, what has
    /// not changed stays and the rest finds a place ([`shoal_plan::replan`]). Both work on threads of their
    /// own; the planner is killed when this future is dropped.
    pub(super) async fn plan(&self, request: Request, former: Plan) -> NewPlan {
        let program = match &self.program {
            Some(program) => Some(program.clone()),
            None => found(beside().as_deref(), env::var_os("PATH").as_deref()),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let _end = EndOnDrop(Arc::clone(&stop));
        let working = spawn_blocking(move || {
            let mut detail = None;
            if let Some(program) = program {
                match ask(&program, &request, &stop) {
                    Ok(plan) => {
                        let plan = Ok(plan);
                        let by = "planner";
                        return NewPlan { plan, by, detail };
                    }
                    Err(why) => detail = Some(format!("{}: {why}", program.display())),
                }
            }
            NewPlan {
                plan: replan(&request, &former).map_err(|error| error.to_string()),
                by: "node",
                detail,
            }
        });
        working.await.unwrap_or_else(|error| NewPlan {
            plan: Err(error.to_string()),
            by: "node",
            detail: None,
        })
    }
}

/// The folder of this program.
fn beside() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.parent()?.to_owned())
}

/// The planner beside this program, or else the first one on the path.
fn found(beside: Option<&Path>, path: Option<&OsStr>) -> Option<PathBuf> {
    let on_path = path.map(|path| env::split_paths(path).collect::<Vec<_>>());
    let folders = beside.map(Path::to_owned).into_iter();
    let programs = folders
        .chain(on_path.into_iter().flatten())
        .map(|folder| folder.join(NAME));
    programs.into_iter().find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    let facts = path.metadata();
    facts.is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

/// Asks the planner. Blocks until it has answered, is out of time, or `stop` says so.
fn ask(program: &Path, request: &Request, stop: &AtomicBool) -> Result<Plan, String> {
    let text = serde_json::to_vec(request).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["--time-limit", PROGRAM_SECONDS, "--threads", "1"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("it cannot be run: {error}"))?;
    let answered = converse(&mut child, &text, stop);
    // One that is done is not hurt.
    let _ = child.kill();
    let status = child.wait().map_err(|error| error.to_string())?;
    let (plan, told) = answered?;
    if !status.success() {
        let told = String::from_utf8_lossy(&told);
        return Err(format!("it failed ({status}): {}", told.trim()));
    }
    serde_json::from_slice(&plan).map_err(|error| format!("its answer is no plan: {error}"))
}

/// Gives the planner its request, and takes its answer and its words.
fn converse(child: &mut Child, text: &[u8], stop: &AtomicBool) -> Result<(Vec<u8>, Vec<u8>), String> {
    if let Ok(pid) = i32::try_from(child.id())
        && let Some(pid) = Pid::from_raw(pid)
    {
        let most = Some(MEMORY_BYTES);
        let limit = Rlimit {
            current: most,
            maximum: most,
        };
        // A system that refuses has bounds of its own.
        let _ = prlimit(Some(pid), Resource::As, limit);
    }
    let (mut stdin, stdout, stderr) = (
        child.stdin.take().ok_or("it has no stdin")?,
        child.stdout.take().ok_or("it has no stdout")?,
        child.stderr.take().ok_or("it has no stderr")?,
    );
    let began = clock::instant();
    std::thread::scope(|scope| {
        // The planner reads everything before it writes. One that does not ends the pipe, and the threads.
        let writing = scope.spawn(move || stdin.write_all(text));
        let plan = scope.spawn(move || read(stdout, PLAN_BYTES_MAX));
        let told = scope.spawn(move || read(stderr, TOLD_BYTES_MAX));
        let waited = wait(child, began, stop);
        if waited.is_err() {
            // The pipes end with the process.
            let _ = child.kill();
        }
        let (_, plan, told) = (writing.join(), plan.join(), told.join());
        waited?;
        let plan = plan.ok().flatten().ok_or("its answer is too long or broke off")?;
        Ok((plan, told.ok().flatten().unwrap_or_default()))
    })
}

/// Reads all of a pipe; `None` if that is more than `most` bytes.
fn read(pipe: impl std::io::Read, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut pipe = pipe.take(most + 1);
    pipe.read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most).then_some(bytes)
}

fn wait(child: &mut Child, began: Instant, stop: &AtomicBool) -> Result<(), String> {
    loop {
        if child.try_wait().map_err(|error| error.to_string())?.is_some() {
            return Ok(());
        }
        if stop.load(Ordering::Relaxed) {
            return Err("it was stopped".to_owned());
        }
        if clock::instant().saturating_duration_since(began) > PATIENCE {
            return Err(format!("it took more than {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::atomic::AtomicBool;

    use shoal_plan::table1;

    use super::*;

    fn script(folder: &tempfile::TempDir, text: &str) -> PathBuf {
        let path = folder.path().join(NAME);
        // Another process writes it. This one may start children while it has the file open, and a program
        // that a child has open for writing cannot be run.
        let written = Command::new("sh")
            .args([
                "-c",
                "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"",
            ])
            .arg(&path)
            .arg(text)
            .status();
        assert!(written.unwrap().success());
        path
    }

    #[test]
    fn a_planner_that_fails_says_why() {
        let folder = tempfile::tempdir().unwrap();
        for (text, told) in [
            ("cat > /dev/null; echo 'error: no' >&2; exit 3", "error: no"),
            ("cat > /dev/null; echo '{}'", "no plan"),
            ("exit 1", "it failed"),
        ] {
            let program = script(&folder, text);
            let error = ask(&program, &table1::request(), &AtomicBool::new(false)).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
        let error = ask(
            &folder.path().join("none"),
            &table1::request(),
            &AtomicBool::new(false),
        )
        .unwrap_err();
        assert!(error.contains("cannot be run"), "{error}");
        let program = script(&folder, "exec sleep 100");
        let error = ask(&program, &table1::request(), &AtomicBool::new(true)).unwrap_err();
        assert_eq!(error, "it was stopped");
    }

    #[test]
    fn the_planner_beside_this_program_comes_before_the_path() {
        let (beside, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let on_path = script(&other, "");
        let path = env::join_paths([other.path()]).unwrap();
        assert_eq!(found(Some(beside.path()), Some(&path)), Some(on_path));
        fs::write(beside.path().join(NAME), "no program").unwrap();
        assert_eq!(found(Some(beside.path()), None), None, "it cannot be executed");
        let own = script(&beside, "");
        assert_eq!(found(Some(beside.path()), Some(&path)), Some(own));
    }

    #[tokio::test]
    async fn a_node_without_a_planner_moves_what_is_left() {
        let request = table1::request();
        let former = replan(&request, &empty_plan(&request)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let planner = Planner::new(Some(script(&folder, "exit 4")));
        let new = planner.plan(request, former).await;
        assert_eq!((new.by, new.plan.is_ok()), ("node", true));
        assert!(new.detail.unwrap().contains("it failed"));
    }

    /// A plan of nothing.
    fn empty_plan(request: &Request) -> Plan {
        let quality = shoal_plan::plan::Quality {
            planned: 0,
            planned_at_most: 0.0,
            peak_share: 0.0,
            peak_share_at_least: None,
            fetched_bytes: 0.0,
            remote_bytes: 0.0,
            paged_bytes: 0.0,
        };
        Plan {
            version: request.version,
            objective: request.options.objective,
            quality,
            jobs: Vec::new(),
            files: Vec::new(),
            usage: shoal_plan::plan::Usage {
                start_s: 0.0,
                slot_s: 1.0,
                link_bytes_per_second: Vec::new(),
                promised_bytes_per_second: Vec::new(),
                fetched_bytes_per_second: Vec::new(),
                remote_bytes_per_second: Vec::new(),
                capacity_bytes: 0.0,
                cached_bytes: Vec::new(),
                paged_bytes: Vec::new(),
            },
        }
    }
}
