//! Jobs that arrive while a plan is carried out.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use super::job_status::ReadState;
use super::{EARLY_S, Execution, FileState, Step};
use crate::model::{File, Held, Job, Request};
use crate::plan::{FilePlan, Outcome, Plan};
use crate::planner::admit::admit;

/// A job that arrives, and what is known of its inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// The job. No job of the plan has its name.
    pub job: Job,
    /// Its inputs that the plan may not know: each with the least and the most bytes that jobs read of it.
    pub files: Vec<(File, RangeInclusive<u64>)>,
    /// The first bytes of its inputs that the cache holds, by their names.
    pub held: Vec<(String, u64)>,
}

impl Execution {
    /// Admits a job into what the plan in force leaves of link and cache. It becomes the last job of the
    /// request, and its unknown files become the last ones. All that the plan has for other jobs stays as it
    /// is.
    ///
    /// # Errors
    /// The job is refused, with the reason, and nothing of it stays.
    pub fn arrive(&mut self, arrival: &Arrival, now_s: f64) -> Result<(), String> {
        let (request, in_force) = self.request_beside(arrival, now_s);
        let plan = admit(&request, &self.plan, &in_force).map_err(|error| error.to_string())?;
        let outcome = plan.jobs.last().map(|job| job.outcome.clone());
        if let Some(Outcome::BestEffort(why)) = outcome {
            return Err(why.to_string());
        }
        for (file, expected_bytes) in &arrival.files {
            if self.by_name.contains_key(&file.name) {
                continue;
            }
            self.by_name.insert(file.name.clone(), self.files.len());
            self.files.push(FileState::new(file, expected_bytes.clone()));
            self.request.files.push(file.clone());
        }
        for (name, bytes) in &arrival.held {
            if let Some(file) = self.by_name.get(name).copied() {
                self.holds(file, *bytes);
            }
        }
        self.early_s.push(arrival.job.submit_s - EARLY_S);
        self.verdicts.push(None);
        self.reads.push(ReadState::default());
        self.promised.insert(arrival.job.name.clone());
        self.request.jobs.push(arrival.job.clone());
        self.add_to_plan(plan, now_s);
        Ok(())
    }

    /// Records that the cache holds the first bytes of a file, as far as that was not known.
    pub fn holds(&mut self, file: usize, bytes: u64) {
        let known = &mut self.files[file];
        known.have_bytes = known.have_bytes.max(bytes.min(known.bytes));
    }

    /// Returns the request for a job beside the plan in force, in the slots of the plan from now on, and the
    /// jobs to which the plan still promises something.
    fn request_beside(&self, arrival: &Arrival, now_s: f64) -> (Request, Vec<Job>) {
        let usage = &self.plan.usage;
        let slots = ((now_s - usage.start_s) / usage.slot_s).floor();
        let start_s = usage.start_s + slots * usage.slot_s;
        let planned = self.plan.jobs.iter().zip(&self.request.jobs).zip(&self.verdicts);
        let in_force = planned.filter(|((planned, job), verdict)| {
            verdict.is_none() && planned.outcome == Outcome::Planned && job.deadline_s > start_s
        });
        let in_force: Vec<Job> = in_force.map(|((_, job), _)| job.clone()).collect();
        let mut files: Vec<File> = self.files_now(now_s).collect();
        let unknown = arrival.files.iter().map(|(file, _)| file);
        files.extend(
            unknown
                .filter(|file| !self.by_name.contains_key(&file.name))
                .cloned(),
        );
        let job = Job {
            submit_s: arrival.job.submit_s.max(start_s),
            ..arrival.job.clone()
        };
        let ends_s = in_force.iter().map(|job| job.deadline_s);
        let ends_s = ends_s.fold(job.submit_s + usage.slot_s, f64::max);
        let mut request = Request {
            files,
            jobs: vec![job],
            ..self.request.clone()
        };
        (request.window.start_s, request.window.end_s) = (start_s, ends_s);
        request.window.slot_s = usage.slot_s;
        request.link = self.link_now(now_s);
        // What the plan keeps is among what it takes.
        request.cache.hold(self.held(now_s));
        for held in &mut request.cache.held {
            held.pinned_until_s = None;
        }
        let mut left = request.cache.held.iter().map(|held| held.bytes).sum::<u64>();
        left = request.cache.capacity_bytes.saturating_sub(left);
        for (name, bytes) in &arrival.held {
            let size = request
                .files
                .iter()
                .find(|file| file.name == *name)
                .map(|file| file.bytes);
            let bytes = size.unwrap_or_default().min(*bytes);
            let known = request.cache.held.iter_mut().find(|held| held.file == *name);
            let known_bytes = known.as_ref().map_or(0, |held| held.bytes);
            let Some(rest) = left.checked_sub(bytes.saturating_sub(known_bytes)) else {
                continue;
            };
            left = rest;
            match known {
                Some(held) => held.bytes = held.bytes.max(bytes),
                None if bytes > 0 => request.cache.held.push(Held {
                    file: name.clone(),
                    bytes,
                    pinned_until_s: None,
                }),
                None => {}
            }
        }
        (request, in_force)
    }

    /// Puts a plan in force that differs from the one before by its last job, and by files that this job
    /// reads. Transfers of other files go on.
    fn add_to_plan(&mut self, plan: Plan, now_s: f64) {
        let before = std::mem::replace(&mut self.plan, plan).files;
        let before: HashMap<&str, &FilePlan> = before.iter().map(|file| (&*file.file, file)).collect();
        let mut steps: Vec<(f64, Step)> = self.agenda.drain(..).collect();
        let mut transfers = Vec::new();
        for planned in &self.plan.files {
            if before.get(&*planned.file) == Some(&planned) {
                continue;
            }
            let Some(&file) = self.by_name.get(&planned.file) else {
                continue;
            };
            steps.retain(|(_, step)| match step {
                Step::Release(of) | Step::Page { file: of, .. } | Step::Keep { file: of, .. } => *of != file,
                _ => true,
            });
            self.transfers.drop_open(file);
            let (more, of_file) = self.of_file(file, planned);
            transfers.extend(more);
            // A page that has begun is being kept.
            steps.extend(
                of_file
                    .into_iter()
                    .filter(|(at_s, step)| !matches!(step, Step::Page { .. }) || *at_s >= now_s),
            );
            steps.extend(self.keep_again(file, planned, now_s));
        }
        let job = self.request.jobs.len() - 1;
        if self.promise(job).is_some() {
            steps.push((self.request.jobs[job].submit_s, Step::Promise(job)));
        }
        steps.push((self.early_s[job], Step::Observe(job)));
        steps.sort_by(|one, other| one.0.total_cmp(&other.0));
        self.agenda = steps.into();
        self.transfers.add(transfers);
    }
}
