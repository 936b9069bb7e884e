//! `shoal-lab generate`: a history of a month: hourly, daily, weekly and 15-minute jobs with jitter, misses,
//! dated paths and files whose names are new each time, and jobs that run once.

use std::error::Error;
use std::io::{self, BufWriter, Write};

use clap::{Args, ValueEnum};
use serde_json::json;
use shoal_history::Moment;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
const DAYS: i64 = 30;
/// 2026-10-05T00:00:00Z, a Monday.
const START_MS: i64 = 1_791_158_400_000;
/// Requests per run in an access log.
const REQUESTS_OF_A_RUN: usize = 10;

/// Write a generated history of a month
#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// Format of the lines
    kind: Kind,
    /// Approximate number of lines
    count: usize,
    /// Fraction of the runs whose name never recurs
    #[arg(default_value_t = 0.02)]
    share: f64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// Runs of jobs, in JSON
    Runs,
    /// Requests, as in the access log of a node
    Requests,
}

/// A job of the workload.
struct Job {
    name: String,
    period_ms: i64,
    phase_ms: i64,
    /// Its table, and the number of partitions that it reads.
    table: String,
    partitions: i64,
    bytes: u64,
}

struct Run {
    name: String,
    submitted_ms: i64,
    /// Objects and their sizes in bytes.
    inputs: Vec<(String, u64)>,
}

impl Generate {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        let share = self.share.clamp(0.0, 1.0);
        let mut out = BufWriter::new(io::stdout().lock());
        match self.kind {
            Kind::Runs => {
                let runs = workload(self.count, share);
                runs.iter().try_for_each(|run| write_run(&mut out, run))?;
            }
            Kind::Requests => write_requests(&mut out, &workload(self.count / REQUESTS_OF_A_RUN, share))?,
        }
        Ok(out.flush()?)
    }
}

/// Generates about `count` runs, ordered by submission, of which the fraction `ad_hoc` runs once.
fn workload(count: usize, ad_hoc: f64) -> Vec<Run> {
    let mut chance = Chance(1);
    let mut runs = Vec::with_capacity(count + count / 8);
    #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
    let once = (count as f64 * ad_hoc) as usize;
    let count = count - once;
    // Of 1,000 recurring runs, about 735 are hourly, 173 every 15 minutes, 91 daily, and 1 weekly.
    let hours = (DAYS * 24).cast_unsigned() as usize;
    let of = |share: usize, period_ms: i64, kind: &'static str| {
        let runs_each = (DAYS * DAY_MS / period_ms).cast_unsigned().max(1) as usize;
        (0..(count * share / 1_000 / runs_each).max(1)).map(move |number| Job {
            name: format!("{kind}_{}", word(number)),
            period_ms,
            phase_ms: period_ms / 24 * i64::from((number % 24) as u8),
            table: format!("{kind}/t{number}"),
            partitions: if period_ms > DAY_MS { 7 } else { 1 },
            bytes: 1 << (24 + number % 10),
        })
    };
    let jobs = of(735, HOUR_MS, "hourly")
        .chain(of(173, 15 * MINUTE_MS, "quarterly"))
        .chain(of(91, DAY_MS, "daily"))
        .chain(of(1, 7 * DAY_MS, "weekly"));
    for job in jobs {
        runs.extend((0..DAYS * DAY_MS / job.period_ms).filter_map(|cycle| job.run(cycle, &mut chance)));
    }
    for number in 0..once {
        let path = format!("s3://lake/scratch/{:x}/x", chance.next());
        let submitted_ms = chance.below(DAYS * DAY_MS);
        runs.push(Run {
            name: format!("ad hoc {}", word(number + hours)),
            submitted_ms,
            inputs: vec![(path, 1 << 28)],
        });
    }
    runs.sort_by_key(|run| run.submitted_ms);
    runs
}

