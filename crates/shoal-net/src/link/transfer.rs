//! Purposes of requests to the lake, and background transfers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;
use shoal_policy::link::Class;

use super::PlannedRate;

/// The purpose of reading blocks.
#[derive(Clone, Debug, Default)]
pub enum Purpose {
    /// A client waits for the blocks.
    #[default]
    Client,
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
            Self::Client => Class::Client,
            Self::Planned(_) => Class::Planned,
            Self::Prefetch => Class::Prefetch,
            Self::Cleaning => Class::Cleaning,
        }
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

    /// Returns a transfer for this purpose, or `None` for a client's, which is the default for requests.
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

/// A transfer that no client waited for when it began. All requests for it share this value.
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

    /// Raises the transfer to the class of clients, because a client now waits for it.
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

    /// Returns the rate that the transfer must keep, unless a client waits for it.
    pub(super) fn plan(&self) -> Option<&Arc<PlannedRate>> {
        match &self.0.purpose {
            Purpose::Planned(plan) if !self.is_hurried() => Some(plan),
            _ => None,
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
