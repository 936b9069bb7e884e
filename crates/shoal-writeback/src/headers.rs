//! Selections of headers.

use http::{HeaderMap, HeaderName};

/// Returns the headers whose names are `wanted`.
pub(crate) fn those(headers: &HeaderMap, wanted: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let wanted = headers.iter().filter(|(name, _)| wanted(name));
    wanted
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
