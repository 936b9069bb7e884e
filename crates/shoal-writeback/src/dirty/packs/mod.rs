//! Objects in packs: small objects that the lake has many in one (dissertation 4.5.5, decision 0048).
//!
//! ```text
//! object    a row of a table ─▶ the version that reads return, and its bytes
//! files     tables of the map, as files of this node
//! at_lake   requests about packs and tables
//! ```

mod at_lake;
mod files;
mod object;

pub(crate) use self::at_lake::{ListedPack, NotRead, PacksAtLake, folder, get_range, open, size};
pub(crate) use self::files::{NotReceived, TableFiles};
pub(crate) use self::object::{BytesInMemory, MemberBytes, PackedObject, description};
