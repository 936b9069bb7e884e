//! Finds the objects of the current snapshot of a table, by its log at the lake.

use std::collections::HashMap;
use std::pin::pin;
use std::time::UNIX_EPOCH;

use futures_util::stream::{self, StreamExt as _};
use shoal_s3::uri::S3Uri;
use shoal_s3::xml::ListedObject;
use shoal_tables::{FILE_BYTES_MAX, LOG_KEYS_MAX, LogFile, Snapshot, TableError, TableFormat, TableSearch};

use super::hint::{Objects, name};
use super::{ObjectFailure, Runner, TRIES, pauses};

/// The number of objects of a log that are read at a time, whole and in memory.
const READS_AT_ONCE: usize = 4;

impl Runner<'_> {
    /// Finds the objects of the current snapshot of the table at a location. Returns `None` if there is no
    /// table that the identity may list. The error is the reason why the table cannot be read.
    pub(super) async fn table_at(&self, location: &S3Uri) -> Result<Option<Objects>, String> {
        for format in TableFormat::ALL {
            if let Some(found) = self.table_of(format, location).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    async fn table_of(&self, format: TableFormat, location: &S3Uri) -> Result<Option<Objects>, String> {
        let S3Uri { bucket, key } = location;
        let folder = format!("{key}/{}/", format.log_folder());
        let of_table = |why: String| format!("the log of its {} table {why}", format.as_str());
        let log = self.log_in(bucket, &folder).await.map_err(of_table)?;
        let files: Vec<LogFile> = log
            .iter()
            .filter_map(|listed| log_file(listed, &folder))
            .collect();
        let search = TableSearch::new(format, location, &files);
        let Some(search) = search.map_err(|error| of_table(error.to_string()))? else {
            return Ok(None);
        };
        let snapshot = self.snapshot(search).await.map_err(of_table)?;
        Ok(Some(objects_of(snapshot, bucket, log)))
    }

    /// Lists a log. One that cannot be listed is as good as none: all else there is refused, too.
    async fn log_in(&self, bucket: &str, folder: &str) -> Result<Vec<ListedObject>, String> {
        let mut log: Vec<ListedObject> = Vec::new();
        loop {
            let after = log.last().map_or(&[][..], |last| &last.key);
            let Ok(page) = self.listed(bucket, folder.as_bytes(), after).await else {
                return Ok(Vec::new());
            };
            if page.is_empty() {
                return Ok(log);
            }
            log.extend(page);
            if log.len() > LOG_KEYS_MAX {
                return Err(format!("has more than {LOG_KEYS_MAX} objects"));
            }
        }
    }

    /// Carries a search out.
    async fn snapshot(&self, mut search: TableSearch) -> Result<Snapshot, String> {
        let turn = self.base.table_turn.acquire().await;
        let _turn = turn.expect("the semaphore is never closed");
        loop {
            let round = search.round().map_err(|error| error.to_string())?;
            if round.is_empty() {
                return Ok(search.finish());
            }
            let reads = round.into_iter().map(|read| async move {
                let bytes = self.log_bytes(&read.object).await;
                (read, bytes)
            });
            let mut reads = pin!(stream::iter(reads).buffered(READS_AT_ONCE));
            while let Some((read, bytes)) = reads.next().await {
                let bytes = bytes.map_err(|failure| format!("cannot be read, {}: {failure}", read.object))?;
                // Megabytes may be unpacked.
                let taken = tokio::task::spawn_blocking(move || {
                    search.take(&read, &bytes)?;
                    Ok::<_, TableError>(search)
                });
                let taken = taken.await.map_err(|error| format!("cannot be read: {error}"))?;
                search = taken.map_err(|error| error.to_string())?;
            }
        }
    }

    /// Reads an object of a log, at the pace of the task.
    async fn log_bytes(&self, object: &S3Uri) -> Result<Vec<u8>, ObjectFailure> {
        let name = name(&object.bucket, object.key.as_bytes());
        let (mut pauses, mut tries) = (pauses(), 1);
        loop {
            let version = self.lake.version(&name, TRIES).await?;
            if version.size_bytes > FILE_BYTES_MAX {
                return Err(ObjectFailure::Skipped("it is too long".into()));
            }
            tokio::time::sleep(self.estimate.wait(version.size_bytes)).await;
            match self.lake.bytes(&name, &version).await {
                Err(ObjectFailure::Failed(_)) if tries < TRIES => tries += 1,
                answer => return answer,
            }
            pauses.wait().await;
        }
    }
}

fn log_file(listed: &ListedObject, folder: &str) -> Option<LogFile> {
    let name = listed.key.strip_prefix(folder.as_bytes())?;
    let written = listed
        .last_modified
        .and_then(|written| written.duration_since(UNIX_EPOCH).ok());
    Some(LogFile {
        name: str::from_utf8(name).ok()?.to_owned(),
        written_ms: written.map_or(0, |written| written.as_millis() as u64),
    })
}

/// Returns the objects of a snapshot. Those of the log have the sizes that its listing gives; the table may
/// be wrong about them.
fn objects_of(snapshot: Snapshot, bucket: &str, log: Vec<ListedObject>) -> Objects {
    let mut log: HashMap<Vec<u8>, ListedObject> = log
        .into_iter()
        .map(|listed| (listed.key.clone(), listed))
        .collect();
    let mut found = Objects::default();
    for object in snapshot.objects {
        let S3Uri { bucket: of, key } = &object.object;
        let listed = if of == bucket {
            log.remove(key.as_bytes())
        } else {
            None
        };
        let bytes = listed
            .as_ref()
            .map(|listed| listed.size_bytes)
            .or(object.size_bytes);
        found.bytes = found.bytes.saturating_add(bytes.unwrap_or_default());
        found.objects.push((name(of, key.as_bytes()), listed));
    }
    found
}
