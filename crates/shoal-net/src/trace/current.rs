//! The span that a task works for, from which the spans of its requests and waits descend.
//!
//! It follows a task and not its arguments: the way from a client's request to one to the lake leads through
//! every part of the node. A task that is spawned inherits it only by [`spawn`].

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use http::HeaderValue;
use tokio::task::JoinHandle;

use super::span::{Span, SpanKind};
use super::traceparent::TraceParent;
use super::tracer::Tracer;

tokio::task_local! {
    static CURRENT: Parent;
}

/// The span that causes others.
#[derive(Clone)]
pub struct Parent {
    pub(super) tracer: Arc<Tracer>,
    pub(super) trace: u128,
    pub(super) span: u64,
    pub(super) is_followed: bool,
}

impl Parent {
    /// Makes the spans that begin in `work` descend from this one.
    pub fn around<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }

    /// The same for work that does not wait.
    pub fn within<T>(self, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self, work)
    }
}

/// Begins a span that descends from that of the task; `None` if the task has none, or too many spans begin.
pub fn child(kind: SpanKind, name: &'static str) -> Option<Box<Span>> {
    let begin = |parent: &Parent| Tracer::begin_child(parent, kind, name);
    CURRENT.try_with(begin).ok().flatten()
}

/// Returns the header for requests that have no span of their own; `None` if the task has no span.
pub fn header() -> Option<HeaderValue> {
    let of_parent = |parent: &Parent| TraceParent {
        trace: parent.trace,
        span: parent.span,
        is_sampled: true,
    };
    Some(CURRENT.try_with(of_parent).ok()?.to_header())
}

/// Spawns a task that works for the same span as this one.
pub fn spawn<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match CURRENT.try_with(Parent::clone) {
        Ok(parent) => tokio::spawn(parent.around(work)),
        Err(_) => tokio::spawn(work),
    }
}

/// Waits for `work`, in a span of this name unless it is ready at once. Requests that `work` sends descend
/// from the task's own span.
pub async fn wait<F: Future>(name: &'static str, work: F) -> F::Output {
    let (mut work, mut is_waiting, mut span) = (pin!(work), false, None);
    let output = poll_fn(|cx| {
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() && !is_waiting {
            is_waiting = true;
            span = child(SpanKind::Internal, name);
        }
        polled
    });
    let output = output.await;
    drop(span);
    output
}
