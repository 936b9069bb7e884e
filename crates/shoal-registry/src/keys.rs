//! The keys of a registry.
//!
//! ```text
//! d/<bucket>/<key>          the entry of a name
//! c/<bucket>/<key>          the bytes of its dirty object, if that is inline
//! q/<node>/<version>        a dirty object that the node flushes → its name; ordered by time
//! b/<node>/<token>          a change in flight to the lake → its name
//! s/<node>/<version>        as q, for objects that are expected to be removed soon
//! x/<node>/<version>        as q, for tombstones
//! o/<node>/<upload>         an upload that began at the node, open or ended recently → its name
//! e/<node>/<id>             a name whose entry is empty, to be removed later
//! t/<node>/<id>             bytes that are no longer needed
//! g/<bucket>/<prefix>       the number of the newest table of a map of packed objects, if it has tables
//! G/<bucket>/<prefix>       the root of that map
//! k/<bucket>/<prefix>       the life of the node that keeps that map, while its session lasts
//! u/<bucket>/<key>\0<upload>  an upload
//! p/<upload>/<number>       a part of an upload
//! n/<node>                  the life of a node, while its session lasts
//! m/<node>                  a node that may have keys under one of these letters
//! a/<node>                  the node that acts for a dead one
//! r                         the creation time of the registry
//! ```

use bytes::Bytes;
use ulid::Ulid;

/// The name of an object: a bucket and a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Bytes);

impl Name {
    /// Creates the name of `key` in `bucket`, which must not contain `/`.
    pub fn new(bucket: &str, key: &[u8]) -> Self {
        debug_assert!(!bucket.contains('/'), "no bucket is called so");
        Self([bucket.as_bytes(), b"/", key].concat().into())
    }

    /// Returns the bucket and the key.
    pub fn parts(&self) -> (&[u8], &[u8]) {
        let bucket_len = self.0.iter().position(|byte| *byte == b'/');
        let bucket_len = bucket_len.expect("a name has a bucket");
        (&self.0[..bucket_len], &self.0[bucket_len + 1..])
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// Inverse of [`Name::to_bytes`].
    pub(crate) fn from_bytes(bytes: Bytes) -> Option<Self> {
        bytes.contains(&b'/').then_some(Self(bytes))
    }

    pub(crate) fn entry_key(&self) -> Bytes {
        [ENTRIES, &self.0[..]].concat().into()
    }

    pub(crate) fn content_key(&self) -> Bytes {
        [b"c/", &self.0[..]].concat().into()
    }

    /// Inverse of [`Name::entry_key`].
    pub(crate) fn of_entry_key(key: &Bytes) -> Option<Self> {
        key.starts_with(ENTRIES)
            .then(|| key.slice(2..))
            .and_then(Self::from_bytes)
    }
}

/// The name of a map of packed objects: the bucket and the prefix of a rule that packs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MapName(Name);

impl MapName {
    /// Creates the name of the map of the keys that begin with `prefix` in `bucket`, which must not contain
    /// `/`.
    pub fn new(bucket: &str, prefix: &[u8]) -> Self {
        Self(Name::new(bucket, prefix))
    }

    /// Returns the bucket and the prefix.
    pub fn parts(&self) -> (&[u8], &[u8]) {
        self.0.parts()
    }

    pub(crate) fn number_key(&self) -> Bytes {
        [b"g/", &self.0.0[..]].concat().into()
    }

    pub(crate) fn root_key(&self) -> Bytes {
        [ROOTS, &self.0.0[..]].concat().into()
    }

    pub(crate) fn keeper_key(&self) -> Bytes {
        [b"k/", &self.0.0[..]].concat().into()
    }

    /// Inverse of [`MapName::root_key`].
    pub(crate) fn of_root_key(key: &Bytes) -> Option<Self> {
        let name = key.starts_with(ROOTS).then(|| key.slice(ROOTS.len()..))?;
        Name::from_bytes(name).map(Self)
    }
}

/// The name of the object that an upload makes, and the id of the upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadKey {
    /// The name.
    pub name: Name,
    /// The id.
    pub id: Ulid,
}

impl UploadKey {
    pub(crate) fn to_bytes(&self) -> Bytes {
        [b"u/", &self.name.0[..], b"\0", self.id.to_string().as_bytes()]
            .concat()
            .into()
    }

    /// Inverse of [`UploadKey::to_bytes`].
    pub(crate) fn from_bytes(key: &Bytes) -> Option<Self> {
        let name_end = key.len().checked_sub(ulid::ULID_LEN + 1)?;
        let name = (key.starts_with(b"u/") && name_end >= 2).then(|| key.slice(2..name_end))?;
        Some(Self {
            name: Name::from_bytes(name)?,
            id: id_in(&key[name_end + 1..])?,
        })
    }
}

/// Returns the prefix of the keys of all uploads to `bucket` whose objects' keys begin with `prefix`.
pub(crate) fn uploads(bucket: &str, prefix: &[u8]) -> Bytes {
    [b"u/", bucket.as_bytes(), b"/", prefix].concat().into()
}

/// Returns the prefix of the keys of an upload's parts.
pub(crate) fn parts(upload: Ulid) -> Bytes {
    format!("p/{upload}/").into()
}

pub(crate) fn part(upload: Ulid, number: u16) -> Bytes {
    format!("p/{upload}/{number:05}").into()
}

