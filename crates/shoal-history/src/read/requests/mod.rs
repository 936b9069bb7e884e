//! Turns access logs into runs: requests of one job in close succession are one run.
//!
//! **Jobs.** A request belongs to the job named in its header `x-shoal-job`; without it, to the program in
//! its user agent combined with the identity that signed it. `JobBy` selects only one of the three. S3A puts
//! `fs.s3a.user.agent.prefix` first in its user agent ([`user_agent`]). A job that sends no request for the
//! *gap* has ended: its next request starts another run. A run lasts at most a day; a job that reads
//! continuously is a service, and is split there.
//!
//! **Inputs.** Successful reads of objects, each byte counted once if the log has ranges: a footer that is
//! read three times counts once. An object that the run wrote before reading it is not an input.
//!
//! Files and lines are read in order. A request is logged some time between its start and its end, so
//! requests may be out of order by less than the gap; those that are later may split runs, and are counted.

mod ranges;
mod user_agent;

use std::collections::{BTreeSet, HashMap};
use std::io::BufRead;

use shoal_logs::line::Lines;
use shoal_logs::{AccessLog, Mismatch, Request, RequestKind};

use self::ranges::Ranges;
use self::user_agent::program;
use super::{JobBy, ReadOptions};
use crate::error::HistoryError;
use crate::moment::{DAY_MS, Moment};
use crate::names::is_lasting;
use crate::run::{History, Input, Passed, Run};

/// Maximum length of a line.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum duration of a run.
const RUN_MS_MAX: i64 = DAY_MS;
/// Maximum number of jobs running at the same time.
const OPEN_MAX: usize = 1 << 18;
/// Maximum number of paths of their runs.
const PATHS_MAX: usize = 8_000_000;
/// Requests between two searches for ended jobs.
const SWEEP_EVERY: usize = 1 << 16;

/// Jobs whose requests are being read.
#[derive(Debug, Default)]
pub(super) struct Requests {
    options: ReadOptions,
    open: HashMap<String, Session>,
    /// Number of paths of all open runs.
    paths: usize,
    /// Time of the latest request.
    latest: Moment,
    since_sweep: usize,
}

/// A run whose requests are being read.
#[derive(Debug)]
struct Session {
    first: Moment,
    /// End of the last response.
    last: Moment,
    /// Reads of objects, by path.
    reads: HashMap<String, Ranges>,
    /// Paths that were written.
    writes: BTreeSet<String>,
    /// Number of reads of these.
    own_reads: u64,
    /// The identity in the job's name, if it is long-lived.
    identity: Option<String>,
}

impl Requests {
    pub(super) fn new(options: ReadOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Reads one log, whose format is recognized by its first lines.
    pub(super) fn read(
        &mut self,
        history: &mut History,
        name: &str,
        start: &[u8],
        input: impl BufRead + 'static,
    ) -> Result<(), HistoryError> {
        let log = match start.trim_ascii_start() {
            [b'{', ..] => AccessLog::Node,
            _ => AccessLog::S3Server,
        };
        let mut lines = Lines::new(name, input, LINE_BYTES_MAX);
        while let Some(line) = lines.next_text()? {
            let refused = |mismatch| lines.place.error(mismatch);
            if let Some(request) = log.request(&line).map_err(refused)? {
                let at = arrival(&request).map_err(refused)?;
                self.take(history, name, at, &request)?;
            }
        }
        Ok(())
    }

    /// Ends all runs.
    pub(super) fn finish(&mut self, history: &mut History) -> Result<(), HistoryError> {
        let mut open: Vec<_> = self.open.drain().collect();
        open.sort_by(|a, b| (a.1.first, &a.0).cmp(&(b.1.first, &b.0)));
        open.into_iter()
            .try_for_each(|(job, session)| session.finish(history, &job))
    }

    fn take(
        &mut self,
        history: &mut History,
        name: &str,
        at: Moment,
        request: &Request<'_>,
    ) -> Result<(), HistoryError> {
        history.saw(at);
        if self.latest.since_ms(end(at, request)) > self.options.gap_ms {
            history.pass(Passed::OutOfOrder);
        }
        self.latest = self.latest.max(at);
        let Some(job) = job(request, self.options.job_by) else {
            history.pass(Passed::NoJob);
            return Ok(());
        };
        self.sweep(history, name)?;
        self.add(history, name, at, job, request)
    }

    fn add(
        &mut self,
        history: &mut History,
        name: &str,
        at: Moment,
        job: String,
        request: &Request<'_>,
    ) -> Result<(), HistoryError> {
        if let Some(session) = self.open.get(&job) {
            let is_over = at.since_ms(session.last) > self.options.gap_ms
                || session.first.since_ms(end(at, request)) > self.options.gap_ms;
            let is_long = at.since_ms(session.first) > RUN_MS_MAX;
            if is_over || is_long {
                if !is_over {
                    history.pass(Passed::LongJob);
                }
                self.end(history, &job)?;
            }
        }
        let session = self.open.entry(job).or_insert_with_key(|job| Session {
            first: at,
            last: at,
            reads: HashMap::new(),
            writes: BTreeSet::new(),
            own_reads: 0,
            identity: text(request.identity.as_deref())
                .filter(|identity| job.ends_with(identity.as_str()) && is_lasting(identity)),
        });
        let known = session.paths();
        session.take(at, request);
        self.paths += session.paths() - known;
        if self.paths > PATHS_MAX {
            let limit = format!("{PATHS_MAX} paths in jobs that run at the same time");
            return Err(HistoryError::too_large(name, limit));
        }
        Ok(())
    }

    fn end(&mut self, history: &mut History, job: &str) -> Result<(), HistoryError> {
        match self.open.remove(job) {
            Some(session) => {
                assert!(self.paths >= session.paths(), "paths of open runs are counted");
                self.paths -= session.paths();
                session.finish(history, job)
            }
            None => Ok(()),
        }
    }

    /// Periodically ends the runs whose jobs have been silent for the gap.
    fn sweep(&mut self, history: &mut History, name: &str) -> Result<(), HistoryError> {
        self.since_sweep += 1;
        if self.since_sweep < SWEEP_EVERY && self.open.len() < OPEN_MAX {
            return Ok(());
        }
        self.since_sweep = 0;
        // Requests may be out of order by up to the gap.
        let reach_ms = self.options.gap_ms.saturating_mul(2);
        let is_over = |session: &Session| self.latest.since_ms(session.last) > reach_ms;
        let over = self.open.iter().filter(|(_, session)| is_over(session));
        let mut over: Vec<String> = over.map(|(job, _)| job.clone()).collect();
        over.sort();
        for job in over {
            self.end(history, &job)?;
        }
        if self.open.len() >= OPEN_MAX {
            return Err(HistoryError::too_large(
                name,
                format!("{OPEN_MAX} jobs at a time"),
            ));
        }
        Ok(())
    }
}

/// Returns the time at which a request arrived.
fn arrival(request: &Request<'_>) -> Result<Moment, Mismatch> {
    let found = || format!("the time {}", request.at);
    Moment::from_time(request.at).ok_or_else(|| Mismatch::new(found(), "a time from 1970 on"))
}

/// Returns the time at which the response ended.
fn end(at: Moment, request: &Request<'_>) -> Moment {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a conversion of a float saturates"
    )]
    let duration_ms = request.duration_ms.unwrap_or(0.0).clamp(0.0, RUN_MS_MAX as f64) as i64;
    at.plus_ms(duration_ms)
}

