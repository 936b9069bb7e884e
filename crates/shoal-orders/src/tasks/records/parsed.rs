//! The records of a bulletin, parsed. A record is parsed once, when it has come or changed: nodes look at all
//! tasks whenever one of them changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use shoal_hints::{JobRecord, Jobs};
use ulid::Ulid;

use super::entry::{Entries, Entry};
use crate::bulletin::{Bulletin, Key, Kind};

/// The records of a bulletin as they were when it was last followed.
#[derive(Default)]
pub(super) struct Parsed {
    /// The tasks. A record that cannot be parsed is left out.
    pub(super) entries: Arc<Entries>,
    /// The records of jobs, by their ids.
    pub(super) jobs: BTreeMap<u128, Job>,
    /// The last runs of jobs; `None` since a record of a job has changed.
    by_name: Option<Arc<Jobs>>,
}

/// The record of a job.
pub(super) struct Job {
    /// The bytes of the record.
    pub(super) bytes: usize,
    /// `None` if it cannot be parsed.
    pub(super) record: Option<Arc<JobRecord>>,
}

impl Parsed {
    /// Parses the records that have changed since the last time.
    pub(super) fn follow(&mut self, bulletin: &Bulletin) {
        let changed = bulletin.take_changed();
        for keys in changed.chunk_by(|one, next| one.id == next.id) {
            let id = keys[0].id;
            let has_new = |kind| keys.contains(&Key { id, kind });
            if has_new(Kind::Job) {
                self.follow_job(id, bulletin);
            }
            if [Kind::Order, Kind::Progress, Kind::Cancel]
                .into_iter()
                .any(has_new)
            {
                self.follow_task(id, has_new(Kind::Order), bulletin);
            }
        }
    }

    /// Returns the last runs of jobs.
    pub(super) fn last_runs(&mut self) -> Arc<Jobs> {
        let found = self.by_name.get_or_insert_with(|| {
            let mut by_name = Jobs::new();
            for record in self.jobs.values().filter_map(|job| job.record.as_ref()) {
                match by_name.get(&record.job) {
                    Some(known) if known.ended_ms >= record.ended_ms => {}
                    _ => drop(by_name.insert(record.job.clone(), Arc::clone(record))),
                }
            }
            Arc::new(by_name)
        });
        Arc::clone(found)
    }

    fn follow_job(&mut self, id: u128, bulletin: &Bulletin) {
        self.by_name = None;
        let kind = Kind::Job;
        match bulletin.get(Key { id, kind }) {
            Some(body) => {
                let (bytes, record) = (body.len(), parsed(id, &body).map(Arc::new));
                self.jobs.insert(id, Job { bytes, record });
            }
            None => drop(self.jobs.remove(&id)),
        }
    }

    fn follow_task(&mut self, id: u128, is_new: bool, bulletin: &Bulletin) {
        let body = |kind| bulletin.get(Key { id, kind });
        let order = if is_new {
            body(Kind::Order).and_then(|body| parsed(id, &body).map(Arc::new))
        } else {
            self.entries.get(&id).map(|entry| Arc::clone(&entry.order))
        };
        // One who reads the tasks goes on with those that it has.
        let entries = Arc::make_mut(&mut self.entries);
        let Some(order) = order else {
            entries.remove(&id);
            return;
        };
        let progress = body(Kind::Progress).and_then(|body| parsed(id, &body));
        let end = body(Kind::Cancel);
        let entry = Entry::new(id, order, Arc::new(progress.unwrap_or_default()), end.as_deref());
        entries.insert(id, entry);
    }
}

fn parsed<T: DeserializeOwned>(id: u128, body: &[u8]) -> Option<T> {
    let value = serde_json::from_slice(body).inspect_err(|error| {
        let id = Ulid(id);
        tracing::warn!(%id, %error, "a record of an order is of another build and is ignored");
    });
    value.ok()
}
