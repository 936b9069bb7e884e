//! Signals: stop (Ctrl-C, SIGTERM, SIGQUIT) and reload (SIGHUP).

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::failure::Failure;

/// The action that a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalAction {
    Stop,
    Reload,
}

/// Receives signals from its creation on, so that none is lost during a slow start.
///
/// SIGUSR1 and SIGUSR2, which would kill the process by default, are logged and ignored.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
    hangup: Signal,
    user: [Signal; 2],
}

impl Signals {
    /// Must be called within the runtime.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::new("signals cannot be received", &error));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            quit: listen(SignalKind::quit())?,
            hangup: listen(SignalKind::hangup())?,
            user: [
                listen(SignalKind::user_defined1())?,
                listen(SignalKind::user_defined2())?,
            ],
        })
    }

    /// Waits for the next signal to act on.
    pub(crate) async fn next(&mut self) -> SignalAction {
        let [first, second] = &mut self.user;
        loop {
            let ignored = tokio::select! {
                _ = self.interrupt.recv() => return SignalAction::Stop,
                _ = self.terminate.recv() => return SignalAction::Stop,
                _ = self.quit.recv() => return SignalAction::Stop,
                _ = self.hangup.recv() => return SignalAction::Reload,
                _ = first.recv() => "SIGUSR1",
                _ = second.recv() => "SIGUSR2",
            };
            tracing::warn!(
                signal = ignored,
                "the signal has no effect; SIGHUP reloads the configuration, SIGTERM stops"
            );
        }
    }

    /// Waits for a signal to stop. There is nothing to reload at this stage.
    pub(crate) async fn stop(&mut self) {
        while self.next().await == SignalAction::Reload {
            tracing::warn!("SIGHUP has no effect: there is no configuration to reload");
        }
    }

    /// Waits for a signal to stop, or for the terminal to close.
    pub(crate) async fn stop_with_terminal(&mut self) {
        self.next().await;
    }

    /// Runs `shutdown` to its end, unless a second signal interrupts it.
    pub(crate) async fn or_give_up(mut self, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
        tokio::select! {
            () = shutdown => Ok(()),
            () = self.stop() => {
                Err(Failure::failed("stopped before requests in flight were done, by a second signal"))
            }
        }
    }
}
