//! The reasons why an order is not taken, for operators.

use http::StatusCode;

use super::parts::IdentityError;
use super::parts::manifest::ManifestError;
use super::plan::PlanError;
use super::records::order::OrderError;
use crate::bulletin::NotTaken;

/// The reason why an order is not taken.
#[derive(Debug, thiserror::Error)]
pub enum TaskRefusal {
    /// 400: the order is not one.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// 400: no identity is the one that the order means.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// 400: no node is there.
    #[error(
        "no node is at {0:?}\nhint: name a node, or the beginning of a topology such as dc1/cluster-a; `shoal status` shows both"
    )]
    NoNode(String),
    /// 400, 413, 503: the list of objects is not taken.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// 400, 413, 503: the plan is not taken.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// 404: there is no plan.
    #[error("there is no plan\nhint: hand one over with `shoal plan start FILE`")]
    NoPlan,
    /// 404: there is no such task.
    #[error(
        "no task has this id\nhint: `shoal tasks` lists them; tasks are forgotten some days after their end"
    )]
    NoTask,
    /// 409: the task is over.
    #[error("the task is over\nhint: `shoal task ID` shows how it ended")]
    Over,
    /// 503: there is no room for another task.
    #[error(
        "the order is not taken: {0}\nhint: name many objects in one order; orders are forgotten after some days"
    )]
    NotTaken(#[from] NotTaken),
}

impl TaskRefusal {
    /// Returns the status of the answer.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Manifest(ManifestError::TooLong) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Manifest(ManifestError::NotKept(_)) | Self::NotTaken(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Order(_) | Self::Identity(_) | Self::NoNode(_) | Self::Manifest(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::Plan(error) => error.status(),
            Self::NoTask | Self::NoPlan => StatusCode::NOT_FOUND,
            Self::Over => StatusCode::CONFLICT,
        }
    }
}
