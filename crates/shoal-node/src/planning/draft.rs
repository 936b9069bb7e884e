//! From a forecast to the planner's request: files with sizes, jobs with times, a link, a cache.
//!
//! The crates of forecasts and of plans do not know each other; here the values of one become those of the
//! other.

use std::collections::HashMap;
use std::time::Duration;

use shoal_history::forecast::{Extent, ForecastInput, ForecastJob};
use shoal_history::{Forecast, Moment};
use shoal_plan::Plan;
use shoal_plan::document::{Document, ExpectedFile, ExpectedJob, LeftOut, WhyLeftOut};
use shoal_plan::execution::Verdicts;
use shoal_plan::model::{Cache, File, Held, Job, Link, Objective, Options, Request, VERSION, Window};

/// A plan reaches so far beyond its window, or as far as the window is long. A later deadline counts as then.
const BEYOND_S: f64 = 86_400.0;
/// Slots that a plan has, if no length is asked for: the next length from [`SLOTS_S`] that gives no more.
const SLOTS: f64 = 400.0;
const SLOTS_S: [f64; 14] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0,
];
/// The longest slot: windows of months.
const SLOT_S_MAX: f64 = 21_600.0;

/// The link, the cache, the slots and the objective that a plan is made for.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The rate of the link to the lake.
    pub bytes_per_second: f64,
    /// The room for planned files, in the caches of all nodes together.
    pub capacity_bytes: u64,
    /// The size of the nodes' blocks.
    pub block_bytes: u64,
    /// The length of a slot; `None`: the shortest that a planner works through in seconds.
    pub slot: Option<Duration>,
    /// The objective.
    pub objective: Objective,
    /// Bytes that the cache holds at the start, by path.
    pub held: HashMap<String, u64>,
}

/// A document without its plan.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The time 0 s.
    epoch: Moment,
    files: Vec<ExpectedFile>,
    jobs: Vec<ExpectedJob>,
    /// Jobs that are forecast and not in the request.
    pub left_out: Vec<LeftOut>,
    /// The request.
    pub request: Request,
    /// Inputs whose size the history does not contain.
    pub sizeless: u64,
    /// Cached paths that no job reads.
    pub held_elsewhere: u64,
    /// The position of each file by its name.
    numbers: HashMap<String, usize>,
    /// How often each name of a run was given.
    names: HashMap<String, u32>,
    block_bytes: u64,
}

impl Draft {
    /// Drafts the request for the jobs of a forecast.
    pub fn new(forecast: &Forecast, terms: &Terms) -> Self {
        let epoch = forecast.window.from;
        let end_s = forecast.window.to.since_ms(epoch) as f64 / 1e3;
        let mut draft = Self {
            epoch,
            files: Vec::new(),
            jobs: Vec::new(),
            left_out: Vec::new(),
            request: Request {
                version: VERSION,
                window: Window {
                    start_s: 0.0,
                    end_s,
                    slot_s: 0.0,
                },
                link: Link {
                    bytes_per_second: terms.bytes_per_second,
                    changes: Vec::new(),
                    promised: Vec::new(),
                },
                cache: Cache {
                    capacity_bytes: terms.capacity_bytes,
                    bytes_per_second: None,
                    held: Vec::new(),
                },
                files: Vec::new(),
                jobs: Vec::new(),
                options: Options {
                    objective: terms.objective,
                    ..Options::default()
                },
            },
            sizeless: 0,
            held_elsewhere: 0,
            numbers: HashMap::new(),
            names: HashMap::new(),
            block_bytes: terms.block_bytes,
        };
        for job in &forecast.jobs {
            draft.add(job, end_s + end_s.max(BEYOND_S));
        }
        let deadlines = draft.request.jobs.iter().map(|job| job.deadline_s);
        let last_s = deadlines.fold(end_s, f64::max);
        draft.request.window.slot_s = terms
            .slot
            .map_or_else(|| slot_s(last_s), |slot| slot.as_secs_f64());
        draft.hold(&terms.held);
        draft
    }

