//! Plans that nodes make by themselves, as the tasks of the cluster see them.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use shoal_net::clock;
use shoal_plan::document::ExpectedFile;
use shoal_plan::show::timeline::Timeline;
use shoal_plan::{Document, Plan, Request};
use tokio::task::spawn_blocking;

use super::parts::lake_view::LakeView;
use super::parts::task_identity::TaskIdentity;
use super::plan::ahead::{self, PlanInForce};
use super::plan::arrivals::{add_job, last_reads};
use super::plan::no_plan;
use super::records::entry::{Entry, Task};
use super::records::files::DocumentFacts;
use super::refusal::TaskRefusal;
use super::service::{ORDERS_MAX, Tasks, number};

/// The id whose home makes plans for all nodes.
const PLANNING: u128 = u128::from_be_bytes(*b"a plan of itself");

impl Tasks {
    /// Returns true if this node makes plans for all nodes.
    pub fn plans_here(&self) -> bool {
        let homes = &self.base.records.homes;
        homes.may_know_all() && homes.is_mine(PLANNING)
    }

    /// Returns the plan in force, if there is one whose document this node can get.
    pub async fn plan_in_force(&self) -> Option<PlanInForce> {
        let (entry, mut document) = self.document_in_force().await?;
        self.add_arrivals(&entry, &mut document).await;
        Some(PlanInForce {
            document,
            verdicts: entry.plan_progress().verdicts.clone(),
        })
    }

    /// Returns the plan in force as spans of time, without the jobs that were admitted since, if there is one
    /// whose document this node can get.
    pub async fn timeline(&self) -> Option<Timeline> {
        let (_, document) = self.document_in_force().await?;
        let now = clock::utc_now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(Timeline::of(&document, now.as_secs_f64()))
    }

    async fn document_in_force(&self) -> Option<(Entry, Document)> {
        let entry = self.base.records.plan_in_force()?;
        let facts = entry.order.document.as_ref()?;
        let document = self.base.plans.document(entry.id, facts).await;
        let document = document.inspect_err(|why| tracing::debug!(why, "the plan in force cannot be read"));
        let document = document.ok()?;
        Some((entry, document))
    }

    /// Adds the jobs that were admitted since the plan came into force, so that the next plan keeps their
    /// deadlines. The plan itself does not have them. Those that are read in another name than the plan's are
    /// admitted again.
    async fn add_arrivals(&self, plan: &Entry, document: &mut Document) {
        let (parts, jobs) = (&self.base.nodes.parts, self.base.records.jobs());
        let identity = &plan.order.request.identity;
        let of_plan = TaskIdentity::named(identity.as_deref(), parts, &Arc::default());
        let (lake, now) = (LakeView::new(parts, of_plan), clock::utc_now());
        for note in plan
            .plan_progress()
            .arrivals
            .iter()
            .filter(|note| note.why.is_none())
        {
            let hint = number(&note.hint).and_then(|id| self.entry(id));
            let hint = hint
                .ok()
                .filter(|hint| hint.is_live(now) && hint.order.request.identity == *identity);
            let Some((facts, order)) = hint
                .as_ref()
                .and_then(|hint| Some((hint.order.hint.as_ref()?, &hint.order)))
            else {
                continue;
            };
            let last = last_reads(&jobs, &facts.reader);
            if let Err(why) = add_job(&lake, order, facts, &last, document).await {
                tracing::debug!(
                    job = note.job,
                    why,
                    "a job that was admitted is not in the next plan"
                );
            }
        }
    }

    /// Returns the bytes that the nodes hold of each of these files, in their order, as an identity sees the
    /// lake.
    ///
    /// # Errors
    ///
    /// There is no such identity.
    pub async fn held(
        &self,
        files: &[ExpectedFile],
        identity: Option<&str>,
    ) -> Result<Vec<u64>, TaskRefusal> {
        let identity = self.parts().identity(identity)?;
        Ok(ahead::held(&self.base.nodes, identity.as_deref(), files).await)
    }

    /// Makes a plan for a request: by `shoal-planner`, or by the rule of a node without it.
    ///
    /// # Errors
    ///
    /// No plan can be made, with the reason.
    pub async fn make_plan(&self, request: Request) -> Result<Plan, String> {
        self.base.plans.make(request).await
    }

    /// Accepts a plan that this node has made in the name of an identity, in place of the plan in force if
    /// there is one.
    ///
    /// # Errors
    ///
    /// Fails if the order is not accepted, with the reason.
    pub async fn post_document(
        &self,
        document: &Document,
        identity: Option<&str>,
    ) -> Result<Task, TaskRefusal> {
        let identity = self.parts().identity(identity)?;
        let now = clock::utc_now();
        let body = serde_json::to_vec(document).map_err(no_plan)?;
        let checked = spawn_blocking(move || DocumentFacts::checked(&body, now).map(|facts| (facts, body)));
        let (facts, body) = checked.await.map_err(no_plan)??;
        self.base.records.catch_up().await;
        self.make_room(ORDERS_MAX)?;
        let id = self.base.records.next_id(now);
        self.parts().order_files.take(id, body).await?;
        self.put_in_force(id, facts, identity, now)
    }
}
