//! Purposes of requests to the lake, and background transfers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_policy::link::Class;

use super::{JobRate, PlannedRate};

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
        (!matches!(self, Self::Client)).then(|| {
            Transfer(Arc::new(Inner {
                purpose: self.clone(),
                is_hurried: AtomicBool::new(false),
                waiting: Mutex::default(),
            }))
        })
    }
}

/// A transfer that keeps a rate, or that no client waited for when it began. All requests for it share this
/// value.
#[derive(Clone)]
pub struct Transfer(Arc<Inner>);

struct Inner {
    purpose: Purpose,
    is_hurried: AtomicBool,
    /// Tasks to wake when a client starts to wait.
    waiting: Mutex<Vec<Waker>>,
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
        self.0.purpose.class()
    }

    /// Returns true if a client has waited for the transfer from the start.
    pub fn is_of_client(&self) -> bool {
        self.0.purpose.is_client()
    }

    /// Returns true while no client waits for the transfer.
    pub fn is_in_background(&self) -> bool {
        self.class() != Class::Client
    }

    /// Returns the rate of the job that the transfer is for, while no other client waits for it.
    pub fn job(&self) -> Option<&Arc<JobRate>> {
        match &self.0.purpose {
            Purpose::Job(rate) if !self.is_hurried() => Some(rate),
            _ => None,
        }
    }

    /// Raises the transfer to the class of clients if a read for this purpose has to wait for it: a client's
    /// read, unless it is the same job's.
    pub fn hurry_for(&self, purpose: &Purpose) {
        let is_same_job = match (&self.0.purpose, purpose) {
            (Purpose::Job(one), Purpose::Job(other)) => one.id == other.id,
            _ => false,
        };
        if purpose.is_client() && !is_same_job {
            self.hurry();
        }
    }

    /// Raises the transfer to the class of clients, because a client now waits for it, and ends its rate.
    pub fn hurry(&self) {
        if !self.0.is_hurried.swap(true, Ordering::SeqCst) {
            let waiting = std::mem::take(&mut *self.0.waiting.lock());
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// Returns true if a client waits for the transfer.
    pub fn is_hurried(&self) -> bool {
        self.0.is_hurried.load(Ordering::SeqCst)
    }

    /// Waits until a client waits for the transfer.
    pub async fn hurried(&self) {
        std::future::poll_fn(|cx| {
            self.wake_when_hurried(cx);
            if self.is_hurried() {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }

    /// Returns true if the transfer keeps a rate now.
    pub(super) fn keeps_rate(&self) -> bool {
        !self.is_hurried() && matches!(self.0.purpose, Purpose::Planned(_) | Purpose::Job(_))
    }

    /// Takes permission to move `bytes` at the rate of the transfer. Returns how long to wait before they may
    /// move; zero if it keeps no rate.
    pub(super) fn take(&self, bytes: u64) -> Duration {
        match &self.0.purpose {
            _ if self.is_hurried() => Duration::ZERO,
            Purpose::Planned(rate) => rate.take(bytes),
            Purpose::Job(rate) => rate.take(bytes),
            Purpose::Client | Purpose::Prefetch | Purpose::Cleaning => Duration::ZERO,
        }
    }

    /// Returns unused permission to move bytes at the rate of the transfer.
    pub(super) fn give_back(&self, bytes: u64) {
        match &self.0.purpose {
            _ if self.is_hurried() => {}
            Purpose::Planned(rate) => rate.give_back(bytes),
            Purpose::Job(rate) => rate.give_back(bytes),
            Purpose::Client | Purpose::Prefetch | Purpose::Cleaning => {}
        }
    }

    /// Wakes the task when a client starts to wait. The caller must check afterwards if one already does.
    pub(super) fn wake_when_hurried(&self, cx: &Context<'_>) {
        let mut waiting = self.0.waiting.lock();
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