    /// Goes on with the jobs of the plan in force that have begun and have no final status: they keep their
    /// inputs and deadlines. Those to come are forecast again.
    pub fn go_on_with(&mut self, document: &Document, verdicts: &Verdicts) {
        let later_s = (document.epoch_ms as f64 - self.epoch.ms() as f64) / 1e3;
        let jobs = document.request.jobs.iter().zip(&document.jobs);
        let open = jobs.zip(verdicts.by_job(document.request.jobs.len()));
        let running = open.filter(|((job, _), verdict)| {
            let [submit_s, deadline_s] = [job.submit_s, job.deadline_s].map(|at_s| at_s + later_s);
            verdict.is_none() && submit_s < 0.0 && deadline_s > 1.0
        });
        for ((job, expected), _) in running {
            if self.names.insert(job.name.clone(), 1).is_some() {
                continue;
            }
            for name in &job.inputs {
                self.take_file(document, name);
            }
            self.request.jobs.push(Job {
                submit_s: 0.0,
                deadline_s: job.deadline_s + later_s,
                ..job.clone()
            });
            self.jobs.push(ExpectedJob {
                early_s: expected.early_s + later_s,
                late_s: expected.late_s + later_s,
                ..expected.clone()
            });
        }
        let slot_s = slot_s(self.request.ends_s());
        self.request.window.slot_s = self.request.window.slot_s.max(slot_s);
    }

    /// Takes a file of another document, unless a job of this one reads it.
    fn take_file(&mut self, document: &Document, name: &str) {
        let mut files = document.request.files.iter().zip(&document.files);
        let found = files.find(|(file, _)| file.name == name);
        if let Some((file, expected)) = found.filter(|_| !self.numbers.contains_key(name)) {
            self.numbers.insert(name.to_owned(), self.request.files.len());
            self.request.files.push(File {
                available_s: None,
                ..file.clone()
            });
            self.files.push(expected.clone());
        }
    }

    /// Returns what is expected of each file of the request, in its order.
    pub fn files(&self) -> &[ExpectedFile] {
        &self.files
    }

    /// Lists the cached bytes of each file, in their order.
    pub fn hold_files(&mut self, bytes_of: &[u64]) {
        let files = self.request.files.iter().zip(bytes_of);
        let held = files.filter(|(_, bytes)| **bytes > 0).map(|(file, bytes)| Held {
            file: file.name.clone(),
            bytes: (*bytes).min(file.bytes),
            pinned_until_s: None,
        });
        self.request.cache.held = held.collect();
    }

    /// Returns the document with the plan for the request.
    pub fn with(self, plan: Plan) -> Document {
        assert_eq!(
            self.files.len(),
            self.request.files.len(),
            "each file has what is expected of it"
        );
        assert_eq!(
            self.jobs.len(),
            self.request.jobs.len(),
            "each job has what is expected of it"
        );
        Document {
            version: VERSION,
            epoch_ms: self.epoch.ms().unsigned_abs(),
            files: self.files,
            jobs: self.jobs,
            left_out: self.left_out,
            request: self.request,
            plan,
        }
    }

    fn add(&mut self, job: &ForecastJob, last_s: f64) {
        let name = self.name(job);
        let submit_s = self.seconds(job.submission.at);
        let (known, sizeless): (Vec<_>, Vec<_>) =
            job.inputs.iter().partition(|input| input.bytes.typical > 0);
        self.sizeless += sizeless.len() as u64;
        if known.is_empty() {
            self.left_out.push(LeftOut {
                job: name,
                submit_s,
                why: WhyLeftOut::NothingToRead,
            });
            return;
        }
        let deadline_s = self.seconds(job.deadline).min(last_s);
        let bytes: f64 = known.iter().map(|input| input.bytes.typical as f64).sum();
        let inputs: Vec<String> = known
            .iter()
            .map(|input| self.file(input, &name, submit_s))
            .collect();
        self.request.jobs.push(Job {
            name,
            submit_s,
            deadline_s,
            inputs,
            bytes_per_second_max: rate(&known, bytes / (deadline_s - submit_s)),
        });
        self.jobs.push(ExpectedJob {
            name: job.name.clone(),
            early_s: self.seconds(job.submission.early),
            late_s: self.seconds(job.submission.late),
            probability: job.probability,
            deadline_rule: job.deadline_rule,
        });
    }

    fn seconds(&self, moment: Moment) -> f64 {
        moment.since_ms(self.epoch) as f64 / 1e3
    }

    /// Returns a name of its own for each run: the job's, and its submission to the second.
    fn name(&mut self, job: &ForecastJob) -> String {
        let second = Moment::from_ms(job.submission.at.ms().div_euclid(1_000) * 1_000);
        let name = format!("{}@{second}", job.name);
        let count = self.names.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 {
            return name;
        }
        format!("{name}#{count}")
    }

