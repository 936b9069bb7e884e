//! Tables of Delta: the newest checkpoint and the commits after it.

mod action;
mod deletion_vector;
mod log_name;

use std::collections::BTreeMap;
use std::mem::take;

use shoal_s3::uri::S3Uri;

use self::action::{Action, FileAction, in_lines, in_parquet};
use self::deletion_vector::DeletionVector;
use self::log_name::Plan;
use crate::error::TableError;
use crate::names::{below, encoded};
use crate::search::{Collected, FileBudget, LogFile, Role, Snapshot, TableFormat, TableObject, TableRead};

/// Where an engine looks for the newest checkpoint.
const LAST_CHECKPOINT: &str = "_last_checkpoint";

/// The folder of the parts of checkpoints, below that of the log.
const SIDECARS: &str = "_sidecars";

/// The search in a table of Delta.
#[derive(Debug)]
pub(crate) struct DeltaSearch {
    table: S3Uri,
    folder: S3Uri,
    log: Collected,
    /// The checkpoint, or parts of it, to read next.
    checkpoint: Vec<TableRead>,
    /// The commits after it, the oldest first.
    commits: Vec<TableRead>,
    files: BTreeMap<LogicalFile, KeptFile>,
    budget: FileBudget,
}

/// A file with the rows that are left of it. A row that is removed makes another logical file of the same
/// object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LogicalFile {
    object: S3Uri,
    deletion_vector: Option<String>,
}

impl LogicalFile {
    fn name_bytes(&self) -> usize {
        let vector = self.deletion_vector.as_ref().map_or(0, String::len);
        self.object.bucket.len() + self.object.key.len() + vector
    }
}

/// The facts about a file of the table.
#[derive(Debug)]
struct KeptFile {
    size_bytes: Option<u64>,
    /// The object with the rows that are removed of it.
    vector: Option<TableObject>,
}

impl DeltaSearch {
    /// Begins a search. Returns `None` if nothing in the folder is a commit or a checkpoint.
    pub(crate) fn new(location: &S3Uri, log: &[LogFile]) -> Result<Option<Self>, TableError> {
        let names = log.iter().map(|file| &*file.name);
        let Some(plan) = Plan::of(names)? else {
            return Ok(None);
        };
        let mut search = Self {
            table: location.clone(),
            folder: below(location, TableFormat::Delta.log_folder())?,
            log: Collected::default(),
            checkpoint: Vec::new(),
            commits: Vec::new(),
            files: BTreeMap::new(),
            budget: FileBudget::default(),
        };
        let others = log
            .iter()
            .filter(|file| file.name == LAST_CHECKPOINT || file.name == plan.checksum());
        for file in others {
            search.log.add(below(&search.folder, &file.name)?, None);
        }
        search.checkpoint = search.reads(&plan.checkpoint, Role::Checkpoint)?;
        search.commits = search.reads(&plan.commits, Role::Commit)?;
        Ok(Some(search))
    }

    pub(crate) fn round(&mut self) -> Vec<TableRead> {
        if self.checkpoint.is_empty() {
            take(&mut self.commits)
        } else {
            take(&mut self.checkpoint)
        }
    }

    pub(crate) fn take(&mut self, read: &TableRead, bytes: &[u8]) -> Result<(), TableError> {
        if read.object.key.ends_with(".parquet") {
            in_parquet(bytes, |action| self.apply(action))
        } else {
            in_lines(bytes, |action| self.apply(action))
        }
    }

    pub(crate) fn finish(self) -> Snapshot {
        let Self { mut log, files, .. } = self;
        for (file, kept) in files {
            log.add(file.object, kept.size_bytes);
            if let Some(vector) = kept.vector {
                log.add(vector.object, vector.size_bytes);
            }
        }
        log.into_snapshot()
    }

    fn reads(&mut self, names: &[String], role: Role) -> Result<Vec<TableRead>, TableError> {
        let reads = names.iter().map(|name| {
            let object = below(&self.folder, name)?;
            self.read(object, role)
        });
        reads.collect()
    }

    fn apply(&mut self, action: Action) -> Result<(), TableError> {
        match action {
            Action::Add(add) => {
                let file = self.logical(&add)?;
                let vector = add.deletion_vector.map(|vector| vector.file(&self.table));
                self.budget.take(file.name_bytes())?;
                let kept = KeptFile {
                    size_bytes: add.size_bytes,
                    vector: vector.transpose()?.flatten(),
                };
                let name_bytes = file.name_bytes();
                if self.files.insert(file, kept).is_some() {
                    self.budget.give(name_bytes);
                }
            }
            Action::Remove(remove) => {
                let file = self.logical(&remove)?;
                if self.files.remove(&file).is_some() {
                    self.budget.give(file.name_bytes());
                }
            }
            Action::Sidecar(path) => {
                let folder = below(&self.folder, SIDECARS)?;
                let reads = self.read(encoded(&folder, &path)?, Role::Checkpoint)?;
                self.checkpoint.push(reads);
            }
        }
        Ok(())
    }

    fn logical(&self, action: &FileAction) -> Result<LogicalFile, TableError> {
        Ok(LogicalFile {
            object: encoded(&self.table, &action.path)?,
            deletion_vector: action.deletion_vector.as_ref().map(DeletionVector::id),
        })
    }

    /// Notes an object of the log, which is to be read.
    fn read(&mut self, object: S3Uri, role: Role) -> Result<TableRead, TableError> {
        self.budget.take(object.key.len())?;
        self.log.add(object.clone(), None);
        Ok(TableRead { object, role })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DeltaSearch, LogFile};

    /// Returns the keys of the snapshot of a table with these actions, below it.
    fn files(actions: &[serde_json::Value]) -> Vec<String> {
        let log = [LogFile {
            name: "00000000000000000000.json".into(),
            written_ms: 0,
        }];
        let location = "s3://lake/t".parse().unwrap();
        let mut search = DeltaSearch::new(&location, &log).unwrap().unwrap();
        let lines: Vec<String> = actions.iter().map(ToString::to_string).collect();
        for read in search.round() {
            search.take(&read, lines.join("\n").as_bytes()).unwrap();
        }
        let objects = search.finish().objects.into_iter();
        let keys = objects.map(|object| object.object.key.strip_prefix("t/").unwrap().to_owned());
        keys.filter(|key| !key.starts_with("_delta_log/")).collect()
    }

    #[test]
    fn a_file_stays_when_it_gets_another_deletion_vector_in_any_order_of_actions() {
        let vector = |offset: i64| {
            json!({ "storageType": "p", "pathOrInlineDv": "s3://lake/t/rows", "offset": offset,
                    "sizeInBytes": 9, "cardinality": 1 })
        };
        let add = json!({ "add": { "path": "f", "size": 5, "deletionVector": vector(2) } });
        let remove = json!({ "remove": { "path": "f", "deletionVector": vector(1) } });
        assert_eq!(files(&[add.clone(), remove.clone()]), ["f", "rows"]);
        assert_eq!(files(&[remove, add.clone()]), ["f", "rows"]);
        let gone = json!({ "remove": { "path": "f", "deletionVector": vector(2) } });
        assert!(files(&[add, gone]).is_empty());
    }
}
