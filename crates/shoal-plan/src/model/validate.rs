//! Checks a request before anything is computed from it.

use std::collections::{HashMap, HashSet};

use shoal_base::spelling::suggestion;

use super::{Request, RequestError, VERSION};

/// The slots of a window, to its last deadline, at most. The program has a column for each pair of slots
/// between which bytes are fetched ahead: two millions.
pub const MAX_SLOTS: u64 = 2_000;
/// Reads of files by jobs at most.
pub const MAX_READS: u64 = 1_000_000;

impl Request {
    /// Checks that the request can be planned. A job that cannot meet its deadline is no error: the plan says
    /// why it cannot.
    ///
    /// # Errors
    /// The first thing that is absurd or contradictory.
    pub fn check(&self) -> Result<(), RequestError> {
        if self.version != VERSION {
            return Err(RequestError::Version {
                found: self.version,
                expected: VERSION,
            });
        }
        self.check_window()?;
        self.check_link()?;
        let sizes = self.check_files()?;
        self.check_cache(&sizes)?;
        self.check_jobs(&sizes)
    }

    fn check_window(&self) -> Result<(), RequestError> {
        let window = &self.window;
        interval(
            "the window",
            window.start_s,
            window.end_s,
            "give start_s before end_s",
        )?;
        positive("the window's slot_s", window.slot_s)?;
        let end_s = self
            .jobs
            .iter()
            .map(|job| job.deadline_s)
            .filter(|s| s.is_finite())
            .fold(window.end_s, f64::max);
        #[expect(clippy::cast_sign_loss, reason = "the end is after the start")]
        let slots = ((end_s - window.start_s) / window.slot_s).min(1e18) as u64;
        at_most(
            "slots up to the last deadline",
            slots,
            MAX_SLOTS,
            "choose longer slots (slot_s) or a shorter window",
        )
    }

    fn check_link(&self) -> Result<(), RequestError> {
        positive("the link's bytes_per_second", self.link.bytes_per_second)?;
        let mut before_s = f64::NEG_INFINITY;
        for change in &self.link.changes {
            finite("a change of the link's at_s", change.at_s)?;
            not_negative("a change of the link's bytes_per_second", change.bytes_per_second)?;
            after(
                "the link's changes",
                ("a change", before_s),
                ("the next", change.at_s),
                "sort the changes by time",
            )?;
            before_s = change.at_s;
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
            named("file", number, &file.name)?;
            if file.bytes == 0 {
                return Err(RequestError::EmptyFile {
                    file: file.name.clone(),
                });
            }
            positive(
                format!("the block_bytes of file {}", file.name),
                file.block_bytes as f64,
            )?;
            if let Some(available_s) = file.available_s {
                finite(format!("the available_s of file {}", file.name), available_s)?;
            }
            once(
                "files",
                &file.name,
                sizes.insert(file.name.as_str(), file.bytes).is_none(),
            )?;
        }
        Ok(sizes)
    }

    fn check_cache(&self, sizes: &HashMap<&str, u64>) -> Result<(), RequestError> {
        if let Some(rate) = self.cache.bytes_per_second {
            positive("the cache's bytes_per_second", rate)?;
        }
        let (mut held_bytes, mut seen) = (0_u128, HashSet::new());
        for held in &self.cache.held {
            let bytes = *sizes
                .get(held.file.as_str())
                .ok_or_else(|| unknown_file("the cache".to_owned(), &held.file, sizes))?;
            if held.bytes > bytes {
                return Err(RequestError::HeldTooMuch {
                    file: held.file.clone(),
                    held_bytes: held.bytes,
                    bytes,
                });
            }
            once("held files", &held.file, seen.insert(held.file.as_str()))?;
            if let Some(pinned_until_s) = held.pinned_until_s {
                finite(
                    format!("the pinned_until_s of file {}", held.file),
                    pinned_until_s,
                )?;
            }
            held_bytes += u128::from(held.bytes);
        }
        if held_bytes > u128::from(self.cache.capacity_bytes) {
            let capacity_bytes = self.cache.capacity_bytes;
            return Err(RequestError::HeldBeyondCapacity {
                held_bytes,
                capacity_bytes,
            });
        }
        Ok(())
    }

