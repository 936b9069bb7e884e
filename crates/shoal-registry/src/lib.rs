//! The order of dirty names. A registry holds one entry for each name whose newest object may not be at the
//! lake yet, and changes an entry only if it is unchanged since the requesting node last read it.
//!
//! The bytes of objects, but for small ones, are stored elsewhere; the registry decides which of them a name
//! denotes. A promise to
//! a client therefore depends on the registry alone: an acknowledged write is an entry in it (dissertation
//! 4.5.1, where the write tier and the directory share this job; decision 0026 explains why ours do not).
//! `docs/explanation/tier-protocol.md` describes the protocol.
//!
//! - [`engine`]: the interface to a registry's store, and the two stores that ship.
//! - [`entry`]: the states of one name and the transitions between them. Pure; a model in `tests/` explores
//!   it.
//! - [`names`]: reads and changes entries, and updates each node's work lists with them.
//! - [`session`]: how long a node may act, and which node acts for a dead one.
//! - [`changes`]: changes at the lake, each of which has a definite end.
//! - [`uploads`]: multipart uploads, which any node can continue.
//! - [`receipts`]: what a lost registry is recovered from.
//! - [`references`]: the bytes that the registry refers to.
//! - [`roots`]: the tables of each map of packed objects, and the right to add the next one.
//! - [`worker`]: flushes dirty objects, and removes what is no longer needed.

pub mod changes;
pub mod engine;
pub mod entry;
mod keys;
mod moment;
pub mod names;
pub mod receipts;
pub mod references;
pub mod roots;
pub mod session;
pub mod uploads;
mod version;
pub mod worker;

pub use self::keys::{MapName, Name, NodeList, UploadKey};
pub use self::moment::{Moment, age_of};
pub use self::names::{ByteCount, Death};
pub use self::version::{Content, DirtyVersion, Lifetime, Trash};
