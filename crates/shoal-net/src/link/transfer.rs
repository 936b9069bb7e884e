//! Purposes of requests to the lake, and background transfers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_policy::link::Class;

use super::{JobRate, PlannedRate, QuotaRate};

/// The purpose of reading blocks.
#[derive(Clone, Debug, Default)]
pub enum Purpose {
    /// A client waits for the blocks.
    #[default]
    Client,
    /// A client that is a job of a plan waits for the blocks. They come from the lake at the job's rate.
    Job(Arc<JobRate>),
    /// A plan needs the blocks on this node, at its rate.
    Planned(Arc<PlannedRate>),
    /// A client will probably need the blocks.
    Prefetch,
    /// The blocks are being flushed to the lake.
    Cleaning,
}

impl Purpose {
    /// Returns the class of transfers for this purpose.
    pub fn class(&self) -> Class {
        match self {
            Self::Client | Self::Job(_) => Class::Client,
            Self::Planned(_) => Class::Planned,
            Self::Prefetch => Class::Prefetch,
            Self::Cleaning => Class::Cleaning,
        }
    }

    /// Returns true if a client waits for the blocks.
    pub fn is_client(&self) -> bool {
        self.class() == Class::Client
    }

    /// Returns the purpose for the word of a class that another node sends. That node enforces a plan's rate,
    /// so the rate here is one that no transfer reaches.
    pub fn of_word(word: &str) -> Option<Self> {
        Some(match Class::from_name(word)? {
            Class::Client => Self::Client,
            Class::Planned => Self::Planned(PlannedRate::new(None, u64::MAX, 0)),
            Class::Prefetch => Self::Prefetch,
            Class::Cleaning => Self::Cleaning,
        })
    }

    /// Returns a transfer for this purpose, or `None` for that of a client without a rate, which is the
    /// default for requests.
    pub fn transfer(&self) -> Option<Transfer> {
        self.transfer_within(Vec::new())
    }

    /// Returns a transfer for this purpose that is charged to quotas with these rates. `None` for that of a
    /// client without any rate.
    pub fn transfer_within(&self, quotas: Vec<Arc<QuotaRate>>) -> Option<Transfer> {
        let has_rate = !quotas.is_empty() || !matches!(self, Self::Client);
        let charge = |rate| QuotaCharge {
            rate,
            has_ended: AtomicBool::new(false),
        };
        has_rate.then(|| Transfer {
            inner: Arc::new(Inner {
                purpose: self.clone(),
                is_hurried: AtomicBool::new(false),
                waiting: Mutex::default(),
            }),
            quotas: quotas.into_iter().map(charge).collect(),
        })
    }
}

/// A transfer that keeps a rate, or that no client waited for when it began. All requests for it share this
/// value.
#[derive(Clone)]
pub struct Transfer {
    inner: Arc<Inner>,
    quotas: Arc<[QuotaCharge]>,
}

struct Inner {
    purpose: Purpose,
    is_hurried: AtomicBool,
    /// Tasks to wake when a client starts to wait.
    waiting: Mutex<Vec<Waker>>,
}

/// A quota that a transfer is charged to, until a read outside of the quota waits for the transfer.
struct QuotaCharge {
    rate: Arc<QuotaRate>,
    has_ended: AtomicBool,
}

impl Transfer {
    /// Returns the current class.
    pub fn class(&self) -> Class {
        if self.is_hurried() {
            Class::Client
        } else {
            self.began_as()
        }
    }

    /// Returns the class before a client started to wait for it.
    pub(super) fn began_as(&self) -> Class {
        self.inner.purpose.class()
    }

    /// Returns true if a client has waited for the transfer from the start.
    pub fn is_of_client(&self) -> bool {
        self.inner.purpose.is_client()
    }

    /// Returns true if the transfer is a client's that names no job of a plan.
    pub fn names_no_job(&self) -> bool {
        matches!(self.inner.purpose, Purpose::Client)
    }

    /// Returns true while no client waits for the transfer.
    pub fn is_in_background(&self) -> bool {
        self.class() != Class::Client
    }

    /// Returns the rate of the job that the transfer is for, while no other client waits for it.
    pub fn job(&self) -> Option<&Arc<JobRate>> {
        match &self.inner.purpose {
            Purpose::Job(rate) if !self.is_hurried() => Some(rate),
            _ => None,
        }
    }

