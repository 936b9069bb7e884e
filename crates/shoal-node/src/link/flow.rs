//! Paces one body that goes over the link.

use std::cmp::Ordering;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use shoal_policy::fair::Payer;
use shoal_policy::link::{Ask, Class};
use tokio::time::{Sleep, sleep};

use super::lane::{Lane, Ticket};
use super::{PlannedRate, Transfer, class_of};

/// Bytes that a transfer with a planned rate takes at a time, on a node without a link.
const QUANTUM_WITHOUT_LINK: u64 = 64 << 10;

/// The permission of one body to move its next bytes.
///
/// The body of a client takes permission before each piece. A body that no client waits for takes it ahead,
/// for as many bytes as the system may receive before the node reads them. So the bytes of such a body are
/// paid for before they are on their way.
#[derive(Debug)]
pub struct Flow {
    /// `None` if only a planned rate is kept.
    lane: Option<Arc<Lane>>,
    transfer: Option<Transfer>,
    /// The rate that plans promise to a client's read of this body.
    promises: Vec<Arc<PlannedRate>>,
    payer: Payer,
    /// Bytes that were permitted to move.
    permitted: u64,
    /// The class that the last of them went as.
    went_as: Class,
    /// Bytes that have moved; more than the permitted ones if the last piece was large.
    moved: u64,
    /// Permitted bytes that count as being on their way to a transfer that no client waits for.
    ahead: u64,
    /// Bytes to be paid for ahead while no client waits.
    ahead_bytes: u64,
    wait: Wait,
}

/// Wait state of a flow.
#[derive(Debug)]
enum Wait {
    No,
    /// Until the rate of its plan allows so many bytes.
    ForRate(Pin<Box<Sleep>>, u64),
    /// Until the link has room for so many bytes of the class.
    ForRoom(Arc<Ticket>, Class, u64),
}

impl Flow {
    pub(super) fn new(lane: Option<Arc<Lane>>, transfer: Option<Transfer>, payer: Payer) -> Self {
        Self {
            lane,
            went_as: class_of(transfer.as_ref()),
            transfer,
            promises: Vec::new(),
            payer,
            permitted: 0,
            moved: 0,
            ahead: 0,
            ahead_bytes: 0,
            wait: Wait::No,
        }
    }

    /// A flow that keeps the rate of its plan, over connections that are not metered. `None` for a transfer
    /// without a plan.
    pub fn unmetered(transfer: Option<&Transfer>, payer: Payer) -> Option<Self> {
        let transfer = transfer.filter(|transfer| transfer.plan().is_some())?;
        Some(Self::new(None, Some(transfer.clone()), payer))
    }

    /// The same flow, which takes permission for so many bytes ahead while no client waits.
    #[must_use]
    pub(super) fn ahead_by(mut self, bytes: u64) -> Self {
        self.ahead_bytes = bytes;
        self
    }

    /// The same flow of a body that plans promise to a client at these rates.
    #[must_use]
    pub fn promised(mut self, rates: Vec<Arc<PlannedRate>>) -> Self {
        self.promises = rates;
        self
    }

    /// Ready when the next piece of the body may move. `left` is the number of bytes to come, if that is
    /// known.
    pub fn poll_permitted(&mut self, cx: &mut Context<'_>, left: Option<u64>) -> Poll<()> {
        let left = left.unwrap_or(u64::MAX);
        let has = |flow: &Self, bytes: u64| flow.permitted >= flow.moved.saturating_add(bytes.min(left));
        loop {
            let class = class_of(self.transfer.as_ref());
            // A client's transfer waits for the next quantum while it moves the last one: at no moment may
            // the link look as if it wanted nothing.
            let (needed, wanted) = match class {
                Class::Client => (1, self.quantum(class) / 2),
                _ => (self.ahead_bytes.max(1), 0),
            };
            if class == Class::Client {
                self.arrived(self.ahead);
            }
            if has(self, needed.max(wanted)) {
                return Poll::Ready(());
            }
            if class != Class::Client
                && let Some(transfer) = &self.transfer
            {
                transfer.wake_when_hurried(cx);
                if transfer.class() != class {
                    continue;
                }
            }
            match std::mem::replace(&mut self.wait, Wait::No) {
                Wait::No => {
                    let missing = left.saturating_add(self.moved) - self.permitted;
                    let bytes = self.quantum(class).min(missing);
                    let pause = self.plan().map_or(Duration::ZERO, |plan| plan.take(bytes));
                    self.wait = if pause.is_zero() {
                        self.ask(class, bytes)
                    } else {
                        // It waits for its plan. Permitted bytes arrive meanwhile, or are not asked for
                        // yet, and others need not wait for them.
                        self.arrived(self.ahead);
                        Wait::ForRate(Box::pin(sleep(pause)), bytes)
                    };
                }
                Wait::ForRate(mut sleep, bytes) => {
                    if self.plan().is_some() && sleep.as_mut().poll(cx).is_pending() {
                        self.wait = Wait::ForRate(sleep, bytes);
                        return Poll::Pending;
                    }
                    self.wait = self.ask(class, bytes);
                }
                Wait::ForRoom(ticket, asked, bytes) if asked != class => {
                    // A client has come since: the transfer waits among those of clients.
                    if let Some(went_as) = self.lane.as_ref().and_then(|lane| lane.give_up(&ticket)) {
                        self.permit((asked, went_as), bytes);
                    }
                }
                Wait::ForRoom(ticket, asked, bytes) => {
                    let Poll::Ready(went_as) = ticket.poll_granted(cx) else {
                        self.wait = Wait::ForRoom(ticket, asked, bytes);
                        return if has(self, needed) {
                            Poll::Ready(())
                        } else {
                            Poll::Pending
                        };
                    };
                    self.permit((asked, went_as), bytes);
                }
            }
        }
    }

