//! How the lake misbehaves on command.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::request::Request;

/// A misbehaviour, the requests it befalls, and how often. Several can be combined in one.
///
/// Faults queue up: a request meets the first one that matches it and no other.
#[derive(Clone)]
pub(crate) struct Fault {
    when: Arc<dyn Fn(&Request) -> bool + Send + Sync>,
    left: usize,
    pub(super) status: Option<StatusCode>,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) without_headers: Vec<&'static str>,
    pub(super) head_delay: Duration,
    pub(super) gate: Option<Gate>,
    /// Stands before the request's body, not before the answer.
    pub(super) body_gate: Option<Gate>,
    pub(super) by_head: bool,
    pub(super) ignores: Vec<&'static str>,
    pub(super) raw: Option<Bytes>,
    pub(super) resets: bool,
    pub(super) body: BodyFault,
}

/// Faults of a response body: pauses, an early end, an action in the middle, a damaged byte.
#[derive(Clone, Default)]
pub(crate) struct BodyFault {
    /// Pieces of this size, and a pause before each.
    pub(super) pace: Option<(usize, Duration)>,
    pub(super) cut: Option<(u64, Cut)>,
    pub(super) hook: Option<(u64, Hook)>,
    /// Turns the last byte into another.
    pub(super) damage: bool,
}

/// How a body ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The connection is closed.
    Close,
    /// The connection is reset.
    Reset,
    /// Nothing comes any more, and nothing is closed.
    Stall,
}

/// Something done once, between two pieces of a body.
#[derive(Clone)]
pub(crate) struct Hook(Arc<Mutex<Option<Action>>>);

type Action = Box<dyn FnOnce() + Send>;

impl Hook {
    pub(super) fn run(&self) {
        let action = self.0.lock().take();
        if let Some(action) = action {
            action();
        }
    }
}

impl Fault {
    /// No misbehaviour yet; befalls the next request.
    pub(crate) fn new() -> Self {
        Self {
            when: Arc::new(|_| true),
            left: 1,
            status: None,
            headers: Vec::new(),
            without_headers: Vec::new(),
            head_delay: Duration::ZERO,
            gate: None,
            body_gate: None,
            by_head: false,
            ignores: Vec::new(),
            raw: None,
            resets: false,
            body: BodyFault::default(),
        }
    }

    /// Answers any request with an S3 error of this status.
    pub(crate) fn status(status: u16) -> Self {
        Self {
            status: Some(StatusCode::from_u16(status).unwrap()),
            ..Self::new()
        }
    }

    /// Resets the connection instead of answering.
    pub(crate) fn reset() -> Self {
        Self {
            resets: true,
            ..Self::new()
        }
    }

    /// Puts these bytes on the wire instead of an answer, then closes.
    pub(crate) fn raw(bytes: impl Into<Bytes>) -> Self {
        Self {
            raw: Some(bytes.into()),
            ..Self::new()
        }
    }

    /// Ends the body after `bytes`, in the way of `cut`.
    pub(crate) fn cut(bytes: u64, cut: Cut) -> Self {
        Self::new().and_cut(bytes, cut)
    }

    /// Answers 200 and the whole object to a range request.
    pub(crate) fn ignores_range() -> Self {
        Self::new().and_ignores("range")
    }

    /// Answers as if no `If-Match` had been sent.
    pub(crate) fn ignores_if_match() -> Self {
        Self::new().and_ignores("if-match")
    }

    /// Ends the body after `bytes`, in the way of `cut`.
    pub(crate) fn and_cut(mut self, bytes: u64, cut: Cut) -> Self {
        self.body.cut = Some((bytes, cut));
        self
    }

    /// Answers as if the request header `name` had not been sent.
    pub(crate) fn and_ignores(mut self, name: &'static str) -> Self {
        self.ignores.push(name);
        self
    }

    /// Sends this response header instead of the right one: another `etag`, a wrong `content-length`, ….
    pub(crate) fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Leaves this response header out.
    pub(crate) fn without_header(mut self, name: &'static str) -> Self {
        self.without_headers.push(name);
        self
    }

    /// Waits before the response head.
    pub(crate) fn late(mut self, delay: Duration) -> Self {
        self.head_delay = delay;
        self
    }

    /// Sends the body in pieces of `bytes`, with a pause before each.
    pub(crate) fn paced(mut self, bytes: usize, pause: Duration) -> Self {
        self.body.pace = Some((bytes, pause));
        self
    }

    /// Sends another last byte.
    pub(crate) fn damaged(mut self) -> Self {
        self.body.damage = true;
        self
    }

    /// Does something once, after this many bytes of the body.
    pub(crate) fn after(mut self, bytes: u64, action: impl FnOnce() + Send + 'static) -> Self {
        self.body.hook = Some((bytes, Hook(Arc::new(Mutex::new(Some(Box::new(action)))))));
        self
    }

    /// Holds the answer back until the gate is opened.
    pub(crate) fn held_by(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Does not look at the request's body, nor ask for it, until the gate is opened.
    pub(crate) fn body_held_by(mut self, gate: &Gate) -> Self {
        self.body_gate = Some(gate.clone());
        self
    }

    /// Answers without a look at the request's body.
    pub(crate) fn by_the_head(mut self) -> Self {
        self.by_head = true;
        self
    }

    /// Befalls only such requests.
    pub(crate) fn when(mut self, when: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        self.when = Arc::new(when);
        self
    }

    /// Befalls this many requests.
    pub(crate) fn times(mut self, times: usize) -> Self {
        self.left = times;
        self
    }

    /// Befalls every request from now on.
    pub(crate) fn always(self) -> Self {
        self.times(usize::MAX)
    }

    /// The fault that befalls `request`, if any; it is used up by that.
    pub(super) fn take(faults: &mut Vec<Self>, request: &Request) -> Option<Self> {
        let index = faults.iter().position(|fault| (fault.when)(request))?;
        let fault = faults[index].clone();
        faults[index].left -= 1;
        if faults[index].left == 0 {
            faults.remove(index);
        }
        Some(fault)
    }
}

/// Holds responses back until it is opened, so that a test can look at what happens meanwhile.
#[derive(Clone)]
pub(crate) struct Gate {
    waiting: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            waiting: watch::Sender::new(0),
            open: watch::Sender::new(false),
        }
    }

    /// Returns when this many requests have come to the gate.
    pub(crate) async fn arrived(&self, requests: usize) {
        self.waiting
            .subscribe()
            .wait_for(|waiting| *waiting >= requests)
            .await
            .expect("the gate stands");
    }

    /// Lets all requests pass, also those that come later.
    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    pub(super) async fn pass(&self) {
        self.waiting.send_modify(|waiting| *waiting += 1);
        self.open
            .subscribe()
            .wait_for(|open| *open)
            .await
            .expect("the gate stands");
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gate with {} waiting, open: {}",
            *self.waiting.borrow(),
            *self.open.borrow()
        )
    }
}
