//! The fluid itself: the rate of each flow until the next event.

use std::collections::HashMap;

use shoal_plan::model::Request;
use shoal_plan::plan::Plan;
use shoal_plan::planner::replan::replan;

use super::ahead::ahead;
use super::flows::{Fetch, Running, Stream, UNBOUNDED, is_left};
use super::planned::{Planned, PlannedFetch, Step};
use super::reactive::{Order, Reactive};
use super::replanning::{Known, RunningJob, deviates, request as known_request};
use super::share::max_min;
use super::{PEAK_INTERVAL_S, Policy, Replanning, Report, Scenario};

#[derive(Clone, Debug)]
enum Store {
    None,
    Reactive(Reactive),
    Planned(Box<Planned>),
}

/// The state of a run.
pub(super) struct Fluid<'a> {
    scenario: &'a Scenario<'a>,
    request: &'a Request,
    files: HashMap<&'a str, usize>,
    now_s: f64,
    store: Store,
    running: Vec<Running>,
    fetching: Vec<Fetch>,
    /// Jobs in the order of their submission, fetches and steps of a plan. `next` has the position of the
    /// next one of each.
    arrivals: Vec<usize>,
    fetches: Vec<PlannedFetch>,
    steps: Vec<Step>,
    next: [usize; 4],
    /// The plan that is carried out, and when the next one is made.
    replanned: Option<(Replanning<'a>, Plan, f64)>,
    has_arrived: Vec<bool>,
    report: Report,
}

/// Positions in [`Fluid::next`].
const ARRIVAL: usize = 0;
const FETCH: usize = 1;
const STEP: usize = 2;
const CHANGE: usize = 3;

impl<'a> Fluid<'a> {
    pub(super) fn new(scenario: &'a Scenario<'a>) -> Self {
        let request = scenario.request;
        let capacity_bytes = request.cache.capacity_bytes as f64;
        let mut arrivals: Vec<usize> = (0..request.jobs.len()).collect();
        arrivals.sort_by(|&a, &b| {
            request.jobs[a]
                .submit_s
                .total_cmp(&request.jobs[b].submit_s)
                .then(a.cmp(&b))
        });
        let (mut fetches, mut steps) = (Vec::new(), Vec::new());
        let files = request
            .files
            .iter()
            .enumerate()
            .map(|(number, file)| (file.name.as_str(), number))
            .collect();
        let store = match scenario.policy {
            Policy::RemoteRead => Store::None,
            Policy::Lru => Store::Reactive(Reactive::new(Order::Lru, capacity_bytes)),
            Policy::Life => Store::Reactive(Reactive::new(Order::Life, capacity_bytes)),
            Policy::FixedTimePrefetch { ahead_s, forecast } => {
                fetches = ahead(request, forecast, ahead_s, &files, scenario.ad_hoc);
                Store::Reactive(Reactive::new(Order::Life, capacity_bytes))
            }
            Policy::Plan { plan, .. } => {
                let (planned, planned_fetches, planned_steps) = Planned::new(request, plan);
                (fetches, steps) = (planned_fetches, planned_steps);
                Store::Planned(Box::new(planned))
            }
        };
        Self {
            scenario,
            request,
            files,
            now_s: request.window.start_s,
            store,
            running: Vec::new(),
            fetching: Vec::new(),
            arrivals,
            fetches,
            steps,
            next: [0; 4],
            replanned: match scenario.policy {
                Policy::Plan {
                    plan,
                    replanning: Some(replanning),
                    ..
                } => Some((
                    replanning,
                    plan.clone(),
                    request.window.start_s + replanning.every_s,
                )),
                _ => None,
            },
            has_arrived: vec![false; request.jobs.len()],
            report: Report {
                ends_s: vec![f64::INFINITY; request.jobs.len()],
                link_bytes: 0.0,
                fetched_bytes: 0.0,
                rates: Vec::new(),
            },
        }
    }

    pub(super) fn run(mut self) -> Report {
        loop {
            self.happen();
            if self.running.is_empty() && self.next[ARRIVAL] == self.arrivals.len() {
                return self.report;
            }
            self.share();
            let until_s = self.until_s();
            if until_s.is_infinite() {
                // The link is closed for ever.
                return self.report;
            }
            self.flow(until_s);
        }
    }

