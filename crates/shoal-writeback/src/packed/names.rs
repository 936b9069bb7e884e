//! The names of packed objects on a page of a listing. Pure.

use shoal_base::encoding::Malformed;
use shoal_pack::table::{Map, Names, Packed};
use shoal_s3::xml::ListedObject;

use crate::dirty::Scope;
use crate::dirty::packs::MapError;
use crate::listing::{Newer, NewerNames};

/// Returns the packed objects that can appear among the next `names_max` names of a listing after `after`; of
/// those behind a common prefix, the first.
pub(super) fn names_after(
    map: &Map,
    scope: &Scope,
    after: &[u8],
    names_max: usize,
) -> Result<NewerNames, MapError> {
    let (mut page, mut reached) = (NewerNames::default(), scope.behind(after));
    loop {
        let from = reached.clone();
        let rows = map.objects(Names {
            prefix: &scope.prefix,
            from: &from,
        });
        let mut is_over = true;
        for entry in rows {
            let entry = entry?;
            if *entry.key <= *reached {
                continue;
            }
            if page.names.len() == names_max {
                page.until = Some(reached);
                return Ok(page);
            }
            page.names.push(Newer::Object(listed(&entry.key, &entry.row)?));
            if let Some(group) = scope.group(&entry.key) {
                // The other keys of this common prefix would add nothing to the listing.
                reached = scope.behind(group);
                is_over = false;
                break;
            }
            reached = entry.key.to_vec();
        }
        if is_over {
            return Ok(page);
        }
    }
}

/// Returns true if the map has an object whose key begins with `prefix`.
pub(super) fn has_below(map: &Map, prefix: &[u8]) -> Result<bool, MapError> {
    let from = prefix;
    let first = map.objects(Names { prefix, from }).next();
    Ok(first.transpose()?.is_some())
}

fn listed(key: &[u8], row: &Packed) -> Result<ListedObject, Malformed> {
    let description = row.description()?;
    Ok(ListedObject {
        key: key.to_vec(),
        etag: description.etag,
        size_bytes: row.range.end - row.range.start,
        last_modified: Some(description.modified),
        is_dirty: false,
    })
}

