//! Decides which requests are traced, and keeps ended spans until the collector gets them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderMap;
use parking_lot::Mutex;
use shoal_base::chance;
use shoal_base::secret::Secret;
use shoal_base::words::Counts;
use tokio::sync::Notify;

use super::current::Parent;
use super::span::{Span, SpanKind, SpanRecord};
use super::traceparent::TraceParent;
use crate::time::clock;
use crate::words;

/// Maximum number of spans that begin in a second. A client that has all its requests traced would otherwise
/// occupy the node and the collector.
const SPANS_A_SECOND: u32 = 1000;

/// The part of these that clients and other nodes may have by their decisions. The rest is for requests that
/// this node chooses.
const FOLLOWED_A_SECOND: u32 = SPANS_A_SECOND / 2;

/// Maximum number of ended spans that wait for the collector: a few seconds, and some 4 MiB.
const QUEUE_MAX: usize = 4096;

/// Maximum number of spans that are sent at a time.
pub const BATCH: usize = 512;

words! {
    /// The outcome of a span.
    pub enum SpanOutcome {
        /// The collector has accepted it.
        Sent = "sent",
        /// Too many spans began in the same second.
        Crowded = "crowded",
        /// Too many spans waited for the collector.
        Overflowed = "overflowed",
        /// The collector did not answer, or refused it.
        Failed = "failed",
    }
}

/// `[trace]`
#[derive(Clone, Debug, PartialEq)]
pub struct TraceConfig {
    /// The URL of the collector, to which `/v1/traces` is appended; `None` if nothing is traced.
    pub endpoint: Option<String>,
    /// CA certificates for the collector, in PEM; `None` for those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The headers of each request to the collector, one a line
    /// ([`secret_headers`](crate::secret_headers)).
    pub headers: Option<Secret>,
    /// The share of requests that are traced where the client has not decided.
    pub sample: Share,
}

/// A share, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl Default for TraceConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            ca_file: None,
            headers: None,
            sample: Share(0.01),
        }
    }
}

/// Begins spans, and keeps those that have ended.
pub struct Tracer {
    sample: Share,
    allowance: Mutex<Allowance>,
    ended: Mutex<VecDeque<SpanRecord>>,
    /// Notified when a batch is complete.
    is_batch: Notify,
    /// Spans since the start, by outcome.
    pub outcomes: Counts<SpanOutcome>,
}

/// A request at its arrival, for the decision about its trace.
#[derive(Clone, Copy)]
pub struct Arrival<'a> {
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// True if its sender has proven its identity, and so may decide.
    pub is_proven: bool,
    /// The time when it arrived.
    pub started: Instant,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Decision {
    /// The sender has decided that it is traced.
    Followed(TraceParent),
    /// This node has chosen it.
    Chosen,
    NotTraced,
}

impl Tracer {
    /// Creates a tracer that chooses this share of the requests.
    pub fn new(sample: Share) -> Self {
        let allowance = Allowance {
            since: clock::instant(),
            begun: 0,
        };
        Self {
            sample,
            allowance: Mutex::new(allowance),
            ended: Mutex::default(),
            is_batch: Notify::new(),
            outcomes: Counts::default(),
        }
    }

    /// Begins the span of a client's request, if it is traced.
    pub fn begin(self: &Arc<Self>, name: &'static str, arrival: Arrival<'_>) -> Option<Box<Span>> {
        let sender = TraceParent::of(arrival.headers).filter(|_| arrival.is_proven);
        self.begin_decided(name, decide(sender, self.sample, chance::unit()), arrival.started)
    }

    /// Begins the span of another node's request, if that node traces it.
    pub fn begin_for_node(self: &Arc<Self>, name: &'static str, headers: &HeaderMap) -> Option<Box<Span>> {
        let decision = decide(TraceParent::of(headers), Share(0.0), 0.0);
        self.begin_decided(name, decision, clock::instant())
    }

    fn begin_decided(
        self: &Arc<Self>,
        name: &'static str,
        decision: Decision,
        started: Instant,
    ) -> Option<Box<Span>> {
        let (trace, parent, is_followed) = match decision {
            Decision::NotTraced => return None,
            Decision::Chosen => (new_trace(), 0, false),
            Decision::Followed(sender) => (sender.trace, sender.span, true),
        };
        let record = SpanRecord {
            trace,
            parent,
            kind: SpanKind::Server,
            name,
            ..SpanRecord::default()
        };
        self.begin_allowed(record, started, is_followed)
    }

    pub(super) fn begin_child(parent: &Parent, kind: SpanKind, name: &'static str) -> Option<Box<Span>> {
        let record = SpanRecord {
            trace: parent.trace,
            parent: parent.span,
            kind,
            name,
            ..SpanRecord::default()
        };
        parent
            .tracer
            .begin_allowed(record, clock::instant(), parent.is_followed)
    }

    fn begin_allowed(
        self: &Arc<Self>,
        mut record: SpanRecord,
        started: Instant,
        is_followed: bool,
    ) -> Option<Box<Span>> {
        let most = if is_followed {
            FOLLOWED_A_SECOND
        } else {
            SPANS_A_SECOND
        };
        if !self.allowance.lock().take(clock::instant(), most) {
            self.outcomes.count(SpanOutcome::Crowded);
            return None;
        }
        record.span = new_span();
        Some(Span::begin(Arc::clone(self), record, started, is_followed))
    }

    /// Queues a span that has ended.
    pub(super) fn ended(&self, record: SpanRecord) {
        let mut ended = self.ended.lock();
        if ended.len() >= QUEUE_MAX {
            drop(ended);
            self.outcomes.count(SpanOutcome::Overflowed);
            return;
        }
        ended.push_back(record);
        if ended.len() >= BATCH {
            self.is_batch.notify_one();
        }
    }

