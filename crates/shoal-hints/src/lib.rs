//! Hints of running jobs, as engines send them in OpenLineage: which inputs a job reads now, and which ones
//! the jobs behind it read next.
//!
//! ```text
//! JSON ──▶ RunEvent ──▶ wanted ──▶ inputs of the run itself, and of the jobs behind it
//!              │           ▲
//!              ▼           │
//!          JobRecord ──▶ Jobs       what each job read and wrote in its last run
//! ```
//!
//! D4N's second specialization takes the DAG of a running job (Kariz: dissertation, 4.5.5 and 5.4).
//! OpenLineage has no DAG of what is to come, so it is put together from what jobs did before: a job comes
//! next if it is announced, if it was a part of the last run of this one, or if it read in its last run what
//! this one writes.
//!
//! Hints are advisory. The crate performs no I/O, and times are arguments.

mod event;
mod facet;
mod job;
mod location;
mod wanted;

pub use self::event::{EVENT_BYTES_MAX, Event, EventError, Phase, RunEvent};
pub use self::facet::{Life, PRIORITY_MAX, Stage};
pub use self::job::{Input, JobName, JobRecord, Jobs, ParentRun, RECORD_BYTES_MAX};
pub use self::location::{Dataset, Table};
pub use self::wanted::{STAGES_MAX, Wanted, wanted};
