//! Paces one body on the link.

use std::cmp::Ordering;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use shoal_policy::fair::Payer;
use shoal_policy::link::{Ask, Class};
use tokio::time::{Sleep, sleep};

use super::lane::{Lane, Ticket};
use super::{JobRate, Transfer, class_of};

/// Bytes that a transfer with a rate takes at a time, on a node without a metered link.
const QUANTUM_WITHOUT_LINK: u64 = 64 << 10;

/// The permission of one body to move its next bytes.
///
/// A client's body takes permission before each frame. A background body takes it ahead, for as many bytes as
/// the kernel may receive before the node reads them, so that its bytes are charged before they are in
/// flight.
#[derive(Debug)]
pub struct Flow {
    /// `None` if only the rates of a plan and of quotas apply.
    lane: Option<Arc<Lane>>,
    transfer: Option<Transfer>,
    /// The rates of jobs that read this body by plan, if the client does not say which job it is.
    promises: Vec<Arc<JobRate>>,
    payer: Payer,
    /// Bytes that were permitted.
    permitted: u64,
    /// The class that the last permitted bytes were charged to.
    went_as: Class,
    /// Bytes that have moved; more than `permitted` if the last frame was large.
    moved: u64,
    /// Permitted bytes that count as in flight to a background transfer.
    ahead: u64,
    /// Bytes to pay for ahead while no client waits.
    ahead_bytes: u64,
    wait: Wait,
}

/// Wait state of a flow.
#[derive(Debug)]
enum Wait {
    No,
    /// Until the rates of the transfer, of which there was this number, allow this number of bytes.
    ForRate(Pin<Box<Sleep>>, usize, u64),
    /// Until the link has room for this number of bytes of the class.
    ForRoom(Ticket, Class, u64),
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

    /// Creates a flow that only enforces the rates of a plan and of quotas, for connections that are not
    /// metered. Returns `None` for a transfer without a rate.
    pub fn unmetered(transfer: Option<&Transfer>, payer: Payer) -> Option<Self> {
        let transfer = transfer.filter(|transfer| transfer.rates() > 0)?;
        Some(Self::new(None, Some(transfer.clone()), payer))
    }

    /// Returns the same flow, which takes permission for `bytes` ahead while no client waits.
    #[must_use]
    pub(super) fn ahead_by(mut self, bytes: u64) -> Self {
        self.ahead_bytes = bytes;
        self
    }

    /// Returns the same flow of a body that jobs with these rates read by plan.
    #[must_use]
    pub fn promised(mut self, rates: Vec<Arc<JobRate>>) -> Self {
        self.promises = rates;
        self
    }

    /// Ready when the next bytes of the body may move. `left` is the number of remaining bytes, if known.
    pub fn poll_permitted(&mut self, cx: &mut Context<'_>, left: Option<u64>) -> Poll<()> {
        let left = left.unwrap_or(u64::MAX);
        let has = |flow: &Self, bytes: u64| flow.permitted >= flow.moved.saturating_add(bytes.min(left));
        loop {
            let class = class_of(self.transfer.as_ref());
            // A client's transfer asks for the next quantum while it moves the last one: the link must never
            // seem idle.
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
            let rates = self.rates();
            if let Some(transfer) = &self.transfer
                && transfer.may_wait()
            {
                transfer.wake_when_hurried(cx);
                if class_of(Some(transfer)) != class || transfer.rates() != rates {
                    continue;
                }
            }
            match std::mem::replace(&mut self.wait, Wait::No) {
                Wait::No => {
                    let missing = left.saturating_add(self.moved) - self.permitted;
                    let bytes = self.quantum(class).min(missing);
                    let pause = self.transfer.as_ref().map(|transfer| transfer.take(bytes));
                    let pause = pause.unwrap_or_default();
                    self.wait = if pause.is_zero() {
                        self.ask(class, bytes)
                    } else {
                        // The transfer waits for its rate. Permitted bytes arrive meanwhile, or have not been
                        // requested yet, so others need not wait for them.
                        self.arrived(self.ahead);
                        Wait::ForRate(Box::pin(sleep(pause)), rates, bytes)
                    };
                }
                // If one of several rates has ended, these bytes have been paid for to the others.
                Wait::ForRate(mut sleep, before, bytes) => {
                    if rates == before && sleep.as_mut().poll(cx).is_pending() {
                        self.wait = Wait::ForRate(sleep, rates, bytes);
                        return if has(self, needed) {
                            Poll::Ready(())
                        } else {
                            Poll::Pending
                        };
                    }
                    self.wait = self.ask(class, bytes);
                }
                Wait::ForRoom(ticket, asked, bytes) if asked != class => {
                    // A client now waits for the transfer: it queues again, among those of clients.
                    self.give_up(ticket, asked, bytes);
                }
                Wait::ForRoom(mut ticket, asked, bytes) => {
                    let Poll::Ready(granted) = Pin::new(&mut ticket).poll(cx) else {
                        self.wait = Wait::ForRoom(ticket, asked, bytes);
                        return if has(self, needed) {
                            Poll::Ready(())
                        } else {
                            Poll::Pending
                        };
                    };
                    let went_as = granted.expect("a lane drops no ticket that is wanted");
                    self.permit(asked, went_as, bytes);
                }
            }
        }
    }