    /// Returns the name of the file that an input is, which the first job that reads it makes.
    fn file(&mut self, input: &ForecastInput, job: &str, submit_s: f64) -> String {
        // It is not known which objects, so nothing can be fetched ahead, and no job shares it.
        let (name, whole_s) = if input.extent == Extent::PartOfPrefix {
            (format!("{} for {job}", input.path), Some(submit_s))
        } else {
            let whole_s = input.whole_at.map(|whole_at| self.seconds(whole_at));
            (input.path.clone(), whole_s)
        };
        // A run that comes before the end of the time that a path names reads the objects that exist then.
        let available_s = whole_s.map(|whole_s| whole_s.min(submit_s)).filter(|s| *s > 0.0);
        let files = &mut self.request.files;
        if let Some(&number) = self.numbers.get(&name) {
            let (file, expected) = (&mut files[number], &mut self.files[number]);
            file.bytes = file.bytes.max(input.bytes.typical);
            expected.bytes_low = expected.bytes_low.min(input.bytes.low);
            expected.bytes_high = expected.bytes_high.max(input.bytes.high);
            expected.objects = expected.objects.max(input.objects);
            // Without a time it is there from the start.
            file.available_s = file.available_s.zip(available_s).map(|(a, b)| a.min(b));
            return name;
        }
        self.numbers.insert(name.clone(), files.len());
        files.push(File {
            name: name.clone(),
            bytes: input.bytes.typical,
            available_s,
            block_bytes: self.block_bytes,
        });
        self.files.push(ExpectedFile {
            path: input.path.clone(),
            extent: input.extent,
            bytes_low: input.bytes.low,
            bytes_high: input.bytes.high,
            objects: input.objects,
        });
        name
    }

    /// Lists the cached bytes of each file, at most the file's size, and counts the paths that are in no
    /// file.
    fn hold(&mut self, held: &HashMap<String, u64>) {
        let mut bytes_of = vec![0_u64; self.files.len()];
        for (path, bytes) in held {
            match self.file_with(path) {
                Some(number) => bytes_of[number] = bytes_of[number].saturating_add(*bytes),
                None => self.held_elsewhere += 1,
            }
        }
        self.hold_files(&bytes_of);
    }

    /// Returns the file that a path names, with or without a slash at its end, or that it is below.
    fn file_with(&self, path: &str) -> Option<usize> {
        let below = path.rmatch_indices('/').map(|(slash, _)| &path[..=slash]);
        let with_slash = format!("{path}/");
        let mut names = [path, &with_slash].into_iter().chain(below);
        names.find_map(|name| self.numbers.get(name).copied())
    }
}

/// Returns the shortest length of slots that gives no more of them than a planner works through in seconds.
fn slot_s(last_s: f64) -> f64 {
    let mut lengths = SLOTS_S.into_iter();
    lengths
        .find(|slot_s| last_s / slot_s <= SLOTS)
        .unwrap_or(SLOT_S_MAX)
}

