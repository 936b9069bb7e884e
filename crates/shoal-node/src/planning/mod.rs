//! Plans that the nodes make by themselves (Netco, 3.1: the planner "runs at each planning window").
//!
//! Each interval one node, the home of the planning, learns from what jobs read until now: the runs that
//! engines announced to any node, and the logs that the operator names. It forecasts the jobs of the next two
//! intervals, asks the nodes what they hold, and hands the plan over as an operator would. Jobs of the plan
//! in force that have begun stay in it until their deadlines.

pub mod draft;
pub mod log_files;

use std::collections::HashMap;
use std::fs::File;
use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_base::moment::millis_since_1970;
use shoal_cache::peer::{PAGE_BYTES_MAX, PAGES};
use shoal_history::read::{ReadOptions, Reader};
use shoal_history::{History, Templates, Window, forecast};
use shoal_net::clock;
use shoal_net::link::BandwidthScope;
use shoal_net::pauses::ticks;
use shoal_net::shutdown::Shutdown;
use shoal_orders::Moment;
use shoal_orders::hints::Hints;
use shoal_orders::tasks::Tasks;
use shoal_plan::model::Objective;
use tokio::task::spawn_blocking;

use self::draft::{Draft, Terms};
use self::log_files::files_of;
use crate::core::Core;

/// The time within which another node sends the runs that it knows.
const RUNS_PATIENCE: Duration = Duration::from_secs(10);

/// The number of intervals in a window: the next plan comes before this one is over.
const INTERVALS: u32 = 2;

/// How long a node waits after its start: nodes meet, and have each other's records.
const SETTLES: Duration = Duration::from_secs(10);

/// The outcome of an attempt to make a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planning {
    /// When it was.
    pub at: Moment,
    /// The id of the plan, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Otherwise the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Makes plans by itself.
pub struct Planner {
    core: Arc<Core>,
    tasks: Arc<Tasks>,
    hints: Arc<Hints>,
    every: Duration,
    last: Mutex<Option<Planning>>,
}

impl Planner {
    /// Returns the planner of a node; `None` unless `[plan] every` says that there is one.
    pub(crate) fn new(core: &Arc<Core>, tasks: &Arc<Tasks>, hints: &Arc<Hints>) -> Option<Arc<Self>> {
        let every = core.config.plan.every?;
        Some(Arc::new(Self {
            core: Arc::clone(core),
            tasks: Arc::clone(tasks),
            hints: Arc::clone(hints),
            every,
            last: Mutex::default(),
        }))
    }

    /// Returns the outcome of the last attempt at this node, if there was one.
    pub fn last(&self) -> Option<Planning> {
        self.last.lock().clone()
    }

