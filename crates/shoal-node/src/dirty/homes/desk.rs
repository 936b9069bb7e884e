//! Answers other nodes' requests about dirty objects, a bounded number at a time.
//!
//! Requests that wait for other nodes or for the lake have a bound of their own. With one bound for all,
//! homes could fill each other's places with commits that wait for a place at the other home.

use std::sync::Arc;

use http::uri::PathAndQuery;
use shoal_base::encoding::Malformed;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Homes;
use super::messenger::Answer;
use super::request::Request;
use super::uploads;
use super::uploads::UploadRequest;

/// Requests of either kind at a time. Each may bring a manifest of some ten KiB along.
const AT_A_TIME: usize = 512;

/// Answers other nodes.
pub struct Desk {
    homes: Arc<Homes>,
    places: Places,
}

/// Places for requests of either kind.
struct Places {
    prompt: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Desk {
    /// A desk at which these homes answer.
    pub fn new(homes: Arc<Homes>) -> Self {
        Self {
            homes,
            places: Places::new(AT_A_TIME),
        }
    }

    /// Answers one request, if there is a place for it.
    pub async fn answer(&self, target: &PathAndQuery) -> Answer {
        let Ok(asked) = Asked::parse(target) else {
            return Answer::Misunderstood;
        };
        let Some(place) = self.places.take(asked.waits()) else {
            return Answer::Busy;
        };
        let homes = Arc::clone(&self.homes);
        // A task of its own: whoever asked may hang up in the middle of it.
        let answering = tokio::spawn(async move {
            let answer = match asked {
                Asked::OfObject(request) => homes.home.answer(request).await,
                Asked::OfUpload(request) => homes.answer_upload(request).await,
            };
            drop(place);
            answer
        });
        answering.await.unwrap_or(Answer::Failed)
    }
}

/// What another node wants to know, or done.
enum Asked {
    OfObject(Request),
    OfUpload(UploadRequest),
}

impl Asked {
    fn parse(target: &PathAndQuery) -> Result<Self, Malformed> {
        if target.path().starts_with(uploads::PREFIX) {
            UploadRequest::parse(target).map(Self::OfUpload)
        } else {
            Request::parse(target).map(Self::OfObject)
        }
    }

    fn waits(&self) -> bool {
        match self {
            Self::OfObject(request) => request.waits(),
            Self::OfUpload(request) => request.waits(),
        }
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
    fn take(&self, waits: bool) -> Option<OwnedSemaphorePermit> {
        let places = if waits { &self.waiting } else { &self.prompt };
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
        let waiting = [places.take(commit.waits()), places.take(commit.waits())];
        assert!(waiting.iter().all(Option::is_some));
        assert!(places.take(commit.waits()).is_none(), "both places are taken");
        let kept = places.take(keep.waits());
        assert!(kept.is_some());
        drop(waiting);
        assert!(places.take(commit.waits()).is_some(), "a place is given back");
    }
}
