//! Checks a request before anything is computed from it.

use std::collections::{HashMap, HashSet};

use shoal_base::spelling::suggestion;
use thiserror::Error;

use super::{Job, Request, VERSION};

/// The slots of a window, to its last deadline, at most. The program has a column for each pair of slots
/// between which bytes are fetched ahead: two millions.
pub const MAX_SLOTS: u64 = 2_000;
/// Reads of files by jobs at most.
pub const MAX_READS: u64 = 1_000_000;

/// Why a request cannot be planned: it contradicts itself or makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}\nhint: {hint}")]
pub struct RequestError {
    /// One sentence that names the thing and its value.
    what: String,
    /// The remedy.
    hint: &'static str,
}

impl Request {
    /// Checks that the request can be planned. A job that cannot meet its deadline is no error: the plan says
    /// why it cannot.
    ///
    /// # Errors
    /// The first thing that is absurd or contradictory.
    pub fn check(&self) -> Result<(), RequestError> {
        let found = self.version;
        ensure(
            found == VERSION,
            || format!("the request has version {found}, and this planner reads version {VERSION}"),
            "write the request anew with this version of shoal",
        )?;
        self.check_window()?;
        self.check_link()?;
        let sizes = self.check_files()?;
        self.check_cache(&sizes)?;
        self.check_jobs(&sizes)
    }

    fn check_window(&self) -> Result<(), RequestError> {
        let window = &self.window;
        let hint = "give start_s before end_s";
        interval("the window", window.start_s, window.end_s, hint)?;
        positive("the window's slot_s", window.slot_s)?;
        let deadlines = self.jobs.iter().map(|job| job.deadline_s);
        let end_s = deadlines.filter(|s| s.is_finite()).fold(window.end_s, f64::max);
        #[expect(clippy::cast_sign_loss, reason = "the end is after the start")]
        let slots = ((end_s - window.start_s) / window.slot_s).min(1e18) as u64;
        ensure(
            slots <= MAX_SLOTS,
            || format!("slots up to the last deadline: {slots}, and at most {MAX_SLOTS} are planned at once"),
            "choose longer slots (slot_s) or a shorter window",
        )
    }

    fn check_link(&self) -> Result<(), RequestError> {
        positive("the link's bytes_per_second", self.link.bytes_per_second)?;
        let mut before = Time("a change", f64::NEG_INFINITY);
        for change in &self.link.changes {
            finite("a change of the link's at_s", change.at_s)?;
            not_negative("a change of the link's bytes_per_second", change.bytes_per_second)?;
            let next = Time("the next", change.at_s);
            after("the link's changes", before, next, "sort the changes by time")?;
            before.1 = change.at_s;
        }
        for promise in &self.link.promised {
            let hint = "leave out promises that are over";
            interval("a promise", promise.start_s, promise.end_s, hint)?;
            not_negative("a promise's bytes_per_second", promise.bytes_per_second)?;
        }
        Ok(())
    }

    fn check_files(&self) -> Result<HashMap<&str, u64>, RequestError> {
        let mut sizes = HashMap::with_capacity(self.files.len());
        for (number, file) in self.files.iter().enumerate() {
            let name = &file.name;
            named("file", number, name)?;
            ensure(
                file.bytes > 0,
                || format!("file {name} has no bytes"),
                "leave it out of the inputs: there is nothing to transfer",
            )?;
            positive(format!("the block_bytes of file {name}"), file.block_bytes as f64)?;
            if let Some(available_s) = file.available_s {
                finite(format!("the available_s of file {name}"), available_s)?;
            }
            once("files", name, sizes.insert(name.as_str(), file.bytes).is_none())?;
        }
        Ok(sizes)
    }

    fn check_cache(&self, sizes: &HashMap<&str, u64>) -> Result<(), RequestError> {
        if let Some(rate) = self.cache.bytes_per_second {
            positive("the cache's bytes_per_second", rate)?;
        }
        let (mut held_bytes, mut seen) = (0_u128, HashSet::new());
        for held in &self.cache.held {
            let (file, cached) = (&held.file, held.bytes);
            let bytes = known("the cache", file, sizes)?;
            ensure(
                cached <= bytes,
                || format!("the cache holds {cached} bytes of {file}, which has {bytes}"),
                "the file has changed; count old bytes as not cached",
            )?;
            once("held files", file, seen.insert(file))?;
            if let Some(pinned_until_s) = held.pinned_until_s {
                finite(format!("the pinned_until_s of file {file}"), pinned_until_s)?;
            }
            held_bytes += u128::from(cached);
        }
        let room = self.cache.capacity_bytes;
        ensure(
            held_bytes <= u128::from(room),
            || format!("the cache holds {held_bytes} bytes and has room for {room}"),
            "give the room of all nodes together, or evict before planning",
        )
    }