impl Job {
    /// Returns the run of one period; one in twenty is missed.
    fn run(&self, cycle: i64, chance: &mut Chance) -> Option<Run> {
        let due_ms = cycle * self.period_ms + self.phase_ms;
        let submitted_ms = due_ms + chance.below(self.period_ms.min(HOUR_MS) / 20);
        let is_hourly = self.period_ms <= HOUR_MS;
        let grain_ms = if is_hourly { HOUR_MS } else { DAY_MS };
        let mut inputs = vec![(format!("s3://lake/dim/{}.csv", self.name), 1 << 20)];
        for back in 1..=self.partitions {
            let date =
                Moment::from_ms(START_MS + (due_ms.div_euclid(grain_ms) - back) * grain_ms).to_string();
            let hour = if is_hourly {
                format!("hour={}/", &date[11..13])
            } else {
                String::new()
            };
            let id = chance.next();
            for part in 0..4 {
                let name = format!("part-{part:05}-{id:016x}-c000.parquet");
                let path = format!("s3://lake/{}/dt={}/{hour}{name}", self.table, &date[..10]);
                inputs.push((path, self.bytes / 4 + chance.below(1 << 16).cast_unsigned()));
            }
        }
        (chance.below(20) > 0).then(|| Run {
            name: self.name.clone(),
            submitted_ms,
            inputs,
        })
    }
}

/// Returns a word without digits for each number, because digits in names could be dates.
fn word(mut number: usize) -> String {
    let mut word = String::new();
    for _ in 0..5 {
        word.push(char::from(b'a' + (number % 26) as u8));
        number /= 26;
    }
    word
}

fn write_run(out: &mut impl Write, run: &Run) -> io::Result<()> {
    let submitted = Moment::from_ms(START_MS + run.submitted_ms);
    let inputs: Vec<_> = run
        .inputs
        .iter()
        .map(|(path, bytes)| json!({"path": path, "bytes": bytes}))
        .collect();
    let line = json!({
        "name": run.name, "submitted": submitted, "ended": submitted.plus_ms(4 * MINUTE_MS), "inputs": inputs
    });
    writeln!(out, "{line}")
}

/// Writes the same runs as the access log of a node. All requests have S3A's prefix, those of some jobs
/// `x-shoal-job`.
fn write_requests(out: &mut impl Write, runs: &[Run]) -> io::Result<()> {
    let mut requests = Vec::with_capacity(runs.len() * REQUESTS_OF_A_RUN);
    for (number, run) in runs.iter().enumerate() {
        let times_ms = (run.submitted_ms..).step_by(5_000);
        requests.extend(
            times_ms
                .zip(0..REQUESTS_OF_A_RUN)
                .map(|(at_ms, request)| (at_ms, number, request)),
        );
    }
    requests.sort_unstable();
    for (at_ms, number, request) in requests {
        let run = &runs[number];
        let (path, bytes) = &run.inputs[request % run.inputs.len()];
        let key = path.strip_prefix("s3://lake/").unwrap_or(path);
        let by_header = run.name.len().is_multiple_of(2);
        let line = json!({
            "timestamp": Moment::from_ms(START_MS + at_ms), "level": "INFO",
            "time": Moment::from_ms(START_MS + at_ms), "request_id": format!("{number:016X}"),
            "peer": "10.0.0.1:4000", "caller": "AKETL", "operation": "get_object", "method": "GET",
            "bucket": "lake", "key": key, "status": 200, "bytes": bytes, "offset_bytes": 0, "object_bytes": bytes,
            "duration_ms": 12.5, "x_cache": "MISS", "local_bytes": 0, "peer_bytes": 0, "tier_bytes": 0,
            "lake_bytes": bytes, "job": by_header.then_some(&run.name),
            "user_agent": format!("{}, Hadoop 3.5.0 aws-sdk-java/2.35.4 md/io#sync", run.name),
            "target": "shoal::access"
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Pseudo-random numbers.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    fn below(&mut self, end: i64) -> i64 {
        (self.next() >> 1).cast_signed() % end.max(1)
    }
}
