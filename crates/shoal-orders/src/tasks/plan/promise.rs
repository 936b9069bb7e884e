//! Gives jobs their rates from the lake, at all nodes that fetch for them.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use shoal_net::link::{JobBytes, JobId, JobRates};
use shoal_plan::execution::promise::divide;
use shoal_policy::{NodeId, ObjectId};

use super::executor::Executor;
use crate::tasks::parts::messages::{Answer, NAMES_MAX, PromisedRead, Question};

/// The longest interval at which the rates of a job are set again, and its part of the job's time.
const SET_EVERY: Duration = Duration::from_secs(3);
const SET_PER_JOB: u32 = 20;

/// The shortest interval.
const SET_EVERY_MIN: Duration = Duration::from_millis(200);

/// The interval at which all objects of a job are sent again, for nodes that have just started.
const NAME_EVERY: Duration = Duration::from_secs(10);

/// The time for which a node keeps a promise after it was last sent.
const LIFE: Duration = Duration::from_secs(30);

/// The bytes that nodes have fetched for a job.
#[derive(Default)]
struct Fetched {
    /// As each node has counted them last.
    counted: HashMap<NodeId, JobBytes>,
    /// Since the count before.
    lately: HashMap<NodeId, u64>,
    /// For reads that name the job, on all nodes.
    named_bytes: u64,
}

impl Fetched {
    fn note(&mut self, node: NodeId, now: JobBytes) {
        let before = self.counted.insert(node, now).unwrap_or_default();
        // A node that has started again counts from zero.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let named = since(now.named, before.named);
        self.named_bytes += named;
        self.lately
            .insert(node, named + since(now.unnamed, before.unnamed));
    }
}

impl Executor {
    /// Gives a job the rates from the lake that the plan of this generation has for it, until its deadline.
    ///
    /// Each node has the part of them that it needs: those that fetched bytes for the job lately need all.
    pub(super) async fn promise(&self, generation: u64, job: usize) {
        let Some(promise) = self.on(generation, |execution| execution.promise(job)).flatten() else {
            return;
        };
        let left = |now_s: f64| Duration::try_from_secs_f64(promise.until_s - now_s).unwrap_or_default();
        let every = (left(self.now_s()) / SET_PER_JOB).clamp(SET_EVERY_MIN, SET_EVERY);
        let (mut unknown, mut objects) = (promise.files, Vec::new());
        let (mut fetched, mut named_ago) = (Fetched::default(), NAME_EVERY);
        loop {
            let now_s = self.now_s();
            if left(now_s).is_zero() {
                return;
            }
            let found = self.ids(&self.take_parts(&mut unknown).await);
            let is_named = found.is_empty() && named_ago < NAME_EVERY;
            objects.extend(found);
            let ceiling = self.on(generation, |execution| {
                execution.ceiling(job, fetched.named_bytes, now_s)
            });
            let rates = [Some(promise.bytes_per_second), ceiling.flatten()];
            let named = if is_named { &[] } else { &*objects };
            self.set_rates(job, rates, LIFE.min(left(now_s)), named, &mut fetched)
                .await;
            named_ago = if is_named { named_ago + every } else { every };
            tokio::time::sleep(every.min(left(self.now_s()))).await;
        }
    }

    /// Sets the floor and the ceiling of a job, which reads these objects, at all nodes for a time. Notes
    /// what they have fetched for it.
    async fn set_rates(
        &self,
        job: usize,
        rates: [Option<f64>; 2],
        life: Duration,
        objects: &[ObjectId],
        fetched: &mut Fetched,
    ) {
        // In a directory each node may fetch, and elsewhere the homes do.
        let nodes = self.nodes.all();
        let lately = nodes.iter().map(|node| fetched.lately.get(node).copied());
        let lately: Vec<u64> = lately.map(Option::unwrap_or_default).collect();
        let [floors, ceilings] = rates.map(|rate| rate.map(|rate| divide(rate, &lately)));
        let at = |rates: &Option<Vec<f64>>, place: usize| rates.as_ref().map(|rates| whole(rates[place]));
        let asked = nodes.iter().enumerate().map(|(place, node)| {
            let read = PromisedRead {
                job: JobId {
                    plan: self.id,
                    job: job as u64,
                },
                names: self.names.lock()[job].clone(),
                rates: JobRates {
                    floor: at(&floors, place).unwrap_or_default(),
                    ceiling: at(&ceilings, place),
                },
                life_ms: life.as_millis() as u64,
            };
            self.set_rates_at(*node, read, objects)
        });
        for (node, bytes) in nodes.iter().zip(join_all(asked).await) {
            if let Some(bytes) = bytes {
                fetched.note(*node, bytes);
            }
        }
    }

    /// Sets the rates of a job at one node. Returns what the node has fetched for it.
    async fn set_rates_at(&self, node: NodeId, read: PromisedRead, objects: &[ObjectId]) -> Option<JobBytes> {
        let mut bytes = None;
        let mut parts = objects.chunks(NAMES_MAX);
        // Without objects, too.
        let mut part = parts.next().unwrap_or_default();
        loop {
            let question = Question::Promise(Box::new(read.clone()), part.to_vec());
            match self.nodes.ask(node, question).await {
                Ok(Answer::Promised(fetched)) => bytes = Some(fetched),
                Ok(_) => tracing::debug!("a node answers a promise with something else"),
                Err(error) => tracing::debug!(%error, "a node promises a job no rate"),
            }
            match parts.next() {
                Some(next) => part = next,
                None => return bytes,
            }
        }
    }
}

#[expect(clippy::cast_sign_loss, reason = "a rate is not negative")]
fn whole(rate: f64) -> u64 {
    rate.ceil() as u64
}

#[cfg(test)]
mod tests {
    use shoal_net::link::JobBytes;
    use shoal_policy::NodeId;

    use super::Fetched;

    #[test]
    fn bytes_are_counted_once_also_when_a_node_starts_again() {
        let (mut fetched, node) = (Fetched::default(), NodeId(1));
        for (named, unnamed, all, lately) in [(5, 1, 5, 6), (8, 1, 8, 3), (2, 0, 10, 2), (2, 0, 10, 0)] {
            fetched.note(node, JobBytes { named, unnamed });
            assert_eq!((fetched.named_bytes, fetched.lately[&node]), (all, lately));
        }
    }
}