    /// Returns the same transfer for bytes that do not come from the lake, which no quota is charged for.
    /// `None` if it keeps no other rate.
    pub fn beside_quotas(&self) -> Option<Self> {
        (!self.names_no_job()).then(|| Self {
            inner: Arc::clone(&self.inner),
            quotas: Arc::default(),
        })
    }

    /// Records that a read for this purpose, charged to quotas with these rates, has to wait for the
    /// transfer. If it is a client's, the transfer rises to the class of clients, unless the read is the same
    /// job's, and it is no longer charged to quotas that the read is not charged to.
    pub fn hurry_for(&self, purpose: &Purpose, quotas: &[Arc<QuotaRate>]) {
        if !purpose.is_client() {
            return;
        }
        for charge in &*self.quotas {
            if !quotas.iter().any(|rate| Arc::ptr_eq(rate, &charge.rate)) {
                charge.has_ended.store(true, Ordering::SeqCst);
            }
        }
        let is_same_job = match (&self.inner.purpose, purpose) {
            (Purpose::Job(one), Purpose::Job(other)) => one.id == other.id,
            _ => false,
        };
        if !is_same_job {
            self.inner.is_hurried.store(true, Ordering::SeqCst);
        }
        self.wake();
    }

    /// Raises the transfer to the class of clients, because a client now waits for it, and ends its rates.
    pub fn hurry(&self) {
        self.hurry_for(&Purpose::Client, &[]);
    }

    /// Returns true if a client waits for the transfer.
    pub fn is_hurried(&self) -> bool {
        self.inner.is_hurried.load(Ordering::SeqCst)
    }

    /// Returns true while the transfer may wait: no client waits for it, or only readers whose rates it
    /// keeps.
    pub fn may_wait(&self) -> bool {
        (!self.names_no_job() && !self.is_hurried()) || self.charged().next().is_some()
    }

    /// Waits until the transfer may no longer wait.
    pub async fn hurried(&self) {
        std::future::poll_fn(|cx| {
            self.wake_when_hurried(cx);
            if self.may_wait() {
                std::task::Poll::Pending
            } else {
                std::task::Poll::Ready(())
            }
        })
        .await;
    }

    /// Returns the number of rates that the transfer keeps now.
    pub(super) fn rates(&self) -> usize {
        let of_purpose =
            !self.is_hurried() && matches!(self.inner.purpose, Purpose::Planned(_) | Purpose::Job(_));
        usize::from(of_purpose) + self.charged().count()
    }

    /// Takes permission to move `bytes` at the rates of the transfer. Returns how long to wait before they
    /// may move; zero if it keeps no rate.
    pub(super) fn take(&self, bytes: u64) -> Duration {
        let of_purpose = match &self.inner.purpose {
            _ if self.is_hurried() => Duration::ZERO,
            Purpose::Planned(rate) => rate.take(bytes),
            Purpose::Job(rate) => rate.take(bytes),
            Purpose::Client | Purpose::Prefetch | Purpose::Cleaning => Duration::ZERO,
        };
        let of_quotas = self.charged().map(|rate| rate.take(bytes)).max();
        of_purpose.max(of_quotas.unwrap_or_default())
    }

    /// Returns unused permission to move bytes at the rates of the transfer.
    pub(super) fn give_back(&self, bytes: u64) {
        match &self.inner.purpose {
            _ if self.is_hurried() => {}
            Purpose::Planned(rate) => rate.give_back(bytes),
            Purpose::Job(rate) => rate.give_back(bytes),
            Purpose::Client | Purpose::Prefetch | Purpose::Cleaning => {}
        }
        self.charged().for_each(|rate| rate.give_back(bytes));
    }

    /// Counts bytes that have moved.
    pub(super) fn moved(&self, bytes: u64) {
        self.charged().for_each(|rate| rate.moved(bytes));
    }

    /// Returns the rates of the quotas that the transfer is charged to now.
    fn charged(&self) -> impl Iterator<Item = &Arc<QuotaRate>> {
        let charges = self.quotas.iter();
        let charges = charges.filter(|charge| !charge.has_ended.load(Ordering::SeqCst));
        charges.map(|charge| &charge.rate)
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.inner.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Wakes the task when a client starts to wait, or a rate ends. The caller must check afterwards if that
    /// has happened already.
    pub(super) fn wake_when_hurried(&self, cx: &Context<'_>) {
        let mut waiting = self.inner.waiting.lock();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transfer").field(&self.class()).finish()
    }
}
