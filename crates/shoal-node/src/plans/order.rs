//! The record of a plan, which all nodes have, and the check of its document.

use std::str::FromStr as _;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use shoal_plan::Document;
use shoal_plan::document::{ExpectedFile, Extent};
use shoal_plan::execution::TRANSFERS_MAX;
use shoal_plan::plan::Outcome;
use shoal_s3::uri::S3Uri;

use super::progress::{PlanProgress, PlanState};
use super::refusal::PlanRefusal;
use crate::bulletin::Kind;
use crate::tasks::{Moment, Recorded};

/// How long a plan is remembered after its end.
const MEMORY: Duration = Duration::from_hours(24);

/// The longest time until the end of a plan.
const LIFE_MAX: Duration = Duration::from_hours(8 * 24);

/// A plan that a node has accepted. It never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanOrder {
    /// The access key of the identity in whose name the lake is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// When it was accepted.
    pub created: Moment,
    /// The node that accepted it.
    pub accepted_by: String,
    /// The size of the document.
    pub document_bytes: u64,
    /// The start of its window.
    pub starts: Moment,
    /// The deadline of its last job.
    pub ends: Moment,
    /// The number of its jobs, and of those to which it promises something.
    pub job_count: u64,
    /// See [`PlanOrder::job_count`].
    pub planned_count: u64,
    /// The number of its transfers.
    pub transfer_count: u64,
    /// The plan that was in force before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// The number of plans that were in force before. The plan with the greatest is in force, whatever the
    /// clocks of nodes say.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub succession: u64,
    /// When all nodes forget it.
    pub forgotten: Moment,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Recorded for PlanOrder {
    const KIND: Kind = Kind::Plan;

    type Progress = PlanProgress;

    fn forgotten(&self) -> Moment {
        self.forgotten
    }

    fn end_early(&self, progress: &mut PlanProgress, at: Moment) {
        if !progress.state.is_over() {
            progress.state = PlanState::Stopped;
            progress.transfers.clear();
            progress.ended = Some(at);
            progress.detail = Some("an operator stopped it".to_owned());
        }
    }
}

impl PlanOrder {
    /// The order to carry a document out, which has been checked, that a node accepted at `created`.
    pub(super) fn accepted(
        document: &Document,
        document_bytes: u64,
        identity: Option<String>,
        (created, accepted_by): (SystemTime, &str),
    ) -> Self {
        let ends = moment(document.epoch_ms, ends_s(document));
        let planned = document
            .plan
            .jobs
            .iter()
            .filter(|job| job.outcome == Outcome::Planned);
        Self {
            identity,
            created: created.into(),
            accepted_by: accepted_by.into(),
            document_bytes,
            starts: moment(document.epoch_ms, document.request.window.start_s),
            ends,
            job_count: document.request.jobs.len() as u64,
            planned_count: planned.count() as u64,
            transfer_count: transfers(document) as u64,
            replaces: None,
            succession: 0,
            forgotten: ends.plus(MEMORY),
        }
    }
}

/// A time of a document.
pub(super) fn moment(epoch_ms: u64, seconds: f64) -> Moment {
    let millis = epoch_ms as f64 + seconds * 1e3;
    #[expect(clippy::cast_sign_loss, reason = "a time before 1970 is its beginning")]
    let millis = millis.clamp(0.0, 2e14) as u64;
    Moment::from(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
}

/// A time on the clock of a document.
pub(super) fn seconds(epoch_ms: u64, now: SystemTime) -> f64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_millis() as f64 - epoch_ms as f64) / 1e3
}

fn ends_s(document: &Document) -> f64 {
    let deadlines = document.request.jobs.iter().map(|job| job.deadline_s);
    deadlines.fold(document.request.window.end_s, f64::max)
}

fn transfers(document: &Document) -> usize {
    let files = document.plan.files.iter();
    files
        .map(|file| file.transfers.len() + file.evictions.len())
        .sum()
}

/// Checks a document that came at `now`.
pub(super) fn check(document: &Document, now: SystemTime) -> Result<(), PlanRefusal> {
    document.check()?;
    for (file, expected) in document.request.files.iter().zip(&document.files) {
        place_of(expected).map_err(|why| PlanRefusal::File(file.name.clone(), why))?;
    }
    let found = transfers(document);
    if found > TRANSFERS_MAX {
        return Err(PlanRefusal::TooMany(found));
    }
    if document.request.jobs.is_empty() {
        return Err(PlanRefusal::Empty);
    }
    let ends = moment(document.epoch_ms, ends_s(document));
    if ends.after(now).is_zero() {
        return Err(PlanRefusal::Over(ends));
    }
    if ends.after(now) > LIFE_MAX {
        return Err(PlanRefusal::TooLate(ends));
    }
    Ok(())
}

/// The bucket and the key, or the prefix, of a file.
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
