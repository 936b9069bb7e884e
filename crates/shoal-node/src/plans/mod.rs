//! Plans of what to fetch before jobs need it, carried out on live nodes.
//!
//! A plan is a document that an operator hands to any node. All nodes know of it by a record
//! ([`crate::bulletin`]); the document itself is a file on the nodes that may have to carry it out. One of
//! them is its coordinator: the home of its id among the living nodes. When that node goes, the next home
//! goes on.
//!
//! [`shoal_plan::course`] decides what is due, at which rate, what is behind and when a new plan is needed;
//! this module carries that out with what tasks have: nodes are asked to fetch blocks and to pin them.
//!
//! A plan asks the lake in the name of one identity, and so never sees what the lake would refuse it.

mod carrier;
mod config;
mod fetch;
mod objects;
mod order;
mod planner;
mod progress;
mod promise;
mod refusal;
mod service;

pub use self::config::PlanConfig;
pub use self::order::PlanOrder;
pub use self::progress::{
    Bytes, Issue, JobCounts, JobNote, PlanProgress, PlanState, Replanned, TransferNote,
};
pub use self::refusal::PlanRefusal;
pub use self::service::{DOCUMENT_BYTES_MAX, PlanFigures, PlanKind, PlanView, Plans};
