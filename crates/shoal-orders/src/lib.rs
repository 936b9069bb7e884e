//! Tasks, plans and hints: what operators, schedules and running jobs order, and the records that all nodes
//! keep of them.

pub mod bulletin;
pub mod hints;
pub mod planner_process;
pub mod tasks;

pub use shoal_plan::execution::JobStatus;
pub use tasks::{
    ArrivalNote, ByteCounts, CACHED_OBJECTS_MAX, CachedObject, CachedPage, DocumentFacts, HintFacts, HintUse,
    InvalidMoment, Issue, JobCounts, JobNote, ManifestFacts, Moment, NodeCounts, ObjectCounts, ObjectError,
    Order, PlanProgress, Progress, Replanned, Tally, Task, TaskKind, TaskList, TaskRequest, TaskState,
    TransferNote,
};