fn text(text: Option<&str>) -> Option<String> {
    let text = text.map(str::trim).filter(|text| !text.is_empty())?;
    Some(text.to_owned())
}

/// Returns the job of a request; `None` if it names none.
fn job(request: &Request<'_>, by: JobBy) -> Option<String> {
    let header = || text(request.job.as_deref());
    let identity = || text(request.identity.as_deref());
    let agent = || request.user_agent.as_deref().and_then(program);
    match by {
        JobBy::Header => header(),
        JobBy::Identity => identity(),
        JobBy::UserAgent => agent(),
        JobBy::Any => header().or_else(|| match (agent(), identity()) {
            (Some(agent), Some(identity)) => Some(format!("{agent} by {identity}")),
            (agent, identity) => agent.or(identity),
        }),
    }
}

impl Session {
    fn paths(&self) -> usize {
        self.reads.len() + self.writes.len()
    }

    fn take(&mut self, at: Moment, request: &Request<'_>) {
        self.first = self.first.min(at);
        self.last = self.last.max(end(at, request));
        let (Some(bucket), Some(key)) = (&request.bucket, &request.key) else {
            return;
        };
        let path = format!("s3://{bucket}/{key}");
        match request.kind {
            RequestKind::Read if self.writes.contains(&path) => self.own_reads += 1,
            RequestKind::Read => {
                let ranges = self.reads.entry(path).or_default();
                ranges.add(request.offset_bytes, request.bytes, request.object_bytes);
            }
            RequestKind::Write => drop(self.writes.insert(path)),
            _ => {}
        }
    }

    fn finish(self, history: &mut History, job: &str) -> Result<(), HistoryError> {
        // A job that only lists or sends HEADs has nothing to prefetch.
        if self.reads.is_empty() && self.writes.is_empty() {
            return Ok(());
        }
        history.identities.extend(self.identity);
        history.pass_times(Passed::OwnWrite, self.own_reads);
        let mut inputs: Vec<Input> = self
            .reads
            .into_iter()
            .map(|(path, ranges)| Input {
                path,
                bytes: Some(ranges.bytes()),
                bytes_per_s: None,
            })
            .collect();
        inputs.sort_by(|a, b| a.path.cmp(&b.path));
        let run = Run {
            name: job.to_owned(),
            submitted: self.first,
            started: Some(self.first),
            ended: Some(self.last),
            deadline: None,
            inputs,
            outputs: self.writes.into_iter().collect(),
        };
        history.add(job, &run)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use shoal_logs::node;

    use super::{JobBy, job};

    #[test]
    fn a_job_is_named_by_what_the_request_tells() {
        let line = r#"{"target": "shoal::access", "time": "1970-01-01T00:00:05Z", "user_agent": "etl/nightly, Hadoop 3.3.4, aws-sdk-java/1.12.262", "job": " dag-42 ", "caller": "AK"}"#;
        let mut request = node::request(line).unwrap().unwrap();
        assert_eq!(job(&request, JobBy::Header).as_deref(), Some("dag-42"));
        assert_eq!(job(&request, JobBy::Any).as_deref(), Some("dag-42"));
        assert_eq!(job(&request, JobBy::UserAgent).as_deref(), Some("etl_nightly"));
        assert_eq!(job(&request, JobBy::Identity).as_deref(), Some("AK"));
        request.job = Some(Cow::Borrowed(""));
        assert_eq!(job(&request, JobBy::Header), None);
        assert_eq!(job(&request, JobBy::Any).as_deref(), Some("etl_nightly by AK"));
    }
}