    /// Processes everything due: steps of the cache, fetches, then jobs.
    fn happen(&mut self) {
        let now_s = self.now_s + 1e-9;
        if self.replanned.as_ref().is_some_and(|(_, _, at_s)| *at_s <= now_s) {
            self.replan();
        }
        while self
            .steps
            .get(self.next[STEP])
            .is_some_and(|step| step.at_s <= now_s)
        {
            let step = self.steps[self.next[STEP]];
            self.next[STEP] += 1;
            if let Store::Planned(planned) = &mut self.store {
                planned.step(step);
            }
        }
        if let Store::Planned(planned) = &mut self.store {
            planned.make_room();
        }
        while self
            .fetches
            .get(self.next[FETCH])
            .is_some_and(|fetch| fetch.start_s <= now_s)
        {
            let fetch = self.fetches[self.next[FETCH]];
            self.next[FETCH] += 1;
            self.begin_fetch(fetch);
        }
        while self
            .arrivals
            .get(self.next[ARRIVAL])
            .is_some_and(|&job| self.request.jobs[job].submit_s <= now_s)
        {
            let job = self.arrivals[self.next[ARRIVAL]];
            self.next[ARRIVAL] += 1;
            self.has_arrived[job] = true;
            self.start(job);
        }
        while self
            .request
            .link
            .changes
            .get(self.next[CHANGE])
            .is_some_and(|change| change.at_s <= now_s)
        {
            self.next[CHANGE] += 1;
        }
    }

    /// Makes a new plan, and follows it from now on.
    fn replan(&mut self) {
        let (Some((replanning, former, at_s)), Store::Planned(planned)) =
            (&mut self.replanned, &mut self.store)
        else {
            return;
        };
        let cached: Vec<Vec<usize>> = self
            .running
            .iter()
            .map(|running| {
                running
                    .streams
                    .iter()
                    .filter(|stream| !stream.is_remote)
                    .map(|stream| stream.file)
                    .collect()
            })
            .collect();
        let running: Vec<RunningJob<'_>> = self
            .running
            .iter()
            .zip(&cached)
            .filter(|(running, _)| !running.is_ad_hoc)
            .map(|(running, cached_files)| RunningJob {
                deadline_s: self.request.jobs[running.job].deadline_s,
                remote_left: running
                    .streams
                    .iter()
                    .filter(|stream| stream.is_remote)
                    .map(|stream| stream.left)
                    .sum(),
                cached_files,
            })
            .collect();
        let contents = planned.contents();
        let link_bytes_per_second = match self.next[CHANGE] {
            0 => self.request.link.bytes_per_second,
            changes => self.request.link.changes[changes - 1].bytes_per_second,
        };
        let known = Known {
            now_s: self.now_s,
            actual: self.request,
            has_arrived: &self.has_arrived,
            running: &running,
            contents: &contents,
            link_bytes_per_second,
            page_bytes: planned.page_bytes(),
        };
        let since_s = *at_s - replanning.every_s;
        *at_s += replanning.every_s;
        if !deviates(replanning, &known, since_s) {
            return;
        }
        // If no plan can be made, the former one stays.
        if let Ok(plan) = replan(&known_request(replanning, &known), former) {
            let (mut next, fetches, mut steps) = Planned::new(self.request, &plan);
            next.take_over(planned);
            // Pages of the previous plan keep their planned ends.
            let former_steps = self.steps[self.next[STEP].min(self.steps.len())..].iter();
            steps.extend(former_steps.filter(|step| step.is_page).copied());
            steps.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
            **planned = next;
            (self.fetches, self.steps) = (fetches, steps);
            self.fetching.clear();
            (self.next[FETCH], self.next[STEP]) = (0, 0);
            *former = plan;
        }
    }

    fn begin_fetch(&mut self, fetch: PlannedFetch) {
        let may = match &mut self.store {
            Store::Reactive(cache) => {
                !cache.knows(fetch.file)
                    && cache.admit(fetch.file, self.request.files[fetch.file].bytes as f64, true)
            }
            _ => true,
        };
        if may && fetch.bytes > 0.0 {
            let PlannedFetch {
                file,
                bytes,
                bytes_per_second,
                ..
            } = fetch;
            self.fetching.push(Fetch {
                file,
                left: bytes,
                bytes,
                rate_max: bytes_per_second,
                rate: 0.0,
            });
        }
    }

