//! Feeds a tier's events to the cleaning policy and applies the resulting pace to the cleaner.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shoal_net::clock;
use shoal_policy::cleaning::{Bounds, Cleaning, Fill, FlushEnd, Flushed, Kind, Load, Plan};
use shoal_registry::worker::Pace;
use shoal_registry::{Death, Lifetime};

use crate::dirty::lake_writer::{NotWritten, Uploaded};

/// The pace of one tier's cleaner.
#[derive(Debug)]
pub(crate) struct Pacing {
    cleaning: Mutex<Cleaning>,
    /// The configured pace.
    most: Pace,
    started: Instant,
}

impl Pacing {
    /// Creates the pacing of a tier, which never exceeds the ages in `most`.
    pub(crate) fn new(most: Pace) -> Self {
        let bounds = Bounds {
            age: most.age,
            short_age: most.short_age,
        };
        Self {
            cleaning: Mutex::new(Cleaning::new(bounds)),
            most,
            started: clock::instant(),
        }
    }

    /// Records the outcome of a flush of `size_bytes` that began at `began`.
    pub(crate) fn flushed(&self, written: Result<&Uploaded, &NotWritten>, size_bytes: u64, began: Instant) {
        let end = match written {
            Ok(_) => FlushEnd::Written,
            Err(failure) if failure.error.is_overload() => FlushEnd::Overloaded,
            Err(_) => FlushEnd::Failed,
        };
        self.cleaning.lock().flushed(Flushed {
            end,
            size_bytes,
            took: clock::instant().saturating_duration_since(began),
            now: self.now(),
        });
    }

    fn now(&self) -> Duration {
        clock::instant().saturating_duration_since(self.started)
    }

    /// Records objects that died while they were dirty.
    pub(crate) fn died(&self, deaths: impl IntoIterator<Item = Death>) {
        let now = self.now();
        let mut cleaning = self.cleaning.lock();
        for Death { lifetime, age } in deaths {
            let kind = match lifetime {
                Lifetime::Normal => Kind::Normal,
                Lifetime::Short => Kind::Short,
            };
            cleaning.died(kind, age, now);
        }
    }

    /// Returns the pace for the current fill level of the tier and load of the lake.
    pub(crate) fn pace(&self, fill: Fill, load: Load) -> Pace {
        let Plan {
            age,
            short_age,
            flushes,
        } = self.cleaning.lock().plan(fill, load, self.now());
        Pace {
            age,
            short_age,
            parallel: flushes,
            ..self.most
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;
    use shoal_policy::cleaning::{FLUSHES_MAX, Fill, Load};
    use shoal_registry::worker::Pace;
    use shoal_registry::{Death, Lifetime};

    use super::Pacing;
    use crate::dirty::lake_writer::{LakeWriteError, NotWritten, Uploaded};
    use shoal_net::clock;

    const MOST: Pace = Pace {
        age: Duration::from_mins(1),
        short_age: Duration::from_mins(10),
        holds: true,
        parallel: FLUSHES_MAX,
        upload_age: Duration::from_hours(1),
    };
    const EMPTY: Fill = Fill {
        stored_bytes: 0,
        capacity_bytes: 1,
    };
    const IDLE: Load = Load {
        requests_max: 32,
        clients_wait: false,
    };

    #[test]
    fn only_a_lake_that_is_asked_too_much_gets_fewer_flushes() {
        let refused = |status| LakeWriteError::Refused(status);
        for (error, flushes) in [
            (refused(StatusCode::SERVICE_UNAVAILABLE), 4),
            (refused(StatusCode::TOO_MANY_REQUESTS), 4),
            (refused(StatusCode::FORBIDDEN), 8),
            (refused(StatusCode::INTERNAL_SERVER_ERROR), 8),
            (LakeWriteError::SessionOver, 8),
        ] {
            let pacing = Pacing::new(MOST);
            let failure = NotWritten {
                error,
                may_exist: false,
            };
            pacing.flushed(Ok(&Uploaded::Same), 1, clock::instant());
            pacing.flushed(Err(&failure), 1, clock::instant());
            assert_eq!(pacing.pace(EMPTY, IDLE).parallel, flushes, "{failure}");
        }
    }

    #[test]
    fn the_ages_follow_the_deaths_of_their_kind() {
        let pacing = Pacing::new(MOST);
        let death = |lifetime, seconds| Death {
            lifetime,
            age: Duration::from_secs(seconds),
        };
        pacing.died([death(Lifetime::Normal, 4), death(Lifetime::Short, 20)].repeat(99));
        let pace = pacing.pace(EMPTY, IDLE);
        assert_eq!(
            (pace.age, pace.short_age),
            (Duration::from_secs(6), Duration::from_secs(100))
        );
        assert_eq!(pace.upload_age, MOST.upload_age);
    }
}
