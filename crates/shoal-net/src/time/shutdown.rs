//! The signal for every task to stop.

use tokio::sync::watch;

/// Sends the signal. Dropping it sends the signal, too, so that no task outlives the owner.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// Receives the signal.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// Creates a trigger and its receiver.
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
    /// Asks every task to stop. Further calls have no effect.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Returns true if shutdown has begun; an atomic load.
    pub fn has_begun(&self) -> bool {
        self.0.has_changed().unwrap_or(true)
    }

    /// Runs `work` until it ends or shutdown begins.
    pub async fn limits(&self, work: impl Future<Output = ()>) {
        tokio::select! {
            () = work => {}
            () = self.begun() => {}
        }
    }

    /// Waits until shutdown begins.
    pub async fn begun(&self) {
        let mut receiver = self.0.clone();
        // An error means that the trigger has been dropped, which is the same signal.
        let _ = receiver.wait_for(|begun| *begun).await;
    }
}

#[cfg(test)]
mod tests {
    use super::channel;

    #[tokio::test]
    async fn every_waiter_hears_that_stopping_begins_even_a_late_one() {
        let (trigger, shutdown) = channel();
        let early = shutdown.clone();
        assert!(!early.has_begun());
        let waiting = tokio::spawn(async move { early.begun().await });
        trigger.begin();
        waiting.await.unwrap();
        let late = shutdown.clone();
        assert!(shutdown.has_begun() && late.has_begun());
        late.begun().await;
    }

    #[tokio::test]
    async fn a_dropped_trigger_means_stop() {
        let (trigger, shutdown) = channel();
        drop(trigger);
        assert!(shutdown.has_begun());
        shutdown.begun().await;
    }
}
