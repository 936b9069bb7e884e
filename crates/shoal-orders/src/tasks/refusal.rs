//! The reasons why an order is not taken, for operators.

use std::fmt::Display;

use http::StatusCode;

use crate::bulletin::NotTaken;

/// The reason why an order, or the list or the plan that comes with it, is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct TaskRefusal {
    /// The status of the answer.
    pub status: StatusCode,
    /// The reason, and a hint in a line of its own.
    pub why: String,
}

impl TaskRefusal {
    /// Creates a refusal that is answered with this status.
    pub(crate) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { status, why }
    }

    /// Creates the refusal of something that cannot be carried out.
    pub fn bad(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    /// Creates the refusal of a body or a query that is no order.
    pub fn no_order(why: impl Display) -> Self {
        let form = r#"{"kind": "prefetch", "uri": "s3://bucket/prefix"}"#;
        Self::bad(format!(
            "the body is not an order: {why}\nhint: send JSON such as {form}"
        ))
    }
}

impl From<NotTaken> for TaskRefusal {
    fn from(why: NotTaken) -> Self {
        let hint = "name many objects in one order; orders are forgotten after some days";
        let why = format!("the order is not taken: {why}\nhint: {hint}");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why)
    }
}
