//! The document of a plan, the facts about it in its order, and the reasons why one is not taken.

use std::str::FromStr as _;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use shoal_base::moment::since_1970;
use shoal_plan::Document;
use shoal_plan::document::{DocumentError, ExpectedFile, Extent};
use shoal_plan::execution::TRANSFERS_MAX;
use shoal_plan::plan::Outcome;
use shoal_s3::uri::S3Uri;

use crate::tasks::parts::manifest::ManifestError;
use crate::tasks::records::files::DocumentFacts;
use crate::tasks::records::moment::Moment;

/// The longest document: a day of 20,000 jobs has some 30 MB.
pub(super) const DOCUMENT_BYTES_MAX: usize = 64 << 20;

/// The longest time until the end of a plan.
const LIFE_MAX: Duration = Duration::from_hours(8 * 24);

/// The reason why a plan is not taken.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The body is no document.
    #[error(
        "the body is not a plan: {0}\nhint: send what `shoal plan HISTORY --bandwidth RATE --cache SIZE` writes; docs/reference/plan.md describes it"
    )]
    Body(String),
    /// The query is not one.
    #[error("{0}\nhint: the only parameter is identity, an access key")]
    Query(String),
    /// The document contradicts itself.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A file has no place in the lake.
    #[error(
        "file {0} cannot be fetched: {1}\nhint: name an object as s3://bucket/key, and a prefix as s3://bucket/prefix/"
    )]
    File(String, String),
    /// It plans too much.
    #[error(
        "the plan has {0} transfers and evictions, and at most {TRANSFERS_MAX} are carried out\nhint: plan a shorter window"
    )]
    TooMany(usize),
    /// It plans nothing.
    #[error("the plan has no jobs\nhint: look at the forecast with `shoal plan predict`")]
    Empty,
    /// It is over.
    #[error("the plan is over since {0}\nhint: plan anew, for a window that is still to come")]
    Over(Moment),
    /// It is for a time far ahead.
    #[error("the plan ends at {0}, more than 8 days from now\nhint: plan a nearer window")]
    TooLate(Moment),
    /// It is too long.
    #[error("a plan has at most {} MiB, or did not come in full\nhint: plan a shorter window", DOCUMENT_BYTES_MAX >> 20)]
    TooLong,
    /// The disk has no room for it.
    #[error("the plan is not kept: {0}\nhint: the disk of the node needs room for it")]
    NotKept(String),
}

impl From<ManifestError> for PlanError {
    fn from(error: ManifestError) -> Self {
        match error {
            ManifestError::TooLong | ManifestError::BrokenOff(_) => Self::TooLong,
            error => Self::NotKept(error.to_string()),
        }
    }
}

impl PlanError {
    /// Returns the status of the answer.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NotKept(_) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

impl DocumentFacts {
    /// Returns the facts about a document that came at `now`, if it can be carried out.
    pub(super) fn checked(body: &[u8], now: SystemTime) -> Result<Self, PlanError> {
        let document = read(body).map_err(PlanError::Body)?;
        check(&document, now)?;
        let Document { plan, request, .. } = &document;
        let planned = plan.jobs.iter().filter(|job| job.outcome == Outcome::Planned);
        Ok(Self {
            bytes: body.len() as u64,
            starts: moment(document.epoch_ms, request.window.start_s),
            ends: moment(document.epoch_ms, document.request.ends_s()),
            jobs: request.jobs.len() as u64,
            planned_jobs: planned.count() as u64,
            transfers: transfers(&document) as u64,
            replaces: None,
            succession: 0,
        })
    }
}

/// Reads a document.
pub(super) fn read(body: &[u8]) -> Result<Document, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// Converts a time on the clock of a document.
pub(super) fn moment(epoch_ms: u64, seconds: f64) -> Moment {
    let millis = epoch_ms as f64 + seconds * 1e3;
    #[expect(clippy::cast_sign_loss, reason = "a time before 1970 is its beginning")]
    let millis = millis.clamp(0.0, 2e14) as u64;
    Moment::from(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
}

/// Converts a time to the clock of a document.
pub(super) fn seconds(epoch_ms: u64, now: SystemTime) -> f64 {
    (since_1970(now).as_millis() as f64 - epoch_ms as f64) / 1e3
}

fn transfers(document: &Document) -> usize {
    let files = document.plan.files.iter();
    files
        .map(|file| file.transfers.len() + file.evictions.len())
        .sum()
}

/// Checks a document that came at `now`.
fn check(document: &Document, now: SystemTime) -> Result<(), PlanError> {
    document.check()?;
    for (file, expected) in document.request.files.iter().zip(&document.files) {
        place_of(expected).map_err(|why| PlanError::File(file.name.clone(), why))?;
    }
    let found = transfers(document);
    if found > TRANSFERS_MAX {
        return Err(PlanError::TooMany(found));
    }
    if document.request.jobs.is_empty() {
        return Err(PlanError::Empty);
    }
    let ends = moment(document.epoch_ms, document.request.ends_s());
    if ends.after(now).is_zero() {
        return Err(PlanError::Over(ends));
    }
    if ends.after(now) > LIFE_MAX {
        return Err(PlanError::TooLate(ends));
    }
    Ok(())
}

/// Returns the bucket and the key, or the prefix, of a file.
pub(super) fn place_of(file: &ExpectedFile) -> Result<S3Uri, String> {
    let uri = S3Uri::from_str(&file.path).map_err(|error| format!("{}: {error}", file.path))?;
    let is_prefix = uri.key.is_empty() || uri.key.ends_with('/');
    match file.extent {
        Extent::Object if uri.key.is_empty() => Err(format!("{} names no object", file.path)),
        Extent::Prefix if !is_prefix => Err(format!("{} is no prefix: it does not end in /", file.path)),
        _ => Ok(uri),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{ExpectedFile, Extent, moment, place_of, seconds};

    #[test]
    fn times_of_a_document_are_moments_and_back() {
        let then = moment(1_795_000_000_000, 1.25);
        assert_eq!(then.to_string(), "2026-11-18T11:06:41.250Z");
        assert!((seconds(1_795_000_000_000, then.time()) - 1.25).abs() < 1e-6);
        let before = SystemTime::UNIX_EPOCH + Duration::from_millis(500);
        assert!((seconds(1_000, before) + 0.5).abs() < 1e-9);
        assert_eq!(moment(0, -5.0).to_string(), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn a_file_names_an_object_or_a_prefix() {
        let file = |path: &str, extent| ExpectedFile {
            path: path.to_owned(),
            extent,
            bytes_low: 0,
            bytes_high: 0,
            objects: None,
        };
        for (path, extent, is_good) in [
            ("s3://b/k", Extent::Object, true),
            ("s3://b/", Extent::Object, false),
            ("s3://b/p/", Extent::Prefix, true),
            ("s3://b", Extent::Prefix, true),
            ("s3://b/p", Extent::Prefix, false),
            ("b/k", Extent::Object, false),
        ] {
            assert_eq!(
                place_of(&file(path, extent)).is_ok(),
                is_good,
                "{path} {extent:?}"
            );
        }
    }
}
