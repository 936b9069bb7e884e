//! Tracks whether the disk accepts new blocks. A failed operation pauses writing until a probe succeeds.

use std::io;

use parking_lot::Mutex;
use shoal_base::words::Count;
use shoal_policy::admission::Refusal;

use crate::files::disk::Disk;

/// The state of the disk with regard to new blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It accepts blocks.
    #[default]
    Serving,
    /// It failed or is full: blocks are still read, but none are written until a probe succeeds.
    Paused {
        /// The error of the disk.
        why: String,
    },
}

/// Derives the health of the disk from failed operations and probes.
#[derive(Default)]
pub(crate) struct DiskHealth {
    health: Mutex<Health>,
    io_errors: Count,
}

impl DiskHealth {
    pub(crate) fn current(&self) -> Health {
        self.health.lock().clone()
    }

    pub(crate) fn is_paused(&self) -> bool {
        *self.health.lock() != Health::Serving
    }

    /// Returns the number of disk operations that failed.
    pub(crate) fn io_errors(&self) -> u64 {
        self.io_errors.get()
    }

    /// Counts a failed operation that does not indicate a failing disk.
    pub(crate) fn exhausted(&self) {
        self.io_errors.add(1);
    }

    /// Marks the disk as failed: writing pauses until [`DiskHealth::probe`] succeeds. The first failure is
    /// reported as the reason, because later ones often follow from it.
    pub(crate) fn failed(&self, action: &str, error: &io::Error) {
        self.io_errors.add(1);
        let why = format!("{action}: {error}");
        {
            let mut health = self.health.lock();
            if *health != Health::Serving {
                return;
            }
            *health = Health::Paused { why: why.clone() };
        }
        tracing::error!(
            why,
            "the store's disk fails; blocks are not stored until it works again"
        );
    }

    /// Records a failed write, and returns why the block is not stored.
    pub(crate) fn write_failed(&self, action: &str, error: &io::Error) -> Refusal {
        if is_exhaustion(error) {
            self.exhausted();
            return Refusal::Exhausted;
        }
        self.failed(action, error);
        Refusal::Paused
    }

    /// If writing is paused, probes the disk and resumes if it works again. Blocks.
    pub(crate) fn probe(&self, disk: &Disk) -> Health {
        if self.is_paused() {
            match disk.probe() {
                Ok(()) => {
                    *self.health.lock() = Health::Serving;
                    tracing::info!("the store's disk works again");
                }
                Err(error) => self.failed("write a file to see whether it works", &error),
            }
        }
        self.current()
    }
}

/// Returns true if the process, rather than the disk, has run out of a resource.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN)
    )
}
