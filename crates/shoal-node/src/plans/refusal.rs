//! Why a plan is not taken, for operators.

use http::StatusCode;
use shoal_plan::document::DocumentError;
use shoal_plan::execution::TRANSFERS_MAX;

use crate::bulletin::NotTaken;
use crate::tasks::{ManifestError, Moment, TaskRefusal};

/// Why a plan is not taken.
#[derive(Debug, thiserror::Error)]
pub enum PlanRefusal {
    /// 400: the body is no document.
    #[error(
        "the body is not a plan: {0}\nhint: send what `shoal plan HISTORY --bandwidth RATE --cache SIZE` writes; docs/reference/plan.md describes it"
    )]
    Body(String),
    /// 400: the query is not one.
    #[error("{0}\nhint: the only parameter is identity, an access key")]
    Query(String),
    /// 400: the document contradicts itself.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// 400: a file has no place in the lake.
    #[error(
        "file {0} cannot be fetched: {1}\nhint: name an object as s3://bucket/key, and a prefix as s3://bucket/prefix/"
    )]
    File(String, String),
    /// 400: it plans too much.
    #[error(
        "the plan has {0} transfers and evictions, and at most {TRANSFERS_MAX} are carried out\nhint: plan a shorter window"
    )]
    TooMany(usize),
    /// 400: it plans nothing.
    #[error("the plan has no jobs\nhint: look at the forecast with `shoal plan predict`")]
    Empty,
    /// 400: it is over.
    #[error("the plan is over since {0}\nhint: plan anew, for a window that is still to come")]
    Over(Moment),
    /// 400: it is for a time far ahead.
    #[error("the plan ends at {0}, more than 8 days from now\nhint: plan a nearer window")]
    TooLate(Moment),
    /// 413: it is too long.
    #[error("a plan has at most {} MiB, or did not come in full\nhint: plan a shorter window", super::DOCUMENT_BYTES_MAX >> 20)]
    TooLong,
    /// 404: there is none.
    #[error("there is no plan\nhint: hand one over with `shoal plan start FILE`")]
    NoPlan,
    /// 409: it is over.
    #[error("the plan is over\nhint: `shoal plan show` tells how it ended")]
    Ended,
    /// 400: the identity is not one.
    #[error(transparent)]
    Identity(TaskRefusal),
    /// 503: it finds no room.
    #[error("the plan is not kept: {0}\nhint: the disk of the node needs room for it")]
    NotKept(#[from] ManifestError),
    /// 503: there is no room for another record.
    #[error("the plan is not taken: {0}\nhint: tasks and plans are forgotten after some days")]
    NotTaken(#[from] NotTaken),
}

impl PlanRefusal {
    /// The status of the answer.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoPlan => StatusCode::NOT_FOUND,
            Self::Ended => StatusCode::CONFLICT,
            Self::NotKept(_) | Self::NotTaken(_) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}
