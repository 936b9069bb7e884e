//! Names and what they refer to: buckets, keys, versions, identities.

pub mod etag;
pub mod glob;
pub mod identity;
pub mod object;
pub(crate) mod percent;
pub mod prefix;
mod sourced_keys;
pub mod target;
pub mod temporary_key;
pub mod uri;
