//! Where other nodes ask about dirty objects, so many at a time.
//!
//! What waits for other nodes or for the lake has places of its own. Were there one kind of place for all, homes could fill each other's with
//! commits, none of which ends before the others have found a place for what it asks.

use std::sync::Arc;

use http::uri::PathAndQuery;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::home::Home;
use super::messenger::Answer;
use super::request::Request;

/// Requests of either kind at a time. Each may bring a manifest of some ten KiB along.
const AT_A_TIME: usize = 512;

/// Answers other nodes.
pub struct Desk {
    home: Arc<Home>,
    places: Places,
}

/// Places for requests of either kind.
struct Places {
    prompt: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Desk {
    /// A desk at which `home` answers.
    pub fn new(home: Arc<Home>) -> Self {
        Self {
            home,
            places: Places::new(AT_A_TIME),
        }
    }

    /// Answers one request, if there is a place for it.
    pub async fn answer(&self, target: &PathAndQuery) -> Answer {
        let Ok(request) = Request::parse(target) else {
            return Answer::Misunderstood;
        };
        let Some(place) = self.places.take(&request) else {
            return Answer::Busy;
        };
        let home = Arc::clone(&self.home);
        // A task of its own: whoever asked may hang up in the middle of it.
        let answering = tokio::spawn(async move {
            let answer = home.answer(request).await;
            drop(place);
            answer
        });
        answering.await.unwrap_or(Answer::Failed)
    }
}

impl Places {
    fn new(of_either_kind: usize) -> Self {
        let places = || Arc::new(Semaphore::new(of_either_kind));
        Self {
            prompt: places(),
            waiting: places(),
        }
    }

    /// A place until it is dropped; `None`: all are taken.
    fn take(&self, request: &Request) -> Option<OwnedSemaphorePermit> {
        let places = if request.waits() {
            &self.waiting
        } else {
            &self.prompt
        };
        Arc::clone(places).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::{Places, Request};
    use crate::dirty::manifest::tests::manifest;

    #[test]
    fn what_waits_for_other_nodes_leaves_room_for_what_those_ask() {
        let places = Places::new(2);
        let commit = Request::Commit {
            view: 1,
            manifest: Box::new(manifest("k", 0)),
        };
        let keep = Request::Keep(Box::new(manifest("k", 1)));
        let waiting = [places.take(&commit), places.take(&commit)];
        assert!(waiting.iter().all(Option::is_some));
        assert!(places.take(&commit).is_none(), "both places are taken");
        let kept = places.take(&keep);
        assert!(kept.is_some());
        drop(waiting);
        assert!(places.take(&commit).is_some(), "a place is given back");
    }
}