    /// Makes plans until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        let planning = async {
            tokio::time::sleep(SETTLES.min(self.every)).await;
            let mut pause = ticks(self.every);
            loop {
                pause.tick().await;
                if self.tasks.plans_here() {
                    self.plan_now().await;
                }
            }
        };
        stopping.limits(Box::pin(planning)).await;
    }

    async fn plan_now(&self) {
        let planned = self.make().await;
        let (plan, detail) = match planned {
            Ok(id) => (Some(id), None),
            Err(why) => {
                tracing::warn!(why, "no plan was made; the one in force goes on");
                (None, Some(why))
            }
        };
        *self.last.lock() = Some(Planning {
            at: Moment::now(),
            plan,
            detail,
        });
    }

    /// Makes a plan and hands it over. Returns its id, or why there is none.
    async fn make(&self) -> Result<String, String> {
        let config = &self.core.config.plan;
        let identity = config.identity.as_deref();
        let runs = self.runs().await;
        let (paths, terms) = (config.history.clone(), self.terms()?);
        let window_ms = i64::try_from((self.every * INTERVALS).as_millis()).unwrap_or(i64::MAX);
        let now_ms = i64::try_from(millis_since_1970(clock::utc_now())).unwrap_or(i64::MAX);
        // A long history takes seconds and some memory.
        let drafting = spawn_blocking(move || {
            let history = read(runs, &paths)?;
            let from = shoal_history::Moment::from_ms(now_ms);
            let forecast = forecast(&Templates::learn(&history), Window::after(from, window_ms));
            Ok::<_, String>(Draft::new(&forecast, &terms))
        });
        let mut draft = drafting.await.map_err(|error| error.to_string())??;
        if let Some(in_force) = self.tasks.plan_in_force().await {
            draft.go_on_with(&in_force.document, &in_force.verdicts);
        }
        if draft.request.jobs.is_empty() {
            return Err("no job is expected".into());
        }
        let held = self.tasks.held(draft.files(), identity).await;
        draft.hold_files(&held.map_err(|refusal| refusal.why)?);
        draft.request.check().map_err(|error| error.to_string())?;
        let plan = self.tasks.make_plan(draft.request.clone()).await?;
        let task = self.tasks.post_document(&draft.with(plan), identity).await;
        Ok(task.map_err(|refusal| refusal.why)?.id)
    }

    /// Returns the runs that all nodes know, one JSON object a line.
    async fn runs(&self) -> String {
        let mut all = self.hints.log.lines();
        for peer in self.core.cooperation.peers() {
            let asked = b"/runs".to_vec();
            let runs = peer.ask(PAGES, asked, PAGE_BYTES_MAX, RUNS_PATIENCE).await;
            match runs.map(|runs| String::from_utf8(runs.into())) {
                Ok(Ok(runs)) => all.push_str(&runs),
                Ok(Err(_)) => tracing::warn!(node = peer.name, "a node sent runs that are no text"),
                Err(error) => {
                    tracing::warn!(node = peer.name, %error, "a node does not send the runs that it knows");
                }
            }
        }
        all
    }

    /// Returns the link and the cache for which plans are made.
    fn terms(&self) -> Result<Terms, String> {
        let (config, nodes) = (&self.core.config, self.core.cooperation.peers().len() as u64 + 1);
        let bandwidth = config.lake.bandwidth.ok_or("[lake] bandwidth is not set")?;
        let link_bytes_per_second = match bandwidth.scope {
            BandwidthScope::Node => bandwidth.bytes_per_second * nodes,
            BandwidthScope::Cluster => bandwidth.bytes_per_second,
        };
        // All nodes are taken to be like this one.
        let room_bytes = self.core.store.counters().capacity_bytes * nodes;
        Ok(Terms {
            bytes_per_second: link_bytes_per_second as f64 * f64::from(config.plan.link_percent) / 100.0,
            capacity_bytes: room_bytes / 100 * u64::from(config.plan.room_percent),
            block_bytes: config.store.block_bytes,
            slot: None,
            objective: Objective::LeastPeak,
            held: HashMap::new(),
        })
    }
}

/// Reads a history: runs in lines of JSON, and logs.
fn read(runs: String, paths: &[PathBuf]) -> Result<History, String> {
    let mut reader = Reader::new(ReadOptions::default());
    let announced = reader.file("the runs that engines announced", None, Cursor::new(runs));
    announced.map_err(|error| error.to_string())?;
    for path in paths {
        for file in files_of(path).map_err(|error| error.to_string())? {
            let name = file.display().to_string();
            let file = File::open(&file).map_err(|error| format!("cannot read {name}: {error}"))?;
            reader
                .file(&name, None, file)
                .map_err(|error| error.to_string())?;
        }
    }
    let history = reader.finish().map_err(|error| error.to_string())?;
    if history.is_empty() {
        return Err("no run of a job is known yet".into());
    }
    Ok(history)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::read;

    const RUN: &str = r#"{"name": "etl", "submitted": "2026-11-20T02:00:04Z", "inputs": []}"#;

    #[test]
    fn a_history_is_what_engines_announced_and_the_files_of_folders() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        for (name, text) in [
            ("b.csv", "name,submitted\netl,2026-11-21T02:00:04Z\n"),
            (".hidden", "x"),
        ] {
            fs::write(path.join(name), text).unwrap();
        }
        let paths = [path.clone()];
        assert!(read(format!("{RUN}\n"), &paths).is_ok());
        assert!(read(String::new(), &paths).is_ok());
        assert_eq!(
            read(String::new(), &[]).unwrap_err(),
            "no run of a job is known yet"
        );
        let missing = read(String::new(), &[path.join("none")]).unwrap_err();
        assert!(
            missing.contains("cannot read") && missing.contains("none"),
            "{missing}"
        );
        let broken = read("{}\n".to_owned(), &[]).unwrap_err();
        assert!(broken.contains("the runs that engines announced"), "{broken}");
    }
}
