//! Promises jobs their rates from the lake, at all nodes that fetch for them.

use std::time::Duration;

use shoal_net::link::PromiseId;
use shoal_policy::ObjectId;

use super::executor::Executor;
use super::objects;
use crate::tasks::parts::messages::{Answer, PromisedRead, Question};

/// How often promises are sent again, for nodes that have just started.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// How long a node keeps a promise after it was last sent.
const LIFE: Duration = Duration::from_secs(30);

/// The number of objects in one question.
const NAMES_AT_ONCE: usize = 4096;

impl Executor {
    /// Lets a job have the rate from the lake that the plan of this generation promises it, until its
    /// deadline.
    ///
    /// The blocks of its files are spread over all nodes, so each node keeps an equal part of the rate.
    pub(super) async fn promise(&self, generation: u64, job: usize) {
        let Some(promise) = self.on(generation, |execution| execution.promise(job)).flatten() else {
            return;
        };
        let (mut unknown, mut objects) = (promise.files, Vec::new());
        loop {
            let left = Duration::try_from_secs_f64(promise.until_s - self.now_s()).unwrap_or_default();
            if left.is_zero() {
                return;
            }
            let mut missing = Vec::new();
            for file in unknown {
                match objects::parts(&self.lake, &self.expected[file]).await {
                    Ok(parts) => objects.extend(self.ids(&parts)),
                    // The job may be there before its files.
                    Err(_) => missing.push(file),
                }
            }
            unknown = missing;
            let nodes = self.placer.targets.nodes();
            #[expect(clippy::cast_sign_loss, reason = "a rate is positive")]
            let read = PromisedRead {
                id: PromiseId {
                    plan: self.id,
                    job: job as u64,
                },
                bytes_per_second: (promise.bytes_per_second / nodes.len().max(1) as f64).ceil() as u64,
                life: LIFE.min(left),
            };
            self.tell(read, &objects).await;
            tokio::time::sleep(RENEW_EVERY.min(left)).await;
        }
    }

    async fn tell(&self, read: PromisedRead, objects: &[ObjectId]) {
        for part in objects.chunks(NAMES_AT_ONCE) {
            let nodes = self.placer.targets.nodes();
            let question = || Question::Promise(read, part.to_vec());
            for (_, answer) in self.parts.nodes.ask_each(nodes, question).await {
                match answer {
                    Ok(Answer::Promised) => {}
                    Ok(Answer::Refused(why)) => tracing::debug!(why, "a node promises a job no rate"),
                    Ok(_) => tracing::debug!("a node answers a promise with something else"),
                    Err(error) => tracing::debug!(%error, "a node promises a job no rate"),
                }
            }
        }
    }
}
