//! Makes a new plan after a deviation from the plan in force: by the planner, a process of its own, or in
//! this process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use scopeguard::guard;
use shoal_plan::planner::replan::replan;
use shoal_plan::{Plan, Request};
use tokio::task::spawn_blocking;

use crate::planner_process::{self, Limits};

/// The longest that the planner may take for one linear program, in seconds.
const PROGRAM_SECONDS: &str = "60";

const LIMITS: Limits = Limits {
    plan_bytes: 128 << 20,
    stderr_bytes: 4 << 10,
    memory_bytes: Some(4 << 30),
    time: Some(Duration::from_mins(2)),
};

/// A new plan.
#[derive(Debug)]
pub(super) struct NewPlan {
    /// The plan.
    pub(super) plan: Plan,
    /// The maker: `planner` or `node`.
    pub(super) by: &'static str,
    /// The reason why the planner did not make it.
    pub(super) detail: Option<String>,
}

/// Plans a request on the base of a former plan. The planner at `program` makes the better plan; without
/// `program`, the one beside this program or on the `PATH`. If there is none or it fails, the parts that have
/// not changed stay and the rest finds a place ([`replan`]). Both work on threads of their own;
/// the planner is killed when this future is dropped.
pub(super) async fn plan(
    program: Option<PathBuf>,
    request: Request,
    former: Plan,
) -> Result<NewPlan, String> {
    let program = program.or_else(planner_process::find);
    let stop = Arc::new(AtomicBool::new(false));
    let _end = guard(Arc::clone(&stop), |stop| stop.store(true, Ordering::Relaxed));
    let working = spawn_blocking(move || {
        let mut detail = None;
        if let Some(program) = program {
            match ask(&program, &request, &stop) {
                Ok(plan) => {
                    let by = "planner";
                    return Ok(NewPlan { plan, by, detail });
                }
                Err(why) => detail = Some(format!("{}: {why}", program.display())),
            }
        }
        let plan = replan(&request, &former).map_err(|error| error.to_string())?;
        let by = "node";
        Ok(NewPlan { plan, by, detail })
    });
    working.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// Asks the planner. Blocks until it has answered, is out of time, or `stop` is set.
fn ask(program: &Path, request: &Request, stop: &AtomicBool) -> Result<Plan, String> {
    let text = serde_json::to_vec(request).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["--time-limit", PROGRAM_SECONDS, "--threads", "1"]);
    let answer = planner_process::ask(command, &text, &LIMITS, stop).map_err(|error| error.to_string())?;
    if !answer.status.success() {
        let reason = String::from_utf8_lossy(&answer.stderr);
        return Err(format!("it failed ({}): {}", answer.status, reason.trim()));
    }
    serde_json::from_slice(&answer.plan).map_err(|error| format!("its answer is no plan: {error}"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::AtomicBool;

    use shoal_lab::netco::table1;

    use super::*;

    fn script(folder: &tempfile::TempDir, text: &str) -> PathBuf {
        let path = folder.path().join(planner_process::NAME);
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
        for (text, reason) in [
            ("cat > /dev/null; echo 'error: no' >&2; exit 3", "error: no"),
            ("cat > /dev/null; echo '{}'", "no plan"),
            ("exit 1", "it failed"),
        ] {
            let program = script(&folder, text);
            let error = ask(&program, &table1::request(), &AtomicBool::new(false)).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
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

    #[tokio::test]
    async fn a_node_without_a_planner_moves_the_rest_of_the_plan() {
        let request = table1::request();
        let former = replan(&request, &Plan::empty(&request)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let program = script(&folder, "exit 4");
        let new = plan(Some(program), request, former).await.unwrap();
        assert_eq!(new.by, "node");
        assert!(new.detail.unwrap().contains("it failed"));
    }
}