    /// Waits for permission to begin: to send a request whose answer is expected to have `expected` bytes.
    /// A client's request begins at once.
    pub async fn begins(&mut self, expected: Option<u64>) {
        std::future::poll_fn(|cx| {
            if class_of(self.transfer.as_ref()) == Class::Client {
                return Poll::Ready(());
            }
            ready!(self.poll_permitted(cx, expected));
            Poll::Ready(())
        })
        .await;
    }

    /// How many bytes of the next `most` may move now; at least one after
    /// [`poll_permitted`](Self::poll_permitted).
    pub fn permitted(&self, most: usize) -> usize {
        self.unused().min(most as u64) as usize
    }

    /// Notes that bytes have moved.
    pub fn moved(&mut self, bytes: usize) {
        self.moved += bytes as u64;
        let arrived = self.ahead.min(bytes as u64);
        self.arrived(arrived);
        if let Some(lane) = &self.lane {
            lane.moved(class_of(self.transfer.as_ref()), bytes as u64);
        }
    }

    /// Takes permission, or begins to wait for it.
    fn ask(&mut self, class: Class, bytes: u64) -> Wait {
        let ask = Ask {
            class,
            payer: self.payer,
            bytes,
            begins: self.ahead_bytes > 0 && self.permitted == 0,
            is_promised: class == Class::Client && self.promises.iter().any(|rate| rate.take_if_there(bytes)),
        };
        let taken = self.lane.as_ref().map_or(Ok(class), |lane| lane.take(ask));
        match taken {
            Ok(went_as) => {
                self.permit((class, went_as), bytes);
                Wait::No
            }
            Err(ticket) => Wait::ForRoom(ticket, class, bytes),
        }
    }

    /// Notes a permission for a transfer that asked as one of `class`, of bytes that went as those of
    /// another.
    fn permit(&mut self, (class, went_as): (Class, Class), bytes: u64) {
        self.permitted += bytes;
        self.went_as = went_as;
        if self.ahead_bytes > 0 && class != Class::Client {
            self.ahead += bytes;
        }
    }

    /// Notes that bytes are no longer on their way to a transfer that no client waits for.
    fn arrived(&mut self, bytes: u64) {
        self.ahead -= bytes;
        if let (Some(lane), Some(transfer), 1..) = (&self.lane, &self.transfer, bytes) {
            lane.arrived(transfer.began_as(), bytes);
        }
    }

    fn unused(&self) -> u64 {
        self.permitted.saturating_sub(self.moved)
    }

    fn quantum(&self, class: Class) -> u64 {
        let lane = self.lane.as_ref();
        lane.map_or(QUANTUM_WITHOUT_LINK, |lane| lane.quantum(class))
    }

    fn plan(&self) -> Option<&Arc<PlannedRate>> {
        self.transfer.as_ref()?.plan()
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let awaited = match &self.wait {
            Wait::No => 0,
            Wait::ForRate(_, bytes) | Wait::ForRoom(_, _, bytes) => *bytes,
        };
        if let Some(plan) = self.plan() {
            let taken = self.permitted + awaited;
            plan.give_back(taken.saturating_sub(self.moved));
            // The next transfer of the plan waits for what this one moved beyond its permission.
            plan.take(self.moved.saturating_sub(taken));
        }
        let Some(lane) = self.lane.clone() else { return };
        if let Wait::ForRoom(ticket, asked, bytes) = std::mem::replace(&mut self.wait, Wait::No)
            && let Some(went_as) = lane.give_up(&ticket)
        {
            self.permit((asked, went_as), bytes);
        }
        match self.permitted.cmp(&self.moved) {
            Ordering::Greater => lane.give_back(self.went_as, self.permitted - self.moved),
            // Its last piece was larger than what was permitted.
            Ordering::Less => lane.pay(class_of(self.transfer.as_ref()), self.moved - self.permitted),
            Ordering::Equal => {}
        }
        self.arrived(self.ahead);
    }
}
