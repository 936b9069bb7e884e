//! Tasks of operators: bring objects into the cache, keep them there, remove them, count them, and carry out
//! plans of what to fetch when.
//!
//! A task is an order that all nodes have ([`crate::bulletin`]), and the progress of the node that runs it:
//! the home of its id among the living nodes. When that node goes, the next home resumes where it was.
//!
//! A task asks the lake in the name of one identity, so it never sees what the lake would refuse that
//! identity.

mod cached;
mod gathering;
mod hints;
mod parts;
mod plan;
mod planning;
mod records;
mod refusal;
mod run;
mod service;

pub use self::cached::{CACHED_OBJECTS_MAX, CachedObject, CachedPage, CachedQuery};
pub use self::hints::HintUse;
pub use self::parts::TaskParts;
pub use self::parts::helper::TaskHelper;
pub use self::parts::manifest::is_notification;
pub use self::parts::messages::{QUESTION_BYTES_MAX, Question, TASKS};
pub use self::parts::order_files::OrderFiles;
pub use self::plan::PlanConfig;
pub use self::plan::ahead::PlanInForce;
pub use self::records::entry::Task;
pub use self::records::files::{DocumentFacts, HintFacts, ManifestFacts};
pub use self::records::moment::{InvalidMoment, Moment};
pub use self::records::order::{Order, TaskKind, TaskRequest};
pub use self::records::plan_progress::{
    ArrivalNote, Issue, JobCounts, JobNote, PlanProgress, Replanned, TransferNote,
};
pub use self::records::progress::{
    ByteCounts, NodeCounts, ObjectCounts, ObjectError, Progress, Tally, TaskState,
};
pub use self::refusal::TaskRefusal;
pub use self::run::HintLimits;
pub use self::run::figures::{KindTotals, PlanFigures, TaskFigures};
pub use self::service::{TaskList, TaskListPart, Tasks};
