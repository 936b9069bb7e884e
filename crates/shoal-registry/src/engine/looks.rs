//! Lookups of keys, which share requests to the engine.

use std::future::Future;

use bytes::Bytes;

use super::batches::{Batches, Operation};
use super::{EngineError, Stored};

/// Maximum number of keys in a request that several lookups share. etcd accepts at most 128 operations.
const SHARED_MAX: usize = 64;

/// The values of the keys of one lookup, in their order.
type Answer = Result<Vec<Option<Stored>>, EngineError>;

/// The lookups at one engine.
pub(super) type Looks = Batches<Look>;

/// A lookup of keys. They are never split over two requests.
pub(super) struct Look(Vec<Bytes>);

impl Operation for Look {
    type Answer = Answer;

    /// Its number of keys.
    type Batch = usize;

    fn join(&self, keys: &mut usize) -> bool {
        let joins = *keys == 0 || *keys + self.0.len() <= SHARED_MAX;
        if joins {
            *keys += self.0.len();
        }
        joins
    }
}

impl Looks {
    /// Looks up keys. `read` reads keys with one request, and returns their values in the same order.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub(super) async fn look<R>(&self, keys: Vec<Bytes>, read: impl Fn(Vec<Bytes>) -> R) -> Answer
    where
        R: Future<Output = Answer> + Send + 'static,
    {
        let read_all = |looks: Vec<Look>| {
            let counts: Vec<_> = looks.iter().map(|look| look.0.len()).collect();
            let reading = read(looks.into_iter().flat_map(|look| look.0).collect());
            async move {
                let mut found = reading.await.map(|found| {
                    assert_eq!(
                        found.len(),
                        counts.iter().sum::<usize>(),
                        "each key has an answer"
                    );
                    found.into_iter()
                });
                let answer = |count| match &mut found {
                    Ok(found) => Ok(found.take(count).collect()),
                    Err(error) => Err(error.clone()),
                };
                counts.into_iter().map(answer).collect()
            }
        };
        let answer = self.run(Look(keys), read_all).await;
        answer.unwrap_or_else(|| Err(EngineError::Unavailable("the node stops".into())))
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
            let read = move |keys| {
                let engine = Arc::clone(&engine);
                async move { engine.read(keys).await }
            };
            let look = tokio::spawn(async move { looks.look(keys, read).await });
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
        let mut looks = Vec::new();
        for keys in ["a", "b", "c", "d"] {
            looks.push(bed.look(keys).await);
        }
        // Its request is under way, or not yet.
        for given_up in [&looks[0], &looks[1]] {
            given_up.abort();
        }
        tokio::task::yield_now().await;
        assert_eq!(bed.engine.end(Ok(())).await, ["a"]);
        // The next request is that of the one that waits longest, and is for both.
        looks[2].abort();
        tokio::task::yield_now().await;
        assert_eq!(bed.engine.end(Ok(())).await, ["c", "d"]);
        assert!(looks.pop().unwrap().await.unwrap().is_ok());
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
