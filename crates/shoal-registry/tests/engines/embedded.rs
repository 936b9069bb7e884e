//! A registry in a folder.

use std::sync::Arc;

use shoal_registry::engine::embedded::Embedded;
use tempfile::TempDir;

use crate::conformance::Shared;

/// A registry in a folder of its own.
pub(crate) struct Fixture {
    engine: Shared,
    _folder: TempDir,
}

impl Fixture {
    pub(crate) fn engine(&self) -> Shared {
        Arc::clone(&self.engine)
    }
}

#[expect(clippy::unused_async, reason = "other engines have to wait")]
pub(crate) async fn start() -> Option<Fixture> {
    let folder = tempfile::tempdir().unwrap();
    let engine = Arc::new(Embedded::open(folder.path()).unwrap());
    Some(Fixture {
        engine,
        _folder: folder,
    })
}
