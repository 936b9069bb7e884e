//! Tasks of operators: bring objects into the cache, keep them there, remove them, count them, and carry out
//! plans of what to fetch when.
//!
//! A task is an order that all nodes know ([`crate::bulletin`]), and the progress of the node that runs it:
//! the home of its id among the living nodes. When that node goes, the next home goes on where it was.
//!
//! A task asks the lake in the name of one identity, and so never sees what the lake would refuse it.

mod catalogue;
mod entry;
mod figures;
mod files;
mod fill;
mod gathering;
mod helper;
mod homes;
mod lake_view;
mod manifest;
mod manifests;
mod messages;
mod meter;
mod moment;
mod nodes;
mod order;
mod parts;
mod placer;
mod plan;
mod plan_progress;
mod planned_rates;
mod progress;
mod records;
mod refusal;
mod run;
mod runner;
mod service;
mod targets;
mod unpinned;

pub use self::entry::Task;
pub use self::figures::{KindTotals, PlanFigures, TaskFigures};
pub use self::files::{DocumentFacts, ManifestFacts};
pub use self::helper::TaskHelper;
pub use self::manifest::is_notification;
pub use self::manifests::Manifests;
pub use self::messages::{QUESTION_BYTES_MAX, Question, TASKS};
pub use self::moment::{InvalidMoment, Moment};
pub use self::nodes::Nodes;
pub use self::order::{Order, OrderError, TaskKind, TaskRequest};
pub use self::parts::{IdentityError, TaskParts};
pub use self::plan::{PlanConfig, PlanError};
pub use self::plan_progress::{Issue, JobCounts, JobNote, PlanProgress, Replanned, TransferNote};
pub use self::progress::{ByteCounts, NodeCounts, ObjectCounts, ObjectError, Progress, Tally, TaskState};
pub use self::refusal::TaskRefusal;
pub use self::service::{TaskList, TaskListPart, Tasks};