    fn start(&mut self, job: usize) {
        let described = &self.request.jobs[job];
        let is_ad_hoc = self.scenario.ad_hoc.get(job) == Some(&true);
        let mut streams = Vec::new();
        for name in &described.inputs {
            let file = self.files[name.as_str()];
            let size = self.request.files[file].bytes as f64;
            let (cached, fills) = if is_ad_hoc {
                (0.0, false)
            } else {
                self.open(file, size)
            };
            let stream = |is_remote, bytes| Stream {
                file,
                is_remote,
                bytes,
                left: bytes,
                rate: 0.0,
                fills,
            };
            streams.extend(
                [stream(false, cached), stream(true, size - cached)]
                    .into_iter()
                    .filter(|s| s.bytes > 0.0),
            );
        }
        let promised = match &self.store {
            Store::Planned(planned) => planned.rate(job),
            _ => 0.0,
        };
        let rate_max = described.bytes_per_second_max.unwrap_or(UNBOUNDED);
        let is_metered = matches!(self.scenario.policy, Policy::Plan { is_metered: true, .. });
        let is_planned = matches!(&self.store, Store::Planned(planned) if planned.plans(job));
        let planned_to_s = is_planned.then_some(described.deadline_s);
        self.running.push(Running {
            job,
            rate_max,
            promised,
            planned_to_s,
            is_metered,
            is_ad_hoc,
            streams,
        });
    }

    /// The bytes that a starting job finds in the cache, and whether it fills the cache with the rest.
    fn open(&mut self, file: usize, size: f64) -> (f64, bool) {
        match &mut self.store {
            Store::None => (0.0, false),
            Store::Planned(planned) => (planned.readable(file), true),
            Store::Reactive(cache) => {
                let knows = cache.knows(file);
                let cached = cache.open(file);
                if let Some(position) = self.fetching.iter().position(|fetch| fetch.file == file) {
                    // The job brings the rest itself.
                    self.fetching.swap_remove(position);
                    cache.release(file);
                    return (cached, true);
                }
                let fills = if knows {
                    cached > 0.0 && cached < size
                } else {
                    cache.admit(file, size, false)
                };
                (cached, fills)
            }
        }
    }

    /// Sets the rate of everything that flows.
    fn share(&mut self) {
        let link = match self.next[CHANGE] {
            0 => self.request.link.bytes_per_second,
            changes => self.request.link.changes[changes - 1].bytes_per_second,
        };
        let promised: f64 = self
            .request
            .link
            .promised
            .iter()
            .filter(|promise| promise.start_s <= self.now_s + 1e-9 && self.now_s + 1e-9 < promise.end_s)
            .map(|promise| promise.bytes_per_second)
            .sum();
        let link = (link - promised).max(0.0);
        let cache_rate = self.request.cache.bytes_per_second.unwrap_or(UNBOUNDED);
        let now_s = self.now_s;
        let wants: Vec<f64> = self
            .running
            .iter_mut()
            .map(|running| running.wants(now_s, cache_rate))
            .collect();
        let is_planned = matches!(self.store, Store::Planned(_));
        let firsts: Vec<f64> = self
            .running
            .iter()
            .zip(&wants)
            .map(|(running, want)| want.min(running.first(now_s)))
            .collect();
        let fetch_wants: Vec<f64> = self.fetching.iter().map(|fetch| fetch.rate_max).collect();
        let mut got = max_min(&firsts, link);
        let mut left = link - got.iter().sum::<f64>();
        let seconds = self.seconds_to_share(&wants, &got);
        let fetched = if is_planned {
            let fetched = max_min(&fetch_wants, left);
            left -= fetched.iter().sum::<f64>();
            let more = max_min(&seconds, left);
            got.iter_mut().zip(&more).for_each(|(got, more)| *got += more);
            left -= more.iter().sum::<f64>();
            fetched
        } else {
            let both: Vec<f64> = seconds.iter().chain(&fetch_wants).copied().collect();
            let shares = max_min(&both, left);
            left -= shares.iter().sum::<f64>();
            let (more, fetched) = shares.split_at(seconds.len());
            got.iter_mut().zip(more).for_each(|(got, more)| *got += more);
            fetched.to_vec()
        };
        // Ad hoc jobs share the rest.
        let last: Vec<f64> = self
            .running
            .iter()
            .zip(&wants)
            .map(|(running, want)| if running.is_ad_hoc { *want } else { 0.0 })
            .collect();
        let last = max_min(&last, left);
        for ((running, got), (want, last)) in self.running.iter_mut().zip(&got).zip(wants.iter().zip(&last)) {
            running.give(if *want > 0.0 { (got + last) / want } else { 0.0 });
        }
        self.fetching
            .iter_mut()
            .zip(&fetched)
            .for_each(|(fetch, rate)| fetch.rate = *rate);
    }

    /// The rates that jobs want beyond those that they have got: zero for ad hoc ones, which come last.
    fn seconds_to_share(&self, wants: &[f64], got: &[f64]) -> Vec<f64> {
        let more = self.running.iter().zip(wants.iter().zip(got));
        more.map(|(running, (want, got))| if running.is_ad_hoc { 0.0 } else { want - got })
            .collect()
    }

