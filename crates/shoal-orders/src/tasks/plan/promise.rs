//! Promises jobs their rates from the lake, at all nodes that fetch for them.

use std::time::Duration;

use super::executor::Executor;
use crate::tasks::parts::messages::{Answer, PromisedRead, Question};

/// The interval at which promises are sent again, for nodes that have just started.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// The time for which a node keeps a promise after it was last sent.
const LIFE: Duration = Duration::from_secs(30);

impl Executor {
    /// Gives a job the rate from the lake that the plan of this generation promises it, until its deadline.
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
            objects.extend(self.ids(&self.take_parts(&mut unknown).await));
            let nodes = self.placer.targets.nodes();
            #[expect(clippy::cast_sign_loss, reason = "a rate is positive")]
            let read = PromisedRead {
                plan: self.id,
                job: job as u64,
                bytes_per_second: (promise.bytes_per_second / nodes.len().max(1) as f64).ceil() as u64,
                life_ms: LIFE.min(left).as_millis() as u64,
            };
            let question = |objects| Question::Promise(read, objects);
            let problem = "a node promises a job no rate";
            let note = |answer| {
                if answer != Answer::Promised {
                    tracing::debug!("a node answers a promise with something else");
                }
            };
            self.nodes
                .ask_about(&nodes, &objects, question, problem, note)
                .await;
            tokio::time::sleep(RENEW_EVERY.min(left)).await;
        }
    }
}
