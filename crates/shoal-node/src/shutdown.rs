//! The signal to every task of the process to begin to stop.

use tokio::sync::watch;

/// Gives the signal. Dropping it does so too, so that no task outlives the owner of the trigger.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// Receives the signal.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// A trigger and its listener.
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
    /// Asks every task to stop. A second call changes nothing.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Whether stopping has begun; an atomic load.
    pub fn has_begun(&self) -> bool {
        self.0.has_changed().unwrap_or(true)
    }

    /// Waits until stopping begins.
    pub async fn begun(&self) {
        let mut receiver = self.0.clone();
        // An error means that the trigger is gone, which means the same.
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