    /// The time of the next event.
    fn until_s(&self) -> f64 {
        let link = &self.request.link;
        let coming = [
            self.arrivals
                .get(self.next[ARRIVAL])
                .map(|&job| self.request.jobs[job].submit_s),
            self.fetches.get(self.next[FETCH]).map(|fetch| fetch.start_s),
            self.steps.get(self.next[STEP]).map(|step| step.at_s),
            self.replanned.as_ref().map(|(_, _, at_s)| *at_s),
            link.changes.get(self.next[CHANGE]).map(|change| change.at_s),
        ];
        let promises = link
            .promised
            .iter()
            .flat_map(|promise| [promise.start_s, promise.end_s]);
        let coming = coming
            .into_iter()
            .flatten()
            .chain(promises.filter(|at_s| *at_s > self.now_s + 1e-9));
        let streams = self
            .running
            .iter()
            .flat_map(|running| &running.streams)
            .map(|stream| (stream.left, stream.rate));
        let fetches = self.fetching.iter().map(|fetch| (fetch.left, fetch.rate));
        let ends = streams
            .chain(fetches)
            .filter(|(_, rate)| *rate > 0.0)
            .map(|(left, rate)| self.now_s + left / rate);
        coming.chain(ends).fold(f64::INFINITY, f64::min)
    }

    /// Lets everything flow until then.
    fn flow(&mut self, until_s: f64) {
        let seconds = until_s - self.now_s;
        let mut link_rate = 0.0;
        for fetch in &mut self.fetching {
            let bytes = (fetch.rate * seconds).min(fetch.left);
            fetch.left -= bytes;
            link_rate += fetch.rate;
            self.report.fetched_bytes += bytes;
            match &mut self.store {
                Store::Reactive(cache) => cache.fetched(fetch.file, bytes),
                Store::Planned(planned) => planned.fetched(fetch.file, bytes),
                Store::None => {}
            }
        }
        for running in &mut self.running {
            for stream in &mut running.streams {
                stream.left -= (stream.rate * seconds).min(stream.left);
                link_rate += if stream.is_remote { stream.rate } else { 0.0 };
            }
        }
        self.count(until_s, link_rate);
        self.now_s = until_s;
        self.end();
    }

    /// Adds a rate that lasts until then to the intervals of the report.
    fn count(&mut self, until_s: f64, rate: f64) {
        self.report.link_bytes += rate * (until_s - self.now_s);
        let start_s = self.request.window.start_s;
        let mut from_s = self.now_s;
        while rate > 0.0 && from_s < until_s {
            #[expect(clippy::cast_sign_loss, reason = "time goes on from the start of the window")]
            let interval = ((from_s - start_s) / PEAK_INTERVAL_S + 1e-9).floor().max(0.0) as usize;
            let end_s = until_s.min(start_s + PEAK_INTERVAL_S * (interval + 1) as f64);
            if self.report.rates.len() <= interval {
                self.report.rates.resize(interval + 1, 0.0);
            }
            self.report.rates[interval] += rate * (end_s - from_s) / PEAK_INTERVAL_S;
            from_s = end_s.max(from_s + 1e-9);
        }
    }

    /// Takes out flows and jobs that are done.
    fn end(&mut self) {
        let mut over = Vec::new();
        for running in &mut self.running {
            let job = running.job;
            running.streams.retain(|stream| {
                let stays = is_left(stream.left, stream.bytes, stream.rate);
                if !stays {
                    over.push((job, *stream));
                }
                stays
            });
        }
        for (job, stream) in over {
            match &mut self.store {
                Store::Reactive(cache) if self.scenario.ad_hoc.get(job) != Some(&true) => {
                    if stream.is_remote && stream.fills {
                        cache.complete(stream.file);
                    }
                    let goes_on = self.running.iter().any(|running| {
                        running.job == job && running.streams.iter().any(|s| s.file == stream.file)
                    });
                    if !goes_on {
                        cache.release(stream.file);
                    }
                }
                Store::Planned(planned) if stream.is_remote => planned.read(job, stream.file, stream.bytes),
                _ => {}
            }
        }
        let (now_s, ends_s) = (self.now_s, &mut self.report.ends_s);
        self.running.retain(|running| {
            if running.streams.is_empty() {
                ends_s[running.job] = now_s;
            }
            !running.streams.is_empty()
        });
        let store = &mut self.store;
        self.fetching.retain(|fetch| {
            let stays = is_left(fetch.left, fetch.bytes, fetch.rate);
            if let (false, Store::Reactive(cache)) = (stays, &mut *store) {
                cache.release(fetch.file);
            }
            stays
        });
    }
}
