//! Collects the counters of a node's parts for the metrics and `/status`.

mod conditions;
mod pages;
mod samples;
mod snapshot;
mod table;

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_net::membership;
use shoal_net::metrics::{render_all, scrape};
use shoal_orders::hints::Hints;
use shoal_orders::tasks::Tasks;
use shoal_writeback::observed::{self, WriteBack};

use self::snapshot::Snapshot;
use self::table::TABLE;
use super::explain::{ExplainQuery, Explainer, Explanation};
use super::history::{History, HistoryPage};
use super::members::{Member, MemberState, Members};
use super::reloads::ReloadHistory;
use crate::block_server::BlockServer;
use crate::core::Core;
use crate::handoff::{Handoff, HandoffProgress};
use crate::planning::Planner;

/// Reads the state of a node's parts, for operators.
pub struct Observer {
    /// The parts that others share.
    pub(crate) core: Arc<Core>,
    /// Objects that are written back.
    pub(crate) write_back: WriteBack,
    /// Answers the requests of other nodes.
    pub(crate) block_server: Arc<BlockServer>,
    /// Tasks of operators.
    pub(crate) tasks: Arc<Tasks>,
    /// Takes events of running jobs.
    pub(crate) hints: Arc<Hints>,
    /// Makes plans by itself, if configured.
    pub(crate) planner: Option<Arc<Planner>>,
    /// Drains the node; `None` on a node that does not cooperate.
    pub(crate) handoff: Option<Arc<Handoff>>,
    /// Results of configuration reloads.
    pub(crate) reloads: Arc<Mutex<ReloadHistory>>,
    /// The counters of the last hour.
    pub(crate) history: History,
}

impl Observer {
    /// Returns the page at a path and query that a peer asked for; `None` if there is no such page.
    pub async fn page(self: Arc<Self>, asked: &str) -> Option<String> {
        let (path, query) = asked.split_once('?').unwrap_or((asked, ""));
        match path {
            "/status" => Some(self.status().await.to_string()),
            "/metrics" => Some(self.metrics()),
            "/runs" => Some(self.hints.log.lines()),
            "/history" => Some(json!(self.history(query)).to_string()),
            "/explain" => {
                let query = ExplainQuery::parse(query)?;
                Some(json!(self.explain(&query).await).to_string())
            }
            _ => None,
        }
    }

    /// Returns the settings in which another node differs, or `None` if it has not sent its digests.
    fn differences(&self, name: &str) -> Option<Vec<String>> {
        let parts = self.core.cooperation.notices.agreement.differences(name)?;
        Some(parts.into_iter().map(|part| part.as_str().to_owned()).collect())
    }

    /// Returns the progress of draining, on a node that cooperates.
    fn drain(&self) -> Option<HandoffProgress> {
        self.handoff.as_ref().map(|handoff| handoff.progress())
    }

    /// Returns `/metrics`.
    pub fn metrics(self: Arc<Self>) -> String {
        let written_back = scrape(observed::TABLE, self.write_back.figures());
        render_all([scrape(TABLE, Snapshot::new(self)), written_back])
    }

    /// Returns `/status`.
    pub async fn status(self: Arc<Self>) -> Value {
        self.write_back.refresh().await;
        json!(Snapshot::new(self).status())
    }

    /// Returns the counters that `/history` has, with their names.
    pub(super) fn samples(self: Arc<Self>) -> Vec<(String, u64)> {
        Snapshot::new(self).samples()
    }

    /// Returns `/history`.
    pub fn history(self: Arc<Self>, query: &str) -> HistoryPage {
        let names = Arc::clone(&self).samples().into_iter().map(|(name, _)| name);
        self.history.page(names.collect(), query)
    }

    /// Returns `/explain`.
    pub async fn explain(&self, query: &ExplainQuery) -> Explanation {
        let mut explanation = Explainer(&self.core).explain(query).await;
        for pin in &mut explanation.pins {
            let task = self.tasks.get(&pin.task).ok();
            pin.hint = task.and_then(|task| task.order.hint);
        }
        explanation
    }

    /// Returns the living nodes, for `/members`; only the node itself if it does not cooperate. Only this
    /// node's load is included.
    pub fn members(&self) -> Members {
        let Core {
            config,
            metrics,
            addresses,
            ..
        } = &*self.core;
        let node = &config.node;
        let load = metrics.requests_in_flight() as f64 / config.limits.requests as f64;
        let describe = |member: &membership::Member| Member {
            name: member.name.clone(),
            topology: member.topology.clone(),
            s3: member.s3,
            peer: Some(member.address),
            admin: member.admin,
            state: match member.state {
                membership::State::Serving => MemberState::Serving,
                membership::State::Draining => MemberState::Draining,
            },
            load: (member.name == node.name).then_some(load),
            differs: self.differences(&member.name),
        };
        let mut members: Vec<Member> = self.core.cooperation.members().iter().map(describe).collect();
        if members.is_empty() {
            members.push(Member {
                name: node.name.clone(),
                topology: node.topology.clone(),
                s3: addresses.s3,
                peer: None,
                admin: addresses.admin,
                state: MemberState::Serving,
                load: Some(load),
                differs: None,
            });
        }
        Members {
            speaker: node.name.clone(),
            members,
        }
    }
}