/// Returns the number in the key of a part.
pub(crate) fn number_in(key: &[u8]) -> Option<u16> {
    let digits = key.rsplit(|byte| *byte == b'/').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A list of names that belongs to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeList {
    /// Its dirty objects, ordered by id and so by age, see [`DirtyVersion::id`](crate::DirtyVersion::id).
    Dirty,
    /// Its dirty objects that are expected to be removed soon, in the same order.
    Short,
    /// Its tombstones, in the same order.
    Removed,
    /// Its changes in flight to the lake.
    Busy,
    /// Its empty entries.
    Empty,
    /// Uploads that it began, in the same order.
    Uploads,
    /// Bytes that are no longer needed, for it to remove.
    Trash,
}

impl NodeList {
    /// All variants.
    pub const ALL: [Self; 7] = [
        Self::Dirty,
        Self::Short,
        Self::Removed,
        Self::Busy,
        Self::Empty,
        Self::Uploads,
        Self::Trash,
    ];

    /// Returns the first character of its keys.
    fn letter(self) -> char {
        match self {
            Self::Dirty => 'q',
            Self::Short => 's',
            Self::Removed => 'x',
            Self::Busy => 'b',
            Self::Empty => 'e',
            Self::Uploads => 'o',
            Self::Trash => 't',
        }
    }

    pub(crate) fn prefix(self, node: u64) -> Bytes {
        format!("{}/{node:016x}/", self.letter()).into()
    }

    pub(crate) fn key(self, node: u64, id: Ulid) -> Bytes {
        format!("{}/{node:016x}/{id}", self.letter()).into()
    }

    /// Returns the id in a key of this list.
    pub(crate) fn id_in(key: &[u8]) -> Option<Ulid> {
        id_in(key.rsplit(|byte| *byte == b'/').next()?)
    }
}

/// Parses an id.
pub(crate) fn id_in(characters: &[u8]) -> Option<Ulid> {
    Ulid::from_string(std::str::from_utf8(characters).ok()?).ok()
}

pub(crate) const ENTRIES: &[u8] = b"d/";
pub(crate) const ROOTS: &[u8] = b"G/";
pub(crate) const PARTS: &[u8] = b"p/";
pub(crate) const TRASH: &[u8] = b"t/";
pub(crate) const BEGAN: &[u8] = b"r";
pub(crate) const LIVES: &[u8] = b"n/";
pub(crate) const MEMBERS: &[u8] = b"m/";

pub(crate) fn life(node: u64) -> Bytes {
    format!("n/{node:016x}").into()
}

pub(crate) fn member(node: u64) -> Bytes {
    format!("m/{node:016x}").into()
}

pub(crate) fn adopter(node: u64) -> Bytes {
    format!("a/{node:016x}").into()
}

/// Returns the node in a key of [`LIVES`] or [`MEMBERS`].
pub(crate) fn node_in(key: &[u8]) -> Option<u64> {
    let digits = key.get(2..)?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::{LIVES, MEMBERS, MapName, Name, NodeList, life, member, node_in};
    use proptest::prelude::{any, proptest};
    use ulid::Ulid;

    #[test]
    fn a_name_keeps_slashes_and_any_bytes_of_its_key() {
        let name = Name::new("b", b"x//\xff\0");
        assert_eq!(name.parts(), (&b"b"[..], &b"x//\xff\0"[..]));
        assert_eq!(Name::of_entry_key(&name.entry_key()), Some(name.clone()));
        assert_eq!(Name::from_bytes(name.to_bytes()), Some(name));
        assert_eq!(Name::of_entry_key(&"q/b/x".into()), None);
    }

    #[test]
    fn a_map_keeps_its_prefix_and_has_two_keys() {
        for prefix in [&b""[..], b"logs/", b"logs/\xff"] {
            let map = MapName::new("b", prefix);
            assert_eq!(map.parts(), (&b"b"[..], prefix));
            assert_eq!(MapName::of_root_key(&map.root_key()), Some(map.clone()));
            assert_eq!(MapName::of_root_key(&map.number_key()), None);
            assert_eq!(MapName::of_root_key(&map.keeper_key()), None);
        }
    }

    #[test]
    fn a_list_names_its_node_and_keeps_the_order_of_ids() {
        let (first, second) = (Ulid::from_parts(1, 9), Ulid::from_parts(2, 0));
        for list in NodeList::ALL {
            assert!(list.key(7, first) < list.key(7, second));
            assert!(list.key(7, first).starts_with(&list.prefix(7)));
            assert_eq!(NodeList::id_in(&list.key(7, second)), Some(second));
        }
        assert!(life(7).starts_with(LIVES) && member(7).starts_with(MEMBERS));
        assert_eq!(
            (node_in(&life(7)), node_in(&member(u64::MAX))),
            (Some(7), Some(u64::MAX))
        );
    }

    proptest! {
        #[test]
        fn names_are_in_the_order_of_their_keys(a: Vec<u8>, b: Vec<u8>, bucket in "[a-z]{3}") {
            let [first, second] = [&a, &b].map(|key| Name::new(&bucket, key).entry_key());
            assert_eq!(first.cmp(&second), a.cmp(&b));
        }

        #[test]
        fn any_bytes_are_a_key_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (NodeList::id_in(&bytes), node_in(&bytes), Name::from_bytes(bytes.into()));
        }
    }
}
