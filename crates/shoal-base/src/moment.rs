//! Times as distances from 1970, which messages, files and ids carry.

use std::time::{Duration, SystemTime};

/// Returns the time since 1970. An earlier time counts as 1970.
pub fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns the whole milliseconds since 1970, the most if they do not fit.
pub fn millis_since_1970(time: SystemTime) -> u64 {
    u64::try_from(since_1970(time).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{millis_since_1970, since_1970};

    #[test]
    fn a_time_before_1970_counts_as_1970() {
        let second = Duration::from_millis(1001);
        assert_eq!(millis_since_1970(SystemTime::UNIX_EPOCH + second), 1001);
        assert_eq!(since_1970(SystemTime::UNIX_EPOCH - second), Duration::ZERO);
    }
}
