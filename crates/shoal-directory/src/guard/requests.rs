//! Requests to a directory: a timeout for each, a circuit breaker for all, and counts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_base::clock;
use shoal_base::words;
use shoal_policy::circuit_breaker::CircuitBreaker;
use tokio::time::timeout;

use crate::Silent;

/// The maximum pause between two probes of a directory that does not answer. Shorter than for a peer, because
/// all nodes share one directory, and without it several nodes may fetch the same block from the lake.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// The timeout of requests for which no reader waits.
const PATIENCE: Duration = Duration::from_secs(1);

words! {
    /// A kind of request to a directory.
    pub enum Kind {
        /// A reader waits for the answer.
        Look = "look",
        /// A node reports the blocks that it holds, or repairs an entry.
        Report = "report",
        /// A node renews a marker.
        Mark = "mark",
        /// A node asks before it evicts copies.
        Leave = "leave",
        /// A node sends its state and receives those of the others.
        Exchange = "exchange",
        /// A reader asks whether a name may have changed.
        Token = "token",
        /// A node reports a change of a name.
        Change = "change",
        /// A node announces that it reports all its changes, and learns which others do.
        Attend = "attend",
        /// A node stores an extension, or reads the stored ones.
        Extension = "extension",
    }
}

impl Kind {
    /// Returns true if a longer timeout applies, because no reader waits for the answer.
    const fn is_patient(self) -> bool {
        matches!(self, Self::Change | Self::Attend | Self::Extension)
    }
}

/// The requests of one kind since the start of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were answered.
    pub answered: u64,
    /// Requests that failed, or were not answered in time.
    pub silent: u64,
    /// Requests that were not sent because the circuit breaker was open.
    pub held_back: u64,
    /// The total time of answered requests.
    pub answer_time: Duration,
}

/// The requests that a node sends.
#[derive(Debug)]
pub struct Requests {
    timeout: Duration,
    breaker: Mutex<CircuitBreaker>,
    /// True if the last request was not answered.
    is_silent: AtomicBool,
    answered: words::Counts<Kind>,
    silent: words::Counts<Kind>,
    held_back: words::Counts<Kind>,
    answer_micros: words::Counts<Kind>,
}

impl Requests {
    /// No requests so far; those for which a reader waits time out after `timeout`.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            breaker: Mutex::new(CircuitBreaker::new(PROBE_PAUSE_MAX)),
            is_silent: AtomicBool::new(false),
            answered: words::Counts::default(),
            silent: words::Counts::default(),
            held_back: words::Counts::default(),
            answer_micros: words::Counts::default(),
        }
    }

    /// Returns true if the directory answered the last request.
    pub fn answers(&self) -> bool {
        !self.is_silent.load(Ordering::Relaxed)
    }

    /// The requests of each kind so far.
    pub fn counts(&self) -> [(Kind, Counts); Kind::ALL.len()] {
        Kind::ALL.map(|kind| {
            let counts = Counts {
                answered: self.answered.get(kind),
                silent: self.silent.get(kind),
                held_back: self.held_back.get(kind),
                answer_time: Duration::from_micros(self.answer_micros.get(kind)),
            };
            (kind, counts)
        })
    }

    /// Sends a request, unless the circuit is open, and waits for its answer.
    pub(super) async fn ask<A>(
        &self,
        kind: Kind,
        question: impl Future<Output = Result<A, Silent>>,
    ) -> Result<A, Silent> {
        let began = clock::monotonic();
        {
            let mut breaker = self.breaker.lock();
            if !breaker.is_reachable(began) {
                self.held_back.count(kind);
                return Err(Silent("earlier requests were not answered".into()));
            }
            breaker.sending(began);
        }
        let patience = if kind.is_patient() { PATIENCE } else { self.timeout };
        let answer = match timeout(patience, question).await {
            Ok(answer) => answer,
            Err(_) => Err(Silent(format!("no answer within {patience:?}"))),
        };
        let now = clock::monotonic();
        match &answer {
            Ok(_) => {
                self.breaker.lock().succeeded();
                let took = now.saturating_sub(began);
                let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                self.answer_micros.add(kind, micros);
                self.answered.count(kind);
                if self.is_silent.swap(false, Ordering::Relaxed) {
                    tracing::info!("the directory answers again");
                }
            }
            Err(error) => {
                self.breaker.lock().failed(now);
                self.silent.count(kind);
                if !self.is_silent.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "blocks are found by their homes until the directory answers");
                }
            }
        }
        answer
    }
}