    /// Waits for permission to send a request whose response is expected to have `expected` bytes. A client's
    /// request begins at once.
    pub async fn begins(&mut self, expected: Option<u64>) {
        std::future::poll_fn(|cx| match class_of(self.transfer.as_ref()) {
            Class::Client => Poll::Ready(()),
            _ => self.poll_permitted(cx, expected),
        })
        .await;
    }

    /// Returns how many of the next `most` bytes may move now; at least one after
    /// [`poll_permitted`](Self::poll_permitted).
    pub fn permitted(&self, most: usize) -> usize {
        self.permitted.saturating_sub(self.moved).min(most as u64) as usize
    }

    /// Records that bytes have moved.
    pub fn moved(&mut self, bytes: usize) {
        self.moved += bytes as u64;
        let arrived = self.ahead.min(bytes as u64);
        self.arrived(arrived);
        if let Some(lane) = &self.lane {
            lane.moved(class_of(self.transfer.as_ref()), bytes as u64);
        }
        if let Some(transfer) = &self.transfer {
            transfer.moved(bytes as u64);
        }
        if let Some(job) = self.job() {
            job.moved_for_job(bytes as u64);
        }
        for rate in &self.promises {
            rate.moved_for_others(bytes as u64);
        }
    }

    /// Takes permission, or starts to wait for it.
    fn ask(&mut self, class: Class, bytes: u64) -> Wait {
        let ask = Ask {
            class,
            payer: self.payer,
            bytes,
            begins: self.ahead_bytes > 0 && self.permitted == 0,
            is_promised: class == Class::Client && self.takes_promised(bytes),
        };
        let taken = self.lane.as_ref().map_or(Ok(class), |lane| lane.take(ask));
        match taken {
            Ok(went_as) => {
                self.permit(class, went_as, bytes);
                Wait::No
            }
            Err(ticket) => Wait::ForRoom(ticket, class, bytes),
        }
    }

    /// Records permission for a transfer that asked as `class`, of bytes that were charged to `went_as`.
    fn permit(&mut self, class: Class, went_as: Class, bytes: u64) {
        self.permitted += bytes;
        self.went_as = went_as;
        if self.ahead_bytes > 0 && class != Class::Client {
            self.ahead += bytes;
        }
    }

    /// Stops waiting for room for bytes that were asked for as `asked`.
    fn give_up(&mut self, ticket: Ticket, asked: Class, bytes: u64) {
        if let Some(went_as) = self.lane.as_ref().and_then(|lane| lane.give_up(ticket)) {
            self.permit(asked, went_as, bytes);
        }
    }

    /// Records that bytes are no longer in flight to a background transfer.
    fn arrived(&mut self, bytes: u64) {
        assert!(bytes <= self.ahead, "bytes arrive once");
        self.ahead -= bytes;
        if let (Some(lane), Some(transfer), 1..) = (&self.lane, &self.transfer, bytes) {
            lane.arrived(transfer.began_as(), bytes);
        }
    }

    fn quantum(&self, class: Class) -> u64 {
        let lane = self.lane.as_ref();
        lane.map_or(QUANTUM_WITHOUT_LINK, |lane| lane.quantum(class))
    }

    /// Takes permission of the promises to move `bytes` before other clients. Returns true if there is any.
    fn takes_promised(&self, bytes: u64) -> bool {
        let mut rates = self.job().into_iter().chain(&self.promises);
        rates.any(|rate| rate.take_promised(bytes))
    }

    /// Returns the number of rates that the transfer keeps now.
    fn rates(&self) -> usize {
        self.transfer.as_ref().map_or(0, Transfer::rates)
    }

    fn job(&self) -> Option<&Arc<JobRate>> {
        self.transfer.as_ref()?.job()
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let awaited = match &self.wait {
            Wait::No => 0,
            Wait::ForRate(_, _, bytes) | Wait::ForRoom(_, _, bytes) => *bytes,
        };
        if let Some(transfer) = &self.transfer {
            let taken = self.permitted + awaited;
            transfer.give_back(taken.saturating_sub(self.moved));
            // Charge the bytes that moved without permission to the next transfer at this rate.
            transfer.take(self.moved.saturating_sub(taken));
        }
        if let Wait::ForRoom(ticket, asked, bytes) = std::mem::replace(&mut self.wait, Wait::No) {
            self.give_up(ticket, asked, bytes);
        }
        let Some(lane) = &self.lane else { return };
        match self.permitted.cmp(&self.moved) {
            Ordering::Greater => lane.give_back(self.went_as, self.permitted - self.moved),
            // The last frame was larger than permitted.
            Ordering::Less => lane.pay(class_of(self.transfer.as_ref()), self.moved - self.permitted),
            Ordering::Equal => {}
        }
        self.arrived(self.ahead);
    }
}
