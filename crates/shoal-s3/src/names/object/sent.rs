//! Headers and times in messages between nodes.

/// Headers as names and values, in order.
pub mod headers {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    /// Writes the headers.
    ///
    /// # Errors
    ///
    /// Fails as the serializer does.
    pub fn serialize<S: Serializer>(headers: &HeaderMap, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = headers.iter();
        let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
        fields.collect::<Vec<_>>().serialize(serializer)
    }

    /// Inverse of [`serialize`].
    ///
    /// # Errors
    ///
    /// Fails if HTTP does not allow a name or a value, or there are too many.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HeaderMap, D::Error> {
        let mut headers = HeaderMap::new();
        for (name, value) in Vec::<(&str, &[u8])>::deserialize(deserializer)? {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(D::Error::custom)?;
            let value = HeaderValue::from_bytes(value).map_err(D::Error::custom)?;
            headers.try_append(name, value).map_err(D::Error::custom)?;
        }
        Ok(headers)
    }
}

/// A time as the distance from the Unix epoch: after it, or (`Err`) before it.
pub mod time {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    /// Writes the time.
    ///
    /// # Errors
    ///
    /// Fails as the serializer does.
    pub fn serialize<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
        let distance = time.map(|time| time.duration_since(UNIX_EPOCH));
        let distance = distance.map(|distance| distance.map_err(|before| before.duration()));
        distance.serialize(serializer)
    }

    /// Inverse of [`serialize`].
    ///
    /// # Errors
    ///
    /// Fails if this system cannot represent the time.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SystemTime>, D::Error> {
        let distance = Option::<Result<Duration, Duration>>::deserialize(deserializer)?;
        let time = distance.map(|distance| match distance {
            Ok(after) => UNIX_EPOCH.checked_add(after),
            Err(before) => UNIX_EPOCH.checked_sub(before),
        });
        time.map(|time| time.ok_or_else(|| D::Error::custom("no such time")))
            .transpose()
    }
}
