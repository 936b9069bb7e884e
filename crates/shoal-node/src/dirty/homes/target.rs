//! What nodes say to each other about what the lake does not have, as targets of requests.
//!
//! ```text
//! GET <prefix><verb>?ask=<base64 of the rest>
//! ```
//!
//! The rest is as [`shoal_base::encoding`] writes it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::uri::PathAndQuery;
use shoal_base::encoding::{Malformed, Reader};

/// No target is longer than a head may be.
const TARGET_BYTES_MAX: usize = 60 << 10;

/// The target of a request; `None` when there is too much to say.
pub(in crate::dirty) fn write(prefix: &str, verb: &str, rest: &[u8]) -> Option<PathAndQuery> {
    let target = format!("{prefix}{verb}?ask={}", URL_SAFE_NO_PAD.encode(rest));
    if target.len() > TARGET_BYTES_MAX {
        return None;
    }
    PathAndQuery::try_from(target).ok()
}

/// What another node wrote: `read` is given the verb and the rest, and must read all of it.
pub(in crate::dirty) fn parse<T>(
    prefix: &str,
    target: &PathAndQuery,
    read: impl FnOnce(&str, &mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    let verb = target.path().strip_prefix(prefix).ok_or(Malformed)?;
    let query = target.query().unwrap_or_default();
    let ask = query.strip_prefix("ask=").ok_or(Malformed)?;
    let rest = URL_SAFE_NO_PAD.decode(ask).map_err(|_| Malformed)?;
    let mut reader = Reader::new(&rest);
    let request = read(verb, &mut reader)?;
    reader.rest().is_empty().then_some(request).ok_or(Malformed)
}

#[cfg(test)]
pub(in crate::dirty) mod tests {
    use std::fmt::Debug;

    use http::uri::PathAndQuery;
    use shoal_base::encoding::Malformed;

    /// What one node says the other one hears, and neither less nor more.
    pub(in crate::dirty) fn hears_what_is_said<T: Debug>(
        said: &T,
        target: &PathAndQuery,
        parse: impl Fn(&PathAndQuery) -> Result<T, Malformed>,
    ) {
        assert_eq!(format!("{:?}", parse(target).unwrap()), format!("{said:?}"));
        let longer = format!("{target}AAAA").parse().unwrap();
        assert!(parse(&longer).is_err(), "{said:?}");
        let cut = target.as_str()[..target.as_str().len() - 4].parse().unwrap();
        assert!(parse(&cut).is_err(), "{said:?}");
    }
}
