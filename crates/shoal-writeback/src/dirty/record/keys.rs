//! The keys of a tier: names in its registry, and keys of bytes in its store.

use std::sync::Arc;

use shoal_registry::Name;
use shoal_registry::session::new_id;
use shoal_s3::object::ObjectName;

/// Returns the name of an object in the form of registries.
pub(crate) fn registry_name(name: &ObjectName) -> Name {
    Name::new(&name.bucket, &name.key)
}

/// Inverse of [`registry_name`]. `None` if the name is not a valid object name.
pub(crate) fn object_name(name: &Name) -> Option<ObjectName> {
    let (bucket, key) = name.parts();
    Some(ObjectName {
        bucket: std::str::from_utf8(bucket).ok()?.into(),
        key: key.into(),
        version: None,
    })
}

/// Returns the name without its version, which is the name under which an object may be dirty.
pub fn unversioned(name: &ObjectName) -> ObjectName {
    ObjectName {
        version: None,
        ..name.clone()
    }
}

/// Returns a new key for bytes. It encodes their number and the time when the write began.
pub(crate) fn new_key(size_bytes: u64) -> Arc<str> {
    format!("{size_bytes:x}-{}", new_id()).into()
}

/// Returns the number of bytes that a key encodes.
pub(crate) fn size_in(key: &str) -> u64 {
    let name = key.rsplit('/').next().unwrap_or_default();
    let digits = name.split('-').next().unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use shoal_s3::object::ObjectName;

    use super::{new_key, object_name, registry_name, size_in};
    use crate::tier::probe;

    #[test]
    fn a_key_encodes_the_number_of_bytes_under_it() {
        for size_bytes in [0, 1, 4096, 5 << 30] {
            assert_eq!(size_in(&new_key(size_bytes)), size_bytes);
        }
        assert_eq!(
            size_in(&probe::new_key()),
            8192,
            "a probe that broke off is counted"
        );
        assert_eq!(size_in("no key"), 0);
        assert_ne!(new_key(1), new_key(1));
    }

    #[test]
    fn a_name_in_a_registry_is_that_of_its_object() {
        let name = ObjectName {
            bucket: "b".into(),
            key: b"x//\xff".as_slice().into(),
            version: None,
        };
        assert_eq!(object_name(&registry_name(&name)), Some(name));
    }
}