/// Puts the pages of several maps together. No name is in two of them.
pub(super) fn joined(pages: impl IntoIterator<Item = NewerNames>) -> NewerNames {
    let mut joined = NewerNames::default();
    for page in pages {
        joined.names.extend(page.names);
        joined.until = joined.until.into_iter().chain(page.until).min();
        joined.hidden.extend(page.hidden);
    }
    joined.names.sort_by(|one, other| one.key().cmp(other.key()));
    joined
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use bytes::Bytes;
    use http::HeaderMap;
    use shoal_pack::table::{Packed, Place, Row, Table, TableBuilder};
    use shoal_pack::{Description, PackBuilder};
    use shoal_s3::operation::Query;
    use ulid::Ulid;

    use super::{Map, NewerNames, has_below, joined, names_after};
    use crate::dirty::Scope;

    /// A map of two tables: keys of the newer one with a minus sign before them are removed.
    fn map(newer: &[&str], older: &[&str]) -> Map {
        let tables = [older, newer].into_iter().zip(1..);
        let tables = tables.map(|(keys, number)| Arc::new(table(keys, number)));
        let mut tables: Vec<_> = tables.collect();
        tables.reverse();
        let listed: Vec<_> = tables.iter().map(|table| table.listed()).collect();
        Map::new(&listed, tables).unwrap()
    }

    fn table(keys: &[&str], number: u64) -> Table {
        let mut pack = PackBuilder::default();
        for key in keys {
            let description = Description {
                sequence: number,
                id: Ulid(1),
                writer: "AK".into(),
                modified: SystemTime::UNIX_EPOCH,
                etag: format!("\"{number}\""),
                headers: HeaderMap::new(),
                of_reads: HeaderMap::new(),
                parts: Vec::new(),
            };
            pack.add(key.as_bytes(), &description, Bytes::from_static(b"12345"))
                .unwrap();
        }
        let members = pack.finish().members;
        let row = |key: &str| match members.iter().find(|member| member.key == key) {
            Some(member) => Row::Packed(Packed::new(Ulid(number.into()), member)),
            None => unreachable!("{key} is a member"),
        };
        let mut sorted: Vec<_> = keys
            .iter()
            .map(|key| (key.trim_start_matches('-'), *key))
            .collect();
        sorted.sort_unstable();
        let mut table = TableBuilder::default();
        for (name, key) in sorted {
            let row = if key.starts_with('-') {
                Row::Tombstone { sequence: number }
            } else {
                row(key)
            };
            table.add(name.as_bytes(), &row).unwrap();
        }
        let place = Place {
            number,
            ..Place::default()
        };
        Table::open(table.finish(&place).unwrap().bytes).unwrap()
    }

    fn scope(query: &str) -> Scope {
        Scope::parse(&Query::parse(Some(query)).unwrap())
    }

    /// Returns the keys of a page, and the position up to which none is missing.
    fn keys(page: &NewerNames) -> (Vec<&str>, Option<&str>) {
        let text = |key| std::str::from_utf8(key).unwrap();
        let keys = page.names.iter().map(|name| text(name.key()));
        (keys.collect(), page.until.as_deref().map(text))
    }

    #[test]
    fn a_page_has_the_newest_objects_behind_a_name() {
        let map = map(&["b", "-c", "e"], &["a", "b", "c", "d"]);
        let page = |after: &[u8], most| names_after(&map, &scope(""), after, most).unwrap();
        assert_eq!(keys(&page(b"", 9)), (vec!["a", "b", "d", "e"], None));
        assert_eq!(keys(&page(b"a", 9)), (vec!["b", "d", "e"], None));
        assert_eq!(keys(&page(b"aa", 2)), (vec!["b", "d"], Some("d")));
        assert_eq!(keys(&page(b"d", 1)), (vec!["e"], None));
        assert_eq!(keys(&page(b"", 0)), (vec![], Some("")));
        let all = page(b"", 9);
        let etags: Vec<_> = all.objects().map(|object| &*object.etag).collect();
        assert_eq!(etags, ["\"1\"", "\"2\"", "\"1\"", "\"2\""], "b is in both tables");
        assert!(all.objects().all(|object| object.size_bytes == 5));
    }

    #[test]
    fn a_common_prefix_takes_one_name_and_is_passed_over() {
        let map = map(&["p/a/1", "-p/b/1"], &["o", "p/a/2", "p/b/1", "p/c/1", "p/d"]);
        let scope = scope("prefix=p/&delimiter=/");
        let page = |after: &[u8], most| names_after(&map, &scope, after, most).unwrap();
        assert_eq!(keys(&page(b"", 9)), (vec!["p/a/1", "p/c/1", "p/d"], None));
        assert_eq!(keys(&page(b"", 1)), (vec!["p/a/1"], Some("p/a/\u{10ffff}")));
        assert_eq!(keys(&page(b"p/a/", 1)), (vec!["p/c/1"], Some("p/c/\u{10ffff}")));
        assert_eq!(keys(&page(b"p/c/", 1)), (vec!["p/d"], None));
    }

    #[test]
    fn a_removed_object_is_not_below_its_prefix() {
        let map = map(&["-p/b/1"], &["p/b/1", "q"]);
        assert!(!has_below(&map, b"p/").unwrap());
        assert!(has_below(&map, b"q").unwrap() && has_below(&map, b"").unwrap());
    }

    #[test]
    fn pages_of_several_maps_are_one_in_order() {
        let (one, other) = (map(&[], &["b/1", "b/2"]), map(&[], &["a/1", "c/1"]));
        let page = |map, most| names_after(map, &scope(""), b"", most).unwrap();
        let all = joined([page(&one, 9), page(&other, 9)]);
        assert_eq!(keys(&all), (vec!["a/1", "b/1", "b/2", "c/1"], None));
        let some = joined([page(&one, 1), page(&other, 1)]);
        assert_eq!(keys(&some), (vec!["a/1", "b/1"], Some("a/1")));
    }
}
