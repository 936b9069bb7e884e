//! Hints of running jobs: events of OpenLineage become tasks, and the memory of jobs.
//!
//! A run that starts has its inputs brought and kept until it ends, and those of the jobs behind it
//! ([`shoal_hints::wanted`]). A run that ends releases them, and is remembered: its inputs are what the next
//! run of the job is taken to read.
//!
//! Hints are advisory. One that is wrong, late, repeated or hostile costs bytes within the share of hints, in
//! the name of the identity that the operator gave to its namespace, and changes no answer.

mod open_runs;
mod run_log;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::StatusCode;
use parking_lot::Mutex;
use shoal_base::words;
use shoal_base::words::Counts;
use shoal_hints::{Event, JobRecord, Phase, RunEvent, Table, Wanted, wanted};
use shoal_net::clock;
use shoal_net::shutdown::Shutdown;
use shoal_policy::link::Bucket;

use self::open_runs::OpenRuns;
pub use self::run_log::RunLog;
use crate::bulletin::NotTaken;
use crate::tasks::{HintFacts, HintLimits, Moment, TaskRefusal, Tasks};

/// The number of events that a node takes in a second, and of those that may come at once.
const EVENTS_PER_SECOND: u64 = 100;
const EVENTS_AT_ONCE: u64 = 1_000;

/// The pause before the next look for hints whose runs have ended.
const PAUSE: Duration = Duration::from_millis(500);

/// The longest paths of one hint together in bytes: its record is small.
const PATH_BYTES_MAX: usize = 12 << 10;

/// `[hints]`: what engines may have brought with their events.
#[derive(Clone, Debug, PartialEq)]
pub struct HintConfig {
    /// The limits of hints: room on nodes, and a share of the link.
    pub limits: HintLimits,
    /// The time after which the objects of a run are no longer kept, whether or not it has ended.
    pub keep: Duration,
    /// File with the tokens of engines, which may send events and nothing else.
    pub token_file: Option<PathBuf>,
    /// The namespaces of jobs whose events are taken.
    pub rules: Vec<HintRule>,
    /// The places of tables that have no name in S3.
    pub tables: Vec<Table>,
}

/// `[[hints.rule]]`: in whose name the inputs of jobs are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintRule {
    /// The namespace of these jobs, or its beginning with a star behind it.
    pub namespace: String,
    /// The access key of an identity; `None`: the only one that there is.
    pub identity: Option<String>,
}

impl HintRule {
    /// Creates the rule that takes the events of all jobs, and reads in the name of the only identity.
    pub fn for_all() -> Self {
        Self {
            namespace: "*".into(),
            identity: None,
        }
    }

    fn is_for(&self, namespace: &str) -> bool {
        match self.namespace.strip_suffix('*') {
            Some(beginning) => namespace.starts_with(beginning),
            None => namespace == self.namespace,
        }
    }
}

impl Default for HintConfig {
    fn default() -> Self {
        Self {
            limits: HintLimits {
                room_percent: 25,
                link_percent: 50,
            },
            keep: Duration::from_hours(6),
            token_file: None,
            rules: Vec::new(),
            tables: Vec::new(),
        }
    }
}

impl HintConfig {
    /// Returns the rule for a namespace: the longest that fits.
    pub fn rule_for(&self, namespace: &str) -> Option<&HintRule> {
        let fitting = self.rules.iter().filter(|rule| rule.is_for(namespace));
        fitting.max_by_key(|rule| rule.namespace.len())
    }
}

words! {
    /// The outcome of an event.
    pub enum EventOutcome {
        /// It was taken.
        Taken = "taken",
        /// It is about no run.
        Ignored = "ignored",
        /// It is no event.
        Malformed = "malformed",
        /// No rule allows its namespace.
        Unmapped = "unmapped",
        /// The node has no room for its hint, or too many events came.
        Refused = "refused",
    }
}

/// Takes the events of engines.
pub struct Hints {
    tasks: Arc<Tasks>,
    config: HintConfig,
    open: Mutex<OpenRuns>,
    /// The reads and writes of runs that have ended, for forecasts.
    pub log: RunLog,
    rate: Mutex<Bucket>,
    began: Instant,
    /// Events, by outcome.
    pub events: Counts<EventOutcome>,
}

impl Hints {
    /// Takes events for `tasks`.
    pub fn new(tasks: &Arc<Tasks>, config: HintConfig, log: RunLog) -> Self {
        Self {
            tasks: Arc::clone(tasks),
            config,
            open: Mutex::default(),
            log,
            rate: Mutex::new(Bucket::new(EVENTS_PER_SECOND, EVENTS_AT_ONCE, Duration::ZERO)),
            began: clock::instant(),
            events: Counts::default(),
        }
    }

    /// Takes an event.
    ///
    /// # Errors
    ///
    /// It is no event, no rule allows its namespace, or there is no room for its hint. Nothing of it is kept.
    pub fn receive(&self, json: &[u8]) -> Result<(), TaskRefusal> {
        let taken = self.take(json);
        let outcome = match &taken {
            Ok(outcome) => *outcome,
            Err(refusal) => match refusal.status {
                StatusCode::BAD_REQUEST => EventOutcome::Malformed,
                StatusCode::FORBIDDEN => EventOutcome::Unmapped,
                _ => EventOutcome::Refused,
            },
        };
        self.events.count(outcome);
        taken.map(drop)
    }

