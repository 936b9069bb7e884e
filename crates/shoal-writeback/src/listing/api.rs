//! The requests by which clients list objects, as far as they differ.

use std::time::SystemTime;

use shoal_s3::operation::Query;
use shoal_s3::time::rfc3339;
use shoal_s3::xml::{Element, ListedObject};

use super::page::{ListingFormat, OBJECTS, VERSIONS};

/// The request by which a client lists objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// `ListObjects`
    Version1,
    /// `ListObjectsV2`
    Version2,
    /// `ListObjectVersions`, of a bucket that keeps none.
    OfVersions,
}

impl Api {
    pub(super) fn of(query: &Query) -> Self {
        match query.get("list-type") {
            _ if query.has("versions") => Self::OfVersions,
            Some("2") => Self::Version2,
            _ => Self::Version1,
        }
    }

    /// Returns the parameter that has the name before the first one.
    pub(super) fn marker(self) -> &'static str {
        match self {
            Self::Version1 => "marker",
            Self::Version2 => "start-after",
            Self::OfVersions => "key-marker",
        }
    }

    pub(super) fn format(self) -> &'static ListingFormat {
        match self {
            Self::Version1 | Self::Version2 => &OBJECTS,
            Self::OfVersions => &VERSIONS,
        }
    }

    /// Returns the element of an object.
    pub(super) fn element(self, key: &str, time_ending: Option<&str>, object: &ListedObject) -> Element {
        let modified = object.last_modified.map(|time| time_text(time, time_ending));
        let element = match self {
            Self::Version1 | Self::Version2 => Element::new("Contents").with_leaf("Key", key),
            Self::OfVersions => Element::new("Version")
                .with_leaf("Key", key)
                .with_leaf("VersionId", "null")
                .with_leaf("IsLatest", "true"),
        };
        element
            .with_leaf("LastModified", modified.unwrap_or_default())
            .with_leaf("ETag", &object.etag)
            .with_leaf("Size", object.size_bytes.to_string())
            .with_leaf("StorageClass", "STANDARD")
    }
}

fn time_text(time: SystemTime, ending: Option<&str>) -> String {
    let text = rfc3339(time);
    match ending.zip(text.split_once('.')) {
        Some((ending, (seconds, _))) => format!("{seconds}{ending}"),
        None => text,
    }
}