    fn check_jobs(&self, sizes: &HashMap<&str, u64>) -> Result<(), RequestError> {
        let mut names = HashSet::with_capacity(self.jobs.len());
        for (number, job) in self.jobs.iter().enumerate() {
            named("job", number, &job.name)?;
            let what = || format!("job {}", job.name);
            finite(format!("the submit_s of {}", what()), job.submit_s)?;
            finite(format!("the deadline_s of {}", what()), job.deadline_s)?;
            let hint = "correct the deadline: no job can be done before it is submitted";
            after(
                what(),
                ("its submission", job.submit_s),
                ("its deadline", job.deadline_s),
                hint,
            )?;
            if job.submit_s < self.window.start_s || job.submit_s >= self.window.end_s {
                return Err(RequestError::Outside {
                    job: job.name.clone(),
                    submit_s: job.submit_s,
                    start_s: self.window.start_s,
                    end_s: self.window.end_s,
                });
            }
            if let Some(rate) = job.bytes_per_second_max {
                positive(format!("the bytes_per_second_max of {}", what()), rate)?;
            }
            if job.inputs.is_empty() {
                return Err(RequestError::NoInputs {
                    job: job.name.clone(),
                });
            }
            let mut inputs = HashSet::with_capacity(job.inputs.len());
            for file in &job.inputs {
                if !sizes.contains_key(file.as_str()) {
                    return Err(unknown_file(what(), file, sizes));
                }
                if !inputs.insert(file) {
                    return Err(RequestError::InputTwice {
                        job: job.name.clone(),
                        file: file.clone(),
                    });
                }
            }
            once("jobs", &job.name, names.insert(job.name.as_str()))?;
        }
        let reads = self.jobs.iter().map(|job| job.inputs.len() as u64).sum();
        at_most(
            "reads of files by jobs",
            reads,
            MAX_READS,
            "plan a shorter window",
        )
    }
}

fn named(kind: &'static str, number: usize, name: &str) -> Result<(), RequestError> {
    if name.is_empty() {
        return Err(RequestError::Nameless {
            kind,
            number: number + 1,
        });
    }
    Ok(())
}

fn finite(what: impl Into<String>, value: f64) -> Result<(), RequestError> {
    if value.is_finite() {
        return Ok(());
    }
    Err(RequestError::NotFinite {
        what: what.into(),
        value,
    })
}

fn positive(what: impl Into<String>, value: f64) -> Result<(), RequestError> {
    sensible(what.into(), value, value > 0.0)
}

fn not_negative(what: &str, value: f64) -> Result<(), RequestError> {
    sensible(what.to_owned(), value, value >= 0.0)
}

fn sensible(what: String, value: f64, is_enough: bool) -> Result<(), RequestError> {
    finite(what.as_str(), value)?;
    if is_enough {
        return Ok(());
    }
    Err(RequestError::NotPositive { what, value })
}

fn once(kind: &'static str, name: &str, is_first: bool) -> Result<(), RequestError> {
    if is_first {
        return Ok(());
    }
    Err(RequestError::Twice {
        kind,
        name: name.to_owned(),
    })
}

fn interval(what: &str, start_s: f64, end_s: f64, hint: &'static str) -> Result<(), RequestError> {
    finite(format!("{what}'s start_s"), start_s)?;
    finite(format!("{what}'s end_s"), end_s)?;
    after(what, ("start_s", start_s), ("end_s", end_s), hint)
}

fn after(
    what: impl Into<String>,
    (earlier_name, earlier_s): (&'static str, f64),
    (later_name, later_s): (&'static str, f64),
    hint: &'static str,
) -> Result<(), RequestError> {
    if later_s > earlier_s {
        return Ok(());
    }
    Err(RequestError::Order {
        what: what.into(),
        earlier_name,
        earlier_s,
        later_name,
        later_s,
        hint,
    })
}

fn at_most(what: &'static str, found: u64, most: u64, hint: &'static str) -> Result<(), RequestError> {
    if found <= most {
        return Ok(());
    }
    Err(RequestError::TooMany {
        what,
        found,
        most,
        hint,
    })
}

fn unknown_file(what: String, file: &str, sizes: &HashMap<&str, u64>) -> RequestError {
    let mut names: Vec<&str> = sizes.keys().copied().collect();
    names.sort_unstable();
    let nearest = suggestion(file, names)
        .map(|name| format!(" (nearest: {name})"))
        .unwrap_or_default();
    RequestError::UnknownFile {
        what,
        file: file.to_owned(),
        nearest,
    }
}
