//! Batches lookups of keys into requests to the engine.
//!
//! If fewer than the maximum number of requests are under way, a lookup starts one at once. Otherwise lookups
//! queue, and the next request serves all of them. So a lookup is never answered by a request that began
//! before it, and reads stay linearizable. The keys of one lookup are never split over two requests.

use std::future::Future;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use super::{EngineError, Stored};

/// Maximum number of keys in a request that several lookups share. etcd accepts at most 128 operations.
const SHARED_MAX: usize = 64;

/// The values of the keys of one lookup, in their order.
type Answer = Result<Vec<Option<Stored>>, EngineError>;

/// The lookups at one engine.
pub(super) struct Looks {
    waiting: Mutex<Vec<Look>>,
    requests: Semaphore,
}

struct Look {
    keys: Vec<Bytes>,
    answer: oneshot::Sender<Answer>,
}

impl Looks {
    /// Allows at most `requests` requests at a time.
    pub(super) fn new(requests: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            requests: Semaphore::new(requests),
        }
    }

    /// Looks up keys. `read` reads keys with one request, and returns their values in the same order.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub(super) async fn look<R>(&self, keys: Vec<Bytes>, read: impl Fn(Vec<Bytes>) -> R) -> Answer
    where
        R: Future<Output = Result<Vec<Option<Stored>>, EngineError>>,
    {
        loop {
            let (answer, mut answered) = oneshot::channel();
            let keys = keys.clone();
            self.waiting.lock().push(Look { keys, answer });
            let answer = loop {
                let request = tokio::select! {
                    biased;
                    answer = &mut answered => break answer,
                    request = self.requests.acquire() => request.expect("requests are never closed"),
                };
                let looks = self.take();
                if looks.is_empty() {
                    // Another request under way includes this lookup.
                    drop(request);
                    break answered.await;
                }
                answer_all(looks, &read).await;
            };
            // Without an answer, the lookup that started the request was dropped; start again.
            if let Ok(answer) = answer {
                return answer;
            }
        }
    }

    /// Takes the oldest queued lookups: as many as share a request, at least one.
    fn take(&self) -> Vec<Look> {
        let mut waiting = self.waiting.lock();
        waiting.retain(|look| !look.answer.is_closed());
        let keys = waiting.iter().scan(0, |keys, look| {
            *keys += look.keys.len();
            Some(*keys)
        });
        let fitting = keys.take_while(|keys| *keys <= SHARED_MAX).count();
        let count = waiting.len().min(fitting.max(1));
        waiting.drain(..count).collect()
    }
}

