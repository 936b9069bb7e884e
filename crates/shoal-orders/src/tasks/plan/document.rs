//! The document of a plan, the facts about it in its order, and the reasons why one is not taken.

use std::fmt::Display;
use std::str::FromStr as _;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use shoal_base::moment::since_1970;
use shoal_plan::Document;
use shoal_plan::document::{ExpectedFile, Extent};
use shoal_plan::execution::TRANSFERS_MAX;
use shoal_plan::plan::Outcome;
use shoal_s3::uri::S3Uri;

use crate::tasks::records::files::DocumentFacts;
use crate::tasks::records::moment::Moment;
use crate::tasks::refusal::TaskRefusal;

/// The longest document: a day of 20,000 jobs has some 30 MB.
pub(super) const DOCUMENT_BYTES_MAX: usize = 64 << 20;

/// The longest time until the end of a plan.
const LIFE_MAX: Duration = Duration::from_hours(8 * 24);

/// Returns the refusal of a body that is no document.
pub(in crate::tasks) fn no_plan(why: impl Display) -> TaskRefusal {
    let form = "what `shoal plan HISTORY --bandwidth RATE --cache SIZE` writes";
    let hint = format!("send {form}; docs/reference/plan.md describes it");
    TaskRefusal::bad(format!("the body is not a plan: {why}\nhint: {hint}"))
}

/// Returns the refusal of a document whose file is not taken.
pub(in crate::tasks) fn not_kept(refusal: TaskRefusal) -> TaskRefusal {
    let TaskRefusal { status, why } = refusal;
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let why = format!("the plan is not kept: {why}\nhint: the disk of the node needs room for it");
        return TaskRefusal::new(status, why);
    }
    let most = DOCUMENT_BYTES_MAX >> 20;
    let why = format!("a plan has at most {most} MiB, or did not come in full\nhint: plan a shorter window");
    TaskRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, why)
}

impl DocumentFacts {
    /// Returns the facts about a document that came at `now`, if it can be carried out.
    pub(in crate::tasks) fn checked(body: &[u8], now: SystemTime) -> Result<Self, TaskRefusal> {
        let document = read(body).map_err(no_plan)?;
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
fn check(document: &Document, now: SystemTime) -> Result<(), TaskRefusal> {
    let bad = |why: String| Err(TaskRefusal::bad(why));
    document
        .check()
        .map_err(|error| TaskRefusal::bad(error.to_string()))?;
    for (file, expected) in document.request.files.iter().zip(&document.files) {
        if let Err(why) = place_of(expected) {
            let hint = "name an object as s3://bucket/key, and a prefix as s3://bucket/prefix/";
            return bad(format!(
                "file {} cannot be fetched: {why}\nhint: {hint}",
                file.name
            ));
        }
    }
    let found = transfers(document);
    if found > TRANSFERS_MAX {
        let most = format!("at most {TRANSFERS_MAX} are carried out\nhint: plan a shorter window");
        return bad(format!(
            "the plan has {found} transfers and evictions, and {most}"
        ));
    }
    if document.request.jobs.is_empty() {
        return bad("the plan has no jobs\nhint: look at the forecast with `shoal plan predict`".into());
    }
    let ends = moment(document.epoch_ms, document.request.ends_s());
    if ends.after(now).is_zero() {
        let hint = "plan again, for a window that is still to come";
        return bad(format!("the plan is over since {ends}\nhint: {hint}"));
    }
    if ends.after(now) > LIFE_MAX {
        return bad(format!(
            "the plan ends at {ends}, more than 8 days from now\nhint: plan a nearer window"
        ));
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