    fn take(&self, json: &[u8]) -> Result<EventOutcome, TaskRefusal> {
        if !self
            .rate
            .lock()
            .take_if_any(1, clock::instant().saturating_duration_since(self.began))
        {
            let why =
                format!("more than {EVENTS_PER_SECOND} events a second came\nhint: send them again later");
            // Clients try again after a 503, and some of them drop what is answered by a 429.
            return Err(TaskRefusal::new(StatusCode::SERVICE_UNAVAILABLE, why));
        }
        let event = Event::parse(json, &self.config.tables);
        let event = match event.map_err(|error| TaskRefusal::bad(error.to_string()))? {
            Event::Run(event) => *event,
            Event::Other => return Ok(EventOutcome::Ignored),
        };
        self.rule(&event.job.namespace)?;
        if event.phase.is_end() {
            self.end(&event);
            return Ok(EventOutcome::Taken);
        }
        let event = self.open.lock().add(event, clock::instant());
        if let Some(event) = event {
            self.bring(&event)?;
        }
        Ok(EventOutcome::Taken)
    }

    fn rule(&self, namespace: &str) -> Result<&HintRule, TaskRefusal> {
        self.config.rule_for(namespace).ok_or_else(|| {
            let why = format!("no rule allows hints of the namespace {namespace:?}");
            let hint = "add [[hints.rule]] with namespace and identity to the configuration of the nodes";
            TaskRefusal::new(StatusCode::FORBIDDEN, format!("{why}\nhint: {hint}"))
        })
    }

    /// Has the inputs of a run, and of the jobs behind it, brought.
    fn bring(&self, event: &RunEvent) -> Result<(), TaskRefusal> {
        let now = clock::utc_now();
        let until = Moment::from(now).plus(self.config.keep);
        let deadline = event.deadline_ms.map(|deadline| moment(deadline).min(until));
        let deadline = deadline.filter(|deadline| !deadline.after(now).is_zero());
        for wanted in wanted(event, &self.tasks.jobs()) {
            // A later event of the run repeats the first one, and a reader behind it may have read by then.
            if self.open.lock().has_brought(&event.run, &wanted) {
                continue;
            }
            // A reader behind may belong to another namespace, which another identity reads.
            let rule = match self.rule(&wanted.reader.namespace) {
                Ok(rule) => rule,
                Err(_) if wanted.is_behind => continue,
                Err(refusal) => return Err(refusal),
            };
            for hint in hints_of(event, &wanted) {
                if hint.path_bytes() > PATH_BYTES_MAX {
                    let why = format!("the names of what {} reads are too long together", wanted.reader);
                    return Err(TaskRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, why));
                }
                self.tasks
                    .post_hint(hint, rule.identity.as_deref(), until, deadline, now)?;
            }
            self.open.lock().brought(&event.run, wanted);
        }
        Ok(())
    }

    /// Ends a run: its inputs are no longer kept. One that ended as it was to is remembered.
    fn end(&self, event: &RunEvent) {
        let is_complete = event.phase == Phase::Complete;
        let Ok(start) = self.open.lock().end(&event.run, is_complete) else {
            return;
        };
        if is_complete {
            let record = JobRecord::of(start.as_ref(), event);
            if !record.inputs.is_empty() || !record.outputs.is_empty() {
                self.log.add(&record, &event.run);
                match self.tasks.remember(&record) {
                    Ok(()) | Err(NotTaken::Known) => {}
                    Err(error) => tracing::debug!(job = %record.job, %error, "a job is not remembered"),
                }
            }
        }
        let open = self.open.lock();
        // The reader behind a run has read its inputs by now.
        let is_read = |hint: &HintFacts| hint.is_behind && hint.reader == event.job;
        let is_over = |hint: &HintFacts| is_read(hint) || open.ends(hint);
        self.tasks.end_hints(is_over);
        if is_complete {
            let outputs = start.iter().chain([event]).flat_map(|event| &event.outputs);
            let written = outputs.map(String::as_str).collect();
            self.tasks.keep_for_readers(&written, |hint| !is_over(hint));
        }
    }

    /// Ends hints of runs that have ended, until the node stops: the start of a run may have gone to another
    /// node, whose order arrives after the end.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        let mut changes = self.tasks.changes();
        loop {
            tokio::select! {
                _ = changes.changed() => {}
                () = stopping.begun() => return,
            }
            {
                let open = self.open.lock();
                self.tasks.end_hints(|hint| open.ends(hint));
            }
            // Progress changes all the time.
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = stopping.begun() => return,
            }
        }
    }
}

/// Returns the hints for a reader: one, and another where what its run writes is of use to those around it.
fn hints_of(event: &RunEvent, wanted: &Wanted) -> Vec<HintFacts> {
    let mut hint = HintFacts {
        run: event.run.clone(),
        parents: event.parents.clone(),
        reader: wanted.reader.clone(),
        stage: wanted.stage,
        is_behind: wanted.is_behind,
        inputs: wanted.inputs.clone(),
        awaited: wanted.awaited.clone(),
        short_lived: wanted.short_lived.clone(),
        priority: wanted.priority,
        bytes: wanted.bytes,
        submit: event.submit_ms.map(moment).filter(|_| !wanted.is_behind),
    };
    let mut hints = Vec::new();
    if let Some(outermost) = event.parents.last() {
        let short_lived = std::mem::take(&mut hint.short_lived);
        if !short_lived.is_empty() && !hint.is_behind {
            hints.push(HintFacts {
                run: outermost.clone(),
                parents: Vec::new(),
                inputs: Vec::new(),
                awaited: Vec::new(),
                short_lived,
                bytes: None,
                submit: None,
                ..hint.clone()
            });
        }
    }
    if hint.path_bytes() > 0 {
        hints.push(hint);
    }
    hints
}

fn moment(millis: u64) -> Moment {
    Moment::from(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
}