/// Sends one request for some lookups.
async fn answer_all<R>(looks: Vec<Look>, read: &impl Fn(Vec<Bytes>) -> R)
where
    R: Future<Output = Result<Vec<Option<Stored>>, EngineError>>,
{
    let keys: Vec<_> = looks.iter().flat_map(|look| look.keys.clone()).collect();
    let count = keys.len();
    let mut read = read(keys).await.map(|found| {
        assert_eq!(found.len(), count, "each key has an answer");
        found.into_iter()
    });
    for look in looks {
        let answer = match &mut read {
            Ok(found) => Ok(found.take(look.keys.len()).collect()),
            Err(error) => Err(error.clone()),
        };
        // A dropped lookup needs no answer.
        let _ = look.answer.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use bytes::Bytes;
    use parking_lot::Mutex;
    use tokio::sync::oneshot;

    use super::{Answer, Looks, SHARED_MAX};
    use crate::engine::{EngineError, Revision, Stored};

    /// An engine whose requests are held until the test lets them go, each with its outcome.
    #[derive(Default)]
    struct Held {
        requests: Mutex<VecDeque<HeldRequest>>,
    }

    /// The keys, and the way to let the request go.
    type HeldRequest = (Vec<Bytes>, oneshot::Sender<Result<(), EngineError>>);

    impl Held {
        async fn read(&self, keys: Vec<Bytes>) -> Result<Vec<Option<Stored>>, EngineError> {
            let (let_go, held) = oneshot::channel();
            self.requests.lock().push_back((keys.clone(), let_go));
            held.await.expect("the test lets all requests go")?;
            let found = keys
                .into_iter()
                .map(|key| (key != "absent").then(|| stored(&key)));
            Ok(found.collect())
        }

        /// Lets the oldest request go. Returns its keys.
        async fn end(&self, outcome: Result<(), EngineError>) -> Vec<Bytes> {
            loop {
                let oldest = self.requests.lock().pop_front();
                if let Some((keys, let_go)) = oldest {
                    let _ = let_go.send(outcome);
                    tokio::task::yield_now().await;
                    return keys;
                }
                tokio::task::yield_now().await;
            }
        }
    }

    fn stored(key: &Bytes) -> Stored {
        Stored {
            value: key.clone(),
            revision: Revision(1),
        }
    }

    struct Bed {
        looks: Arc<Looks>,
        engine: Arc<Held>,
    }

    impl Bed {
        fn new() -> Self {
            Self {
                looks: Arc::new(Looks::new(1)),
                engine: Arc::default(),
            }
        }

        /// Begins a look for keys, which commas separate, and lets it come as far as it can.
        async fn look(&self, keys: &str) -> tokio::task::JoinHandle<Answer> {
            let (looks, engine) = (Arc::clone(&self.looks), Arc::clone(&self.engine));
            let keys: Vec<_> = keys.split(',').map(|key| Bytes::from(key.to_owned())).collect();
            let look = tokio::spawn(async move { looks.look(keys, |keys| engine.read(keys)).await });
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            look
        }
    }

    #[tokio::test]
    async fn looks_that_find_a_request_under_way_share_the_next_one() {
        let bed = Bed::new();
        let mut looks = Vec::new();
        for keys in ["a", "b", "absent,c", "b"] {
            looks.push(bed.look(keys).await);
        }
        assert_eq!(bed.engine.end(Ok(())).await, ["a"]);
        assert_eq!(bed.engine.end(Ok(())).await, ["b", "absent", "c", "b"]);
        let mut found = Vec::new();
        for look in looks {
            let values = look.await.unwrap().unwrap().into_iter();
            found.push(
                values
                    .map(|stored| stored.map(|stored| stored.value))
                    .collect::<Vec<_>>(),
            );
        }
        let value = |value: &'static str| Some(Bytes::from(value));
        let expected = [
            vec![value("a")],
            vec![value("b")],
            vec![None, value("c")],
            vec![value("b")],
        ];
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn an_error_is_that_of_all_looks_of_its_request_and_of_no_other() {
        let bed = Bed::new();
        let looks = [bed.look("a").await, bed.look("b").await, bed.look("c").await];
        bed.engine.end(Ok(())).await;
        let error = EngineError::Unavailable("away".into());
        bed.engine.end(Err(error.clone())).await;
        let [first, second, third] = looks;
        assert!(first.await.unwrap().is_ok());
        assert_eq!(second.await.unwrap(), Err(error.clone()));
        assert_eq!(third.await.unwrap(), Err(error));
    }

    #[tokio::test]
    async fn a_look_that_is_given_up_takes_no_other_along() {
        let bed = Bed::new();
        let looks = [bed.look("a").await, bed.look("b").await, bed.look("c").await];
        bed.engine.end(Ok(())).await;
        // It makes the request for itself and for the last one.
        let given_up = bed.engine.requests.lock().pop_front().unwrap();
        assert_eq!(given_up.0, ["b", "c"]);
        looks[1].abort();
        tokio::task::yield_now().await;
        assert_eq!(bed.engine.end(Ok(())).await, ["c"]);
        let [_, _, last] = looks;
        assert!(last.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_request_is_for_a_bounded_number_of_looks_and_none_is_forgotten() {
        let bed = Bed::new();
        let mut looks = vec![bed.look("first").await];
        for number in 0..SHARED_MAX + 5 {
            looks.push(bed.look(&number.to_string()).await);
        }
        for expected in [1, SHARED_MAX, 5] {
            assert_eq!(bed.engine.end(Ok(())).await.len(), expected);
        }
        for look in looks {
            assert!(look.await.unwrap().is_ok());
        }
    }

    #[tokio::test]
    async fn keys_that_are_looked_up_together_are_in_one_request() {
        let bed = Bed::new();
        let mut looks = vec![bed.look("first").await];
        for number in 0..SHARED_MAX - 1 {
            looks.push(bed.look(&number.to_string()).await);
        }
        looks.push(bed.look("a,b").await);
        let many = vec!["c"; SHARED_MAX + 1].join(",");
        looks.push(bed.look(&many).await);
        for expected in [1, SHARED_MAX - 1, 2, SHARED_MAX + 1] {
            assert_eq!(bed.engine.end(Ok(())).await.len(), expected);
        }
        for look in looks {
            assert!(look.await.unwrap().is_ok());
        }
    }
}