/// Returns the rate that runs of a job reached, if it is enough for its deadline. They reached it over the
/// link as it was, so that a deadline that needs more is no contradiction.
fn rate(inputs: &[&ForecastInput], needed: f64) -> Option<f64> {
    let rates: Option<Vec<f64>> = inputs
        .iter()
        .map(|input| input.bytes_per_s.map(|rate| rate.high as f64))
        .collect();
    let rate: f64 = rates?.into_iter().sum();
    (rate > needed * (1.0 + 1e-6)).then_some(rate)
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these times are whole seconds")]
mod tests {
    use shoal_history::forecast::{Extent, ForecastInput, ForecastJob, Submission};
    use shoal_history::{Forecast, Moment, Spread, Window};
    use shoal_plan::document::WhyLeftOut;
    use shoal_plan::model::Objective;

    use shoal_plan::Plan;
    use shoal_plan::execution::Verdicts;

    use super::{Draft, Terms, slot_s};

    const START: i64 = 1_795_132_800_000;
    const HOUR_MS: i64 = 3_600_000;

    fn spread(typical: u64) -> Spread {
        Spread {
            low: typical / 2,
            typical,
            high: typical * 2,
        }
    }

    fn input(path: &str, extent: Extent, bytes: u64, whole_at_ms: Option<i64>) -> ForecastInput {
        ForecastInput {
            path: path.to_owned(),
            extent,
            bytes: spread(bytes),
            objects: Some(4),
            bytes_per_s: Some(spread(1_000)),
            probability: 1.0,
            whole_at: whole_at_ms.map(|ms| Moment::from_ms(START + ms)),
        }
    }

    fn job(name: &str, at_ms: i64, inputs: Vec<ForecastInput>) -> ForecastJob {
        let at = Moment::from_ms(START + at_ms);
        ForecastJob {
            name: name.to_owned(),
            template: 0,
            submission: Submission {
                at,
                early: at.plus_ms(-60_000),
                late: at.plus_ms(60_000),
            },
            probability: 0.9,
            duration_ms: None,
            deadline: at.plus_ms(HOUR_MS),
            deadline_rule: shoal_history::forecast::DeadlineRule::Unknown,
            inputs,
        }
    }

    #[test]
    fn jobs_of_the_plan_in_force_that_have_begun_stay_until_their_deadlines() {
        let inputs = |path: &str| vec![input(path, Extent::Prefix, 1_000, None)];
        // Four jobs: over, begun and judged, begun, to come.
        let jobs = [("a", 0), ("b", HOUR_MS), ("c", HOUR_MS), ("d", 3 * HOUR_MS)];
        let jobs = jobs.map(|(name, at_ms)| job(name, at_ms, inputs(&format!("s3://lake/{name}/"))));
        let former = draft(jobs.to_vec(), &[]);
        let plan = Plan::empty(&former.request);
        let document = former.with(plan);
        let verdicts = Verdicts {
            met: vec![(1, 1)],
            ..Verdicts::default()
        };
        // An hour and a half later.
        let to_come = vec![job("d", 3 * HOUR_MS, inputs("s3://lake/d/"))];
        let mut next = draft_from(HOUR_MS * 3 / 2, to_come, &[]);
        next.go_on_with(&document, &verdicts);
        let times = next.request.jobs.iter();
        let times: Vec<_> = times
            .map(|job| (&job.name[..1], job.submit_s, job.deadline_s))
            .collect();
        assert_eq!(times, [("d", 5_400.0, 9_000.0), ("c", 0.0, 1_800.0)]);
        assert_eq!(next.jobs[1].early_s, -1_860.0);
        let names: Vec<_> = next.files().iter().map(|file| &*file.path).collect();
        assert_eq!(names, ["s3://lake/d/", "s3://lake/c/"]);
        next.hold_files(&[0, 5_000]);
        assert_eq!(
            (next.request.cache.held.len(), next.request.cache.held[0].bytes),
            (1, 1_000)
        );
        next.request.check().unwrap();
    }

    fn draft(jobs: Vec<ForecastJob>, held: &[(&str, u64)]) -> Draft {
        draft_from(0, jobs, held)
    }

    fn draft_from(from_ms: i64, jobs: Vec<ForecastJob>, held: &[(&str, u64)]) -> Draft {
        let window = Window::after(Moment::from_ms(START + from_ms), 6 * HOUR_MS);
        let forecast = Forecast {
            window,
            complete_until: window.to,
            jobs,
        };
        let terms = Terms {
            bytes_per_second: 1e9,
            capacity_bytes: 1 << 40,
            block_bytes: 1 << 20,
            slot: None,
            objective: Objective::LeastPeak,
            held: held
                .iter()
                .map(|(path, bytes)| ((*path).to_owned(), *bytes))
                .collect(),
        };
        Draft::new(&forecast, &terms)
    }

    #[test]
    fn what_is_cached_below_a_file_is_of_the_file() {
        let table = |path: &str| input(path, Extent::Prefix, 1_000, None);
        let inputs = vec![
            table("s3://lake/t/"),
            table("s3://lake/t/dt=2026-11-20/"),
            table("s3://lake/u/"),
        ];
        let draft = draft(
            vec![job("etl", HOUR_MS, inputs)],
            &[
                ("s3://lake/t/part-0", 3),
                ("s3://lake/t/x/part-1", 4),
                ("s3://lake/t/dt=2026-11-20/part-2", 5),
                ("s3://lake/u", 6),
                ("s3://lake/uv/part-3", 7),
                ("s3://lake/part-4", 8),
            ],
        );
        let held = draft.request.cache.held.iter();
        let mut held: Vec<_> = held.map(|held| (held.file.as_str(), held.bytes)).collect();
        held.sort_unstable();
        let expected = [
            ("s3://lake/t/", 7),
            ("s3://lake/t/dt=2026-11-20/", 5),
            ("s3://lake/u/", 6),
        ];
        assert_eq!((held.as_slice(), draft.held_elsewhere), (&expected[..], 2));
    }

    #[test]
    fn jobs_share_files_and_have_names_of_their_own() {
        let table = |bytes| input("s3://lake/t/", Extent::Prefix, bytes, None);
        let draft = draft(
            vec![
                job("etl", HOUR_MS, vec![table(1_000)]),
                job("etl", HOUR_MS + 5, vec![table(3_000)]),
                job("etl", 2 * HOUR_MS, vec![table(2_000)]),
            ],
            &[("s3://lake/t/", 9_000), ("s3://lake/other/", 5)],
        );
        let names: Vec<&str> = draft.request.jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "etl@2026-11-20T01:00:00Z",
                "etl@2026-11-20T01:00:00Z#2",
                "etl@2026-11-20T02:00:00Z"
            ]
        );
        assert_eq!(
            (draft.request.files.len(), draft.request.files[0].bytes),
            (1, 3_000)
        );
        assert_eq!(
            (draft.files[0].bytes_low, draft.files[0].bytes_high),
            (500, 6_000)
        );
        // The cache holds no more of it than it has.
        assert_eq!(draft.request.cache.held[0].bytes, 3_000);
        assert_eq!(draft.request.cache.held.len(), 1);
        assert_eq!(draft.request.jobs[2].submit_s, 7_200.0);
        assert_eq!(draft.request.check(), Ok(()));
    }

    #[test]
    fn a_dated_path_is_fetched_after_its_time_and_never_later_than_its_first_reader_comes() {
        let dated = |hour: i64| {
            let path = format!("s3://lake/hour={hour}/");
            input(&path, Extent::Prefix, 1_000, Some((hour + 1) * HOUR_MS))
        };
        let draft = draft(
            vec![
                job("reader", 3 * HOUR_MS, vec![dated(-24), dated(1), dated(3)]),
                job("late", 5 * HOUR_MS, vec![dated(3)]),
            ],
            &[],
        );
        let available: Vec<_> = draft.request.files.iter().map(|file| file.available_s).collect();
        assert_eq!(available, [None, Some(7_200.0), Some(10_800.0)]);
    }

    #[test]
    fn unknown_objects_of_a_prefix_are_never_fetched_ahead_nor_shared() {
        let some = || vec![input("s3://lake/t/", Extent::PartOfPrefix, 1_000, None)];
        let draft = draft(vec![job("a", HOUR_MS, some()), job("b", HOUR_MS, some())], &[]);
        assert_eq!(draft.request.files.len(), 2);
        assert_eq!(
            draft.request.files[0].name,
            "s3://lake/t/ for a@2026-11-20T01:00:00Z"
        );
        assert_eq!(draft.files[0].path, "s3://lake/t/");
        assert!(
            draft
                .request
                .files
                .iter()
                .all(|file| file.available_s == Some(3_600.0))
        );
    }

    #[test]
    fn a_job_without_known_sizes_is_left_out_and_said_so() {
        let empty = || input("s3://lake/new/", Extent::Prefix, 0, None);
        let draft = draft(
            vec![
                job("a", HOUR_MS, vec![empty()]),
                job(
                    "b",
                    HOUR_MS,
                    vec![empty(), input("s3://lake/x", Extent::Object, 5, None)],
                ),
                job("c", HOUR_MS, Vec::new()),
            ],
            &[],
        );
        assert_eq!((draft.request.jobs.len(), draft.sizeless), (1, 2));
        let left_out: Vec<(&str, WhyLeftOut)> = draft
            .left_out
            .iter()
            .map(|left| (left.job.as_str(), left.why))
            .collect();
        let why = WhyLeftOut::NothingToRead;
        assert_eq!(
            left_out,
            [("a@2026-11-20T01:00:00Z", why), ("c@2026-11-20T01:00:00Z", why)]
        );
    }

    #[test]
    fn a_rate_that_contradicts_the_deadline_is_left_out() {
        let of = |bytes| {
            let inputs = vec![input("s3://lake/x", Extent::Object, bytes, None)];
            draft(vec![job("a", HOUR_MS, inputs)], &[]).request.jobs[0].bytes_per_second_max
        };
        assert_eq!(of(2_000 * 3_599), Some(2_000.0));
        assert_eq!(of(2_000 * 3_601), None);
    }

    #[test]
    fn a_deadline_far_away_counts_as_a_day_after_the_window() {
        let mut late = job("a", HOUR_MS, vec![input("s3://lake/x", Extent::Object, 5, None)]);
        late.deadline = late.submission.at.plus_ms(90 * 24 * HOUR_MS);
        let draft = draft(vec![late], &[]);
        assert_eq!(draft.request.jobs[0].deadline_s, 30.0 * 3_600.0);
    }

    #[test]
    fn slots_are_as_short_as_their_number_allows() {
        assert_eq!(
            [300.0, 3_600.0, 86_400.0, 30.0 * 86_400.0, 300.0 * 86_400.0].map(slot_s),
            [1.0, 10.0, 300.0, 7_200.0, 21_600.0]
        );
    }
}
