//! The names of a listing that a layer above the lake adds to it or leaves out.

use shoal_s3::xml::ListedObject;

use crate::dirty::BEHIND_PREFIX;

/// The part of a listing that a layer above the lake has. It is newer than the lake's page.
#[derive(Clone, Debug, Default)]
pub struct NewerNames {
    /// The names, in the order of their keys.
    pub names: Vec<Newer>,
    /// The position up to which none is missing; `None` if that is the end.
    pub until: Option<Vec<u8>>,
    /// Beginnings of keys that the lake has and that no page shows.
    pub hidden: Vec<Vec<u8>>,
}

/// A name that the lake's page shows as it was, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Newer {
    /// It is this object.
    Object(ListedObject),
    /// It is none: the lake is to remove the object of this key.
    Removed(Vec<u8>),
}

/// A page of objects.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ObjectPage {
    /// The objects, in the order of their keys.
    pub(crate) objects: Vec<ListedObject>,
    /// If there are none, but more may follow: the position behind which they are.
    pub(crate) nothing_until: Option<Vec<u8>>,
}

impl Newer {
    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Object(object) => &object.key,
            Self::Removed(key) => key,
        }
    }
}

impl NewerNames {
    /// Returns the objects.
    pub fn objects(&self) -> impl Iterator<Item = &ListedObject> {
        self.names.iter().filter_map(|name| match name {
            Newer::Object(object) => Some(object),
            Newer::Removed(_) => None,
        })
    }

    /// Returns the keys of removed objects.
    pub fn removed(&self) -> impl Iterator<Item = &[u8]> {
        let is_removed = |name: &&Newer| matches!(name, Newer::Removed(_));
        self.names.iter().filter(is_removed).map(Newer::key)
    }

    /// Returns true if no page shows a name of the lake.
    pub fn hides(&self, name: &[u8]) -> bool {
        self.hider(name).is_some()
    }

    /// Returns the position behind the last name of a page of the lake, and behind all that are hidden with
    /// it.
    pub fn end_of(&self, last: &[u8]) -> Vec<u8> {
        match self.hider(last) {
            Some(hider) => [hider, BEHIND_PREFIX.as_bytes()].concat(),
            None => last.to_vec(),
        }
    }

    fn hider(&self, name: &[u8]) -> Option<&[u8]> {
        let hidden = self.hidden.iter().map(Vec::as_slice);
        hidden.into_iter().find(|hidden| name.starts_with(hidden))
    }

    /// Merges a page of the lake with what follows the page before. As there may be more keys behind the
    /// lake's page, the merged one ends with it.
    pub(crate) fn merge(self, listed: Vec<ListedObject>, keys_max: usize) -> ObjectPage {
        let last = listed.last().map(|last| self.end_of(&last.key));
        let end = last.into_iter().chain(self.until.clone()).min();
        let mut objects = listed;
        objects.retain(|object| {
            let is_older = |of: &Newer| of.key().cmp(&object.key);
            !self.hides(&object.key) && self.names.binary_search_by(is_older).is_err()
        });
        let newer = self.names.into_iter().filter_map(|name| match name {
            Newer::Object(object) => Some(object),
            Newer::Removed(_) => None,
        });
        objects.extend(newer);
        objects.retain(|object| end.as_ref().is_none_or(|end| object.key <= *end));
        objects.sort_by(|one, other| one.key.cmp(&other.key));
        objects.truncate(keys_max);
        ObjectPage {
            nothing_until: end.filter(|_| objects.is_empty()),
            objects,
        }
    }
}

#[cfg(test)]
mod tests {
    use shoal_s3::xml::ListedObject;

    use super::{Newer, NewerNames};

    fn objects(keys: &str, etag: &str) -> Vec<ListedObject> {
        let object = |key| ListedObject {
            key: vec![key],
            etag: etag.into(),
            size_bytes: 1,
            last_modified: None,
            is_dirty: false,
        };
        keys.bytes().map(object).collect()
    }

    /// Capitals are removed.
    fn newer(keys: &str, until: &str) -> NewerNames {
        let name = |key: char| {
            if key.is_ascii_uppercase() {
                Newer::Removed(vec![key.to_ascii_lowercase() as u8])
            } else {
                Newer::Object(objects(&key.to_string(), "newer").remove(0))
            }
        };
        NewerNames {
            names: keys.chars().map(name).collect(),
            until: Some(until.into()).filter(|until: &Vec<u8>| !until.is_empty()),
            hidden: Vec::new(),
        }
    }

    #[test]
    fn a_merged_page_leaves_out_no_key_that_the_lake_has_behind_its_page() {
        for (listed, names, until, keys_max, expected) in [
            ("", "", "", 9, ""),
            ("bd", "", "", 9, "bd"),
            ("", "ac", "", 9, "ac"),
            ("bd", "ace", "", 9, "abcd"),
            ("bd", "ace", "", 3, "abc"),
            ("bd", "bd", "", 9, "bd"),
            ("", "ace", "", 2, "ac"),
            ("bd", "aBc", "", 9, "acd"),
            ("bd", "BD", "", 9, ""),
            ("bde", "aC", "c", 9, "ab"),
        ] {
            let page = newer(names, until).merge(objects(listed, "lake"), keys_max);
            let keys: Vec<u8> = page.objects.iter().map(|object| object.key[0]).collect();
            assert_eq!(keys, expected.as_bytes(), "{listed} {names}");
            let is_newer = |object: &ListedObject| names.as_bytes().contains(&object.key[0]);
            let is_right = |object: &ListedObject| (object.etag == "newer") == is_newer(object);
            assert!(page.objects.iter().all(is_right), "{listed} {names}");
        }
    }

    #[test]
    fn a_page_without_objects_says_where_others_may_follow() {
        let until = |listed, names, until| newer(names, until).merge(objects(listed, ""), 9).nothing_until;
        assert_eq!(until("bd", "BD", ""), Some(b"d".to_vec()));
        assert_eq!(until("bd", "BCD", "c"), Some(b"c".to_vec()));
        assert_eq!(until("", "BD", ""), None);
        assert_eq!(
            until("b", "Bd", ""),
            Some(b"b".to_vec()),
            "d is behind the lake's page"
        );
    }

    #[test]
    fn hidden_names_are_passed_over_together() {
        let hiding = |names| NewerNames {
            hidden: vec![b"c".into()],
            ..newer(names, "")
        };
        let page = hiding("b").merge(objects("abc", ""), 9);
        let keys: Vec<_> = page.objects.iter().map(|object| object.key[0]).collect();
        assert_eq!(keys, b"ab");
        let page = hiding("").merge(objects("c", ""), 9);
        assert_eq!(page.nothing_until, Some("c\u{10ffff}".into()));
        assert!(page.objects.is_empty());
    }
}