    /// Waits until a batch is complete, for at most this time.
    pub async fn batch(&self, time_max: Duration) {
        // Whatever ended first: there may be spans to send.
        let _ = tokio::time::timeout(time_max, self.is_batch.notified()).await;
    }

    /// Takes the oldest spans that have ended, [`BATCH`] at most.
    pub fn take(&self) -> Vec<SpanRecord> {
        let mut ended = self.ended.lock();
        let number = ended.len().min(BATCH);
        ended.drain(..number).collect()
    }
}

/// Decides about a request. `sender` is what a sender says that may decide, `chance` a random number below 1.
fn decide(sender: Option<TraceParent>, Share(sample): Share, chance: f64) -> Decision {
    match sender {
        Some(sender) if sender.is_sampled => Decision::Followed(sender),
        None if chance < sample => Decision::Chosen,
        _ => Decision::NotTraced,
    }
}

fn new_trace() -> u128 {
    let bits = (u128::from(chance::bits()) << 64) | u128::from(chance::bits());
    bits.max(1)
}

fn new_span() -> u64 {
    chance::bits().max(1)
}

/// The spans that have begun in one second.
#[derive(Debug)]
struct Allowance {
    since: Instant,
    begun: u32,
}

impl Allowance {
    /// Returns true if one more span may begin, where at most `most` of a second do.
    fn take(&mut self, now: Instant, most: u32) -> bool {
        if now.saturating_duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.begun) = (now, 0);
        }
        let is_allowed = self.begun < most;
        self.begun += u32::from(is_allowed);
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::HeaderMap;

    use super::{
        Allowance, Arrival, BATCH, Decision, FOLLOWED_A_SECOND, QUEUE_MAX, SPANS_A_SECOND, Share,
        SpanOutcome, SpanRecord, Tracer, decide,
    };
    use crate::time::clock;
    use crate::trace::{SpanKind, TRACEPARENT, TraceParent, child, spawn};

    fn parent(is_sampled: bool) -> TraceParent {
        TraceParent {
            trace: 7,
            span: 8,
            is_sampled,
        }
    }

    fn headers(is_sampled: bool) -> HeaderMap {
        HeaderMap::from_iter([(TRACEPARENT, parent(is_sampled).to_header())])
    }

    fn arrival(headers: &HeaderMap, is_proven: bool) -> Arrival<'_> {
        Arrival {
            headers,
            is_proven,
            started: clock::instant(),
        }
    }

    #[test]
    fn the_sender_decides_and_the_share_holds_for_all_others() {
        for (sender, sample, chance, expected) in [
            (Some(parent(true)), 0.0, 0.5, Decision::Followed(parent(true))),
            (Some(parent(false)), 1.0, 0.0, Decision::NotTraced),
            (None, 0.5, 0.499, Decision::Chosen),
            (None, 0.5, 0.5, Decision::NotTraced),
            (None, 0.0, 0.0, Decision::NotTraced),
            (None, 1.0, 0.999, Decision::Chosen),
        ] {
            assert_eq!(
                decide(sender, Share(sample), chance),
                expected,
                "{sender:?} {sample} {chance}"
            );
        }
    }

    #[test]
    fn a_sender_without_a_proof_does_not_decide() {
        let tracer = Arc::new(Tracer::new(Share(0.0)));
        let headers = headers(true);
        assert!(tracer.begin("x", arrival(&headers, false)).is_none());
        assert!(tracer.begin("x", arrival(&headers, true)).is_some());
    }

    #[test]
    fn decisions_of_clients_leave_half_of_the_spans_to_the_node() {
        let now = clock::instant();
        let mut allowance = Allowance { since: now, begun: 0 };
        let mut taken = |most: u32, at| {
            (0..2 * SPANS_A_SECOND)
                .filter(|_| allowance.take(at, most))
                .count()
        };
        assert_eq!(taken(FOLLOWED_A_SECOND, now), FOLLOWED_A_SECOND as usize);
        let rest = SPANS_A_SECOND - FOLLOWED_A_SECOND;
        assert_eq!(taken(SPANS_A_SECOND, now), rest as usize);
        let later = now + Duration::from_secs(1);
        assert_eq!(taken(FOLLOWED_A_SECOND, later), FOLLOWED_A_SECOND as usize);
    }

    #[test]
    fn spans_beyond_the_queue_are_counted_and_taking_some_makes_room() {
        let tracer = Tracer::new(Share(1.0));
        (0..QUEUE_MAX + 3).for_each(|_| tracer.ended(SpanRecord::default()));
        assert_eq!(tracer.outcomes.get(SpanOutcome::Overflowed), 3);
        assert_eq!(tracer.take().len(), BATCH);
        tracer.ended(SpanRecord::default());
        assert_eq!(tracer.outcomes.get(SpanOutcome::Overflowed), 3);
    }

    #[tokio::test]
    async fn spans_descend_from_the_one_that_a_task_works_for() {
        let tracer = Arc::new(Tracer::new(Share(0.0)));
        let headers = headers(true);
        assert!(child(SpanKind::Client, "lake").is_none());
        let request = tracer.begin("request", arrival(&headers, true)).unwrap();
        let inner = async {
            drop(child(SpanKind::Client, "lake").unwrap());
            let spawned = spawn(async { drop(child(SpanKind::Client, "node").unwrap()) });
            spawned.await.unwrap();
        };
        request.parent().around(inner).await;
        drop(request);
        let [lake, node, request] = tracer.take().try_into().unwrap();
        assert_eq!((request.trace, request.parent, request.name), (7, 8, "request"));
        for (span, name) in [(lake, "lake"), (node, "node")] {
            assert_eq!((span.trace, span.parent, span.name), (7, request.span, name));
        }
    }
}
