//! Signals: stop (Ctrl-C, SIGTERM, SIGQUIT) and reload (SIGHUP).

use std::future::poll_fn;
use std::task::Poll;

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
pub(crate) struct Signals(Vec<(SignalKind, Signal)>);

impl Signals {
    /// Must be called within the runtime.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map(|signal| (kind, signal));
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::quit(),
            SignalKind::hangup(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ];
        let signals = kinds.into_iter().map(listen).collect::<Result<_, _>>();
        let signals = signals.map_err(|error| Failure::new("signals cannot be received", &error))?;
        Ok(Self(signals))
    }

    /// Waits for the next signal to act on.
    pub(crate) async fn next(&mut self) -> SignalAction {
        loop {
            let next = poll_fn(|context| {
                let mut signals = self.0.iter_mut();
                let ready =
                    signals.find_map(|(kind, signal)| signal.poll_recv(context).is_ready().then_some(*kind));
                ready.map_or(Poll::Pending, Poll::Ready)
            });
            match next.await {
                kind if kind == SignalKind::hangup() => return SignalAction::Reload,
                kind if kind == SignalKind::user_defined1() => ignore("SIGUSR1"),
                kind if kind == SignalKind::user_defined2() => ignore("SIGUSR2"),
                _ => return SignalAction::Stop,
            }
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

fn ignore(signal: &str) {
    tracing::warn!(
        signal,
        "the signal has no effect; SIGHUP reloads the configuration, SIGTERM stops"
    );
}
