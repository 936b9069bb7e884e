//! Counts the contents of a tier's registry over all nodes: the bytes of uploads and of small objects, and
//! the dirty objects that no rule covers.

use std::pin::pin;

use futures_util::TryStreamExt;
use shoal_registry::Name;
use shoal_registry::engine::EngineError;
use shoal_registry::names::Names;
use shoal_registry::references::Reference;
use shoal_s3::object::ObjectName;

use crate::dirty::record::keys::{object_name, size_in};

/// Number of keys on a page of the registry.
const PAGE: usize = 1000;

/// The result of a scan of the whole registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The bytes in parts of open uploads.
    pub upload_bytes: u64,
    /// The bytes of objects that the registry keeps itself.
    pub inline_bytes: u64,
    /// The number of dirty objects that no rule covers, so that reads do not find them.
    pub uncovered: u64,
    /// The name of one of them.
    pub example: Option<Name>,
}

impl Survey {
    /// Scans the whole registry. `covers` returns true if a rule covers a name.
    ///
    /// # Errors
    ///
    /// The registry does not answer, or was written by a build that this one cannot read.
    pub(crate) async fn of(names: &Names, covers: impl Fn(&ObjectName) -> bool) -> Result<Self, EngineError> {
        let (mut survey, mut references) = (Self::default(), pin!(names.references(PAGE)));
        while let Some(reference) = references.try_next().await? {
            match reference {
                Reference::Part(key) => survey.upload_bytes += size_in(&key),
                Reference::Object(name, version) => {
                    if version.is_inline() {
                        survey.inline_bytes += version.size_bytes;
                    }
                    if !object_name(&name).is_some_and(|name| covers(&name)) {
                        survey.uncovered += 1;
                        survey.example.get_or_insert(name);
                    }
                }
                Reference::Receipts(_) => {}
                Reference::Trash(_) => break,
            }
        }
        Ok(survey)
    }
}
