//! The parts of multipart uploads whose bytes are kept until the lake has completed the object.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shoal_policy::ObjectId;
use shoal_policy::quotas::QuotaIds;
use shoal_s3::object::Version;
use shoal_s3::operation::Classified;
use tokio::task::JoinHandle;

/// Maximum number of uploads whose parts are kept. When it is exceeded, the upload that has been idle longest
/// is forgotten.
const UPLOADS_MAX: usize = 1024;

/// How long an upload is remembered without new parts.
const IDLE_MAX: Duration = Duration::from_hours(1);

/// A part of an upload at the lake.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UploadPart {
    pub(super) upload: Upload,
    pub(super) number: u16,
}

/// An upload at the lake.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Upload {
    pub(super) object: ObjectId,
    pub(super) id: Arc<str>,
}

/// The kept parts of all uploads.
#[derive(Default)]
pub(super) struct PartTable(Mutex<HashMap<Upload, UploadedParts>>);

/// The kept parts of one upload.
struct UploadedParts {
    by_number: BTreeMap<u16, Part>,
    touched: Instant,
}

/// A part whose bytes are on this node.
pub(super) struct Part {
    pub(super) md5: [u8; 16],
    pub(super) version: Arc<Version>,
    /// The quotas of its writer and of the object.
    pub(super) quotas: QuotaIds,
    /// Ends when the part's blocks are on disk.
    pub(super) landed: JoinHandle<()>,
}

impl Upload {
    /// Returns the upload that a request names.
    pub fn named(object: ObjectId, classified: &Classified) -> Option<Self> {
        let id = classified.query.get("uploadId")?.into();
        Some(Self { object, id })
    }
}

impl PartTable {
    /// Keeps a part. Returns the parts that are forgotten instead: the one with the same number, and those of
    /// uploads that are too large or idle.
    pub(super) fn keep(
        &self,
        part: UploadPart,
        kept: Part,
        object_bytes_max: u64,
        now: Instant,
    ) -> Vec<Part> {
        let UploadPart { upload, number } = part;
        let mut uploads = self.0.lock();
        let idle = uploads.extract_if(|_, parts| now.saturating_duration_since(parts.touched) > IDLE_MAX);
        let mut forgotten: Vec<Part> = idle
            .flat_map(|(_, parts)| parts.by_number.into_values())
            .collect();
        if uploads.len() >= UPLOADS_MAX && !uploads.contains_key(&upload) {
            let oldest = uploads.iter().min_by_key(|(_, parts)| parts.touched);
            let oldest = oldest.map(|(upload, _)| upload.clone());
            let parts = oldest.and_then(|oldest| uploads.remove(&oldest));
            forgotten.extend(parts.into_iter().flat_map(|parts| parts.by_number.into_values()));
        }
        let parts = uploads.entry(upload.clone()).or_insert_with(|| UploadedParts {
            by_number: BTreeMap::new(),
            touched: now,
        });
        parts.touched = now;
        forgotten.extend(parts.by_number.insert(number, kept));
        let bytes: u64 = parts.by_number.values().map(|part| part.version.size_bytes).sum();
        if bytes > object_bytes_max {
            let parts = uploads.remove(&upload).expect("a part was just put there");
            forgotten.extend(parts.by_number.into_values());
        }
        forgotten
    }

    /// Forgets an upload. Returns its parts in order; `None` if none were kept.
    pub(super) fn remove(&self, upload: &Upload) -> Option<Vec<Part>> {
        let parts = self.0.lock().remove(upload)?;
        Some(parts.by_number.into_values().collect())
    }
}
