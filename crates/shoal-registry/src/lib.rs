//! The order of dirty names. A registry holds one entry for each name whose newest object the lake may not
//! have yet, and changes an entry only if it is still as the node that asks last saw it.
//!
//! The bytes of objects are elsewhere; the registry decides which of them a name means. So a promise to a
//! client depends on the registry alone: an acknowledged write is an entry in it (dissertation 4.5.1, where
//! the write tier and the directory share this job; decision 0026 says why we do not).
//! `docs/explanation/tier-protocol.md` tells the protocol.
//!
//! - [`engine`]: what a registry needs of a store, and the two stores that ship.
//! - [`entry`]: the states of one name and the changes between them. Pure; a model in `tests/` explores it.
//! - [`names`]: reads and changes entries, and keeps each node's lists of work true.
//! - [`session`]: how long a node may act, and which node acts for one that is gone.
//! - [`changes`]: changes at the lake, each of which ends for certain.
//! - [`uploads`]: multipart uploads, which any node continues.
//! - [`references`]: the bytes that the registry names.
//! - [`worker`]: brings dirty objects to the lake, and removes what is no longer needed.

pub mod changes;
mod deaths;
pub mod engine;
pub mod entry;
mod keys;
mod moment;
pub mod names;
pub mod references;
pub mod session;
pub mod uploads;
mod version;
pub mod worker;

pub use self::deaths::Death;
pub use self::keys::{Name, NodeList};
pub use self::version::{DirtyVersion, Lifetime, Trash};
