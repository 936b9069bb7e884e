//! Purposes of requests to the lake, and the transfers that no client waits for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;
use shoal_policy::link::Class;

use super::PlannedRate;

/// Purpose for which blocks are read.
#[derive(Clone, Debug, Default)]
pub enum Purpose {
    /// A client waits for them.
    #[default]
    Client,
    /// A plan wants them here, at its rate.
    Planned(Arc<PlannedRate>),
    /// A client will probably want them.
    Prefetch,
    /// They are on their way to the lake.
    Cleaning,
}

impl Purpose {
    /// The class of its transfers.
    pub fn class(&self) -> Class {
        match self {
            Self::Client => Class::Client,
            Self::Planned(_) => Class::Planned,
            Self::Prefetch => Class::Prefetch,
            Self::Cleaning => Class::Cleaning,
        }
    }

    /// The purpose that another node names by the word of its class. That node itself keeps a plan's rate.
    pub fn of_word(word: &str) -> Option<Self> {
        Some(match Class::of_word(word)? {
            Class::Client => Self::Client,
            Class::Planned => Self::Planned(PlannedRate::kept_elsewhere()),
            Class::Prefetch => Self::Prefetch,
            Class::Cleaning => Self::Cleaning,
        })
    }

    /// A transfer for this purpose; `None` for a client's, which is what requests are by default.
    pub fn transfer(&self) -> Option<Transfer> {
        let plan = match self {
            Self::Client => return None,
            Self::Planned(plan) => Some(Arc::clone(plan)),
            Self::Prefetch | Self::Cleaning => None,
        };
        Some(Transfer(Arc::new(Inner {
            class: self.class(),
            plan,
            is_hurried: AtomicBool::new(false),
            waiting: Mutex::default(),
        })))
    }
}

/// A transfer that no client waited for when it began. All requests that it takes share it.
#[derive(Clone)]
pub struct Transfer(Arc<Inner>);

struct Inner {
    class: Class,
    plan: Option<Arc<PlannedRate>>,
    is_hurried: AtomicBool,
    /// Tasks to wake when a client comes.
    waiting: Mutex<Vec<Waker>>,
}

impl Transfer {
    /// Its class now.
    pub fn class(&self) -> Class {
        if self.is_hurried() {
            Class::Client
        } else {
            self.0.class
        }
    }

    /// Its class until a client waits for it.
    pub(super) fn began_as(&self) -> Class {
        self.0.class
    }

    /// A client waits for it from now on: it goes on as a client's.
    pub fn hurry(&self) {
        if !self.0.is_hurried.swap(true, Ordering::SeqCst) {
            let waiting = std::mem::take(&mut *self.0.waiting.lock());
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// Whether a client waits for it.
    pub fn is_hurried(&self) -> bool {
        self.0.is_hurried.load(Ordering::SeqCst)
    }

    /// Waits until a client waits for it.
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

    /// The rate that it keeps until a client waits for it.
    pub(super) fn plan(&self) -> Option<&Arc<PlannedRate>> {
        self.0.plan.as_ref().filter(|_| !self.is_hurried())
    }

    /// Wakes the task when a client comes. The caller checks afterwards if one has come.
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