    fn check_jobs(&self, sizes: &HashMap<&str, u64>) -> Result<(), RequestError> {
        let mut names = HashSet::with_capacity(self.jobs.len());
        for (number, job) in self.jobs.iter().enumerate() {
            named("job", number, &job.name)?;
            self.check_job(job, sizes)?;
            once("jobs", &job.name, names.insert(job.name.as_str()))?;
        }
        let reads: u64 = self.jobs.iter().map(|job| job.inputs.len() as u64).sum();
        ensure(
            reads <= MAX_READS,
            || format!("reads of files by jobs: {reads}, and at most {MAX_READS} are planned at once"),
            "plan a shorter window",
        )
    }

    fn check_job(&self, job: &Job, sizes: &HashMap<&str, u64>) -> Result<(), RequestError> {
        let (what, submit_s) = (format!("job {}", job.name), job.submit_s);
        finite(format!("the submit_s of {what}"), submit_s)?;
        finite(format!("the deadline_s of {what}"), job.deadline_s)?;
        after(
            &what,
            Time("its submission", submit_s),
            Time("its deadline", job.deadline_s),
            "correct the deadline: no job can be done before it is submitted",
        )?;
        let (start_s, end_s) = (self.window.start_s, self.window.end_s);
        ensure(
            (start_s..end_s).contains(&submit_s),
            || format!("{what} is submitted at {submit_s} s, outside the window of {start_s} to {end_s} s"),
            "move the window, or leave the job to another one",
        )?;
        if let Some(rate) = job.bytes_per_second_max {
            positive(format!("the bytes_per_second_max of {what}"), rate)?;
        }
        ensure(
            !job.inputs.is_empty(),
            || format!("{what} reads nothing"),
            "list its inputs, or leave it out: there is nothing to plan for it",
        )?;
        let mut inputs = HashSet::with_capacity(job.inputs.len());
        for file in &job.inputs {
            known(&what, file, sizes)?;
            ensure(
                inputs.insert(file),
                || format!("{what} names the file {file} twice"),
                "name each input once; a job reads a file whole",
            )?;
        }
        Ok(())
    }
}

/// A time and its name.
#[derive(Clone, Copy)]
struct Time(&'static str, f64);

fn ensure(is_so: bool, what: impl FnOnce() -> String, hint: &'static str) -> Result<(), RequestError> {
    if is_so {
        return Ok(());
    }
    Err(RequestError { what: what(), hint })
}

fn named(kind: &str, number: usize, name: &str) -> Result<(), RequestError> {
    ensure(
        !name.is_empty(),
        || format!("{kind} number {} has no name", number + 1),
        "give each a name of its own",
    )
}

fn once(kind: &str, name: &str, is_first: bool) -> Result<(), RequestError> {
    ensure(
        is_first,
        || format!("two {kind} are named {name}"),
        "give each a name of its own",
    )
}

/// Returns the size of a file that `what` names.
fn known(what: &str, file: &str, sizes: &HashMap<&str, u64>) -> Result<u64, RequestError> {
    if let Some(bytes) = sizes.get(file) {
        return Ok(*bytes);
    }
    let mut names: Vec<&str> = sizes.keys().copied().collect();
    names.sort_unstable();
    let nearest = suggestion(file, names).map(|name| format!(" (nearest: {name})"));
    let nearest = nearest.unwrap_or_default();
    Err(RequestError {
        what: format!("{what} names the file {file}, which is not among the files{nearest}"),
        hint: "list the file with its size, or correct the name",
    })
}

fn finite(what: impl Into<String>, value: f64) -> Result<(), RequestError> {
    ensure(
        value.is_finite(),
        || format!("{} is {value}", what.into()),
        "give a finite number",
    )
}

fn positive(what: impl Into<String>, value: f64) -> Result<(), RequestError> {
    sensible(&what.into(), value, value > 0.0)
}

fn not_negative(what: &str, value: f64) -> Result<(), RequestError> {
    sensible(what, value, value >= 0.0)
}

fn sensible(what: &str, value: f64, is_enough: bool) -> Result<(), RequestError> {
    finite(what, value)?;
    ensure(
        is_enough,
        || format!("{what} is {value}"),
        "give a number greater than 0",
    )
}

fn interval(what: &str, start_s: f64, end_s: f64, hint: &'static str) -> Result<(), RequestError> {
    finite(format!("{what}'s start_s"), start_s)?;
    finite(format!("{what}'s end_s"), end_s)?;
    after(what, Time("start_s", start_s), Time("end_s", end_s), hint)
}

fn after(what: &str, earlier: Time, later: Time, hint: &'static str) -> Result<(), RequestError> {
    let (Time(earlier, earlier_s), Time(later, later_s)) = (earlier, later);
    ensure(
        later_s > earlier_s,
        || format!("{what}: {later} ({later_s} s) is not after {earlier} ({earlier_s} s)"),
        hint,
    )
}
