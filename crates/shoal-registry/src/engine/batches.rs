//! Lets operations of many callers share requests to the engine.
//!
//! If fewer than the maximum number of requests are under way, an operation is sent at once. Otherwise
//! operations queue, and the next request takes all that fit together. So no operation is answered by a
//! request that began before it, and reads stay linearizable.
//!
//! A request runs to its end even if the caller that began it gives up: it carries operations of others.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

/// An operation that shares requests with others of its kind.
pub(super) trait Operation: Send + 'static {
    /// The answer to one operation.
    type Answer: Send + 'static;

    /// A request with some operations.
    type Batch: Default;

    /// Joins a batch, if that has room for this operation. An empty one has room for any.
    fn join(&self, batch: &mut Self::Batch) -> bool;
}

/// The operations at one engine.
pub(super) struct Batches<O: Operation> {
    /// The oldest first.
    waiting: Mutex<Vec<Waiting<O>>>,
    requests: Arc<Semaphore>,
}

struct Waiting<O: Operation> {
    operation: O,
    answer: oneshot::Sender<O::Answer>,
}

impl<O: Operation> Batches<O> {
    /// Allows at most `requests` requests at a time.
    pub(super) fn new(requests: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            requests: Arc::new(Semaphore::new(requests)),
        }
    }

    /// Carries out an operation. `send` sends a request with some operations, and returns their answers in
    /// the same order. Returns `None` if the request ended without an answer, because the node stops. The
    /// operation is not sent if the caller gives up before.
    pub(super) async fn run<R>(&self, operation: O, send: impl Fn(Vec<O>) -> R) -> Option<O::Answer>
    where
        R: Future<Output = Vec<O::Answer>> + Send + 'static,
    {
        let (answer, mut answered) = oneshot::channel();
        self.waiting.lock().push(Waiting { operation, answer });
        loop {
            let request = tokio::select! {
                biased;
                answer = &mut answered => return answer.ok(),
                request = Arc::clone(&self.requests).acquire_owned() => request.expect("requests are never closed"),
            };
            let (operations, answers) = self.take();
            if operations.is_empty() {
                // A request under way includes this operation.
                drop(request);
                return answered.await.ok();
            }
            let sending = send(operations);
            tokio::spawn(async move {
                let sent = sending.await;
                assert_eq!(sent.len(), answers.len(), "each operation has an answer");
                for (waiting, answer) in answers.into_iter().zip(sent) {
                    // A caller that gave up needs no answer.
                    let _ = waiting.send(answer);
                }
                drop(request);
            });
        }
    }

    /// Takes the operations of the next request from the queue.
    fn take(&self) -> (Vec<O>, Vec<oneshot::Sender<O::Answer>>) {
        let mut waiting = self.waiting.lock();
        waiting.retain(|waiting| !waiting.answer.is_closed());
        let mut batch = O::Batch::default();
        let taken = waiting.extract_if(.., |waiting| waiting.operation.join(&mut batch));
        taken.map(|taken| (taken.operation, taken.answer)).unzip()
    }
}
