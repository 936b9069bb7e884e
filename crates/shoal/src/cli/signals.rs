//! The wish to stop: Ctrl-C or SIGTERM.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::failure::Failure;

/// Listens from the moment it is made, so that a signal during a slow start is not lost.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Must be called on the runtime.
    pub(super) fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::new("signals cannot be received", &error));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Finishes `shutdown`, unless a second signal says that it takes too long.
    pub(super) async fn or_give_up(mut self, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
        tokio::select! {
            () = shutdown => Ok(()),
            () = self.next() => {
                let what = "stopped before requests in flight were done, by a second signal".into();
                Err(Failure::Failed { what, hint: None })
            }
        }
    }
}
