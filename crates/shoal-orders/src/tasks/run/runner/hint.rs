//! Brings what a hint names: all inputs of a reader, or none.

use std::collections::HashSet;
use std::str::FromStr as _;

use shoal_base::amount::human_bytes as shown;
use shoal_cache::lake::LakeRefusal;
use shoal_s3::object::ObjectName;
use shoal_s3::uri::S3Uri;
use shoal_s3::xml::ListedObject;
use ulid::Ulid;

use super::{ObjectFailure, Runner, TRIES, pauses};
use crate::tasks::parts::messages::{Answer, Question};
use crate::tasks::records::files::HintFacts;
use crate::tasks::records::progress::TaskState;

/// Maximum number of objects of one hint.
const OBJECTS_MAX: usize = 100_000;

/// The objects of an input.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// The objects, each with what a listing says of it.
    pub(super) objects: Vec<(ObjectName, Option<ListedObject>)>,
    /// Their bytes.
    pub(super) bytes: u64,
}

impl Runner<'_> {
    /// Brings the inputs of a hint if there is room for all of them: a reader that lacks one waits for the
    /// lake anyway.
    pub(super) async fn bring_hint(&self, hint: &HintFacts) -> Result<(), String> {
        if hint.inputs.is_empty() {
            return Ok(());
        }
        if let Some(bytes) = hint.bytes {
            // The lake need not be asked about what does not fit.
            self.find_room(hint, bytes).await?;
        }
        let (mut objects, mut bytes) = (Vec::new(), 0_u64);
        for path in &hint.inputs {
            let more = self.objects_at(path).await?;
            bytes = bytes.saturating_add(more.bytes);
            objects.extend(more.objects);
            if objects.len() > OBJECTS_MAX {
                return Err(format!("its inputs have more than {OBJECTS_MAX} objects"));
            }
        }
        self.find_room(hint, bytes).await?;
        self.estimate.note_total(objects.len() as u64, bytes, false);
        let candidates = self.candidates(objects).await?;
        let sizes = candidates.iter().map(|candidate| candidate.version.size_bytes);
        let at_lake = sizes.sum::<u64>();
        if at_lake > bytes {
            // The sizes in a table's log are not those at the lake.
            self.find_room(hint, at_lake).await?;
            self.estimate.note_total(candidates.len() as u64, at_lake, false);
        }
        self.do_all(candidates).await
    }

    /// Finds the objects of an input: those of the current snapshot of a table, those below it, or the one of
    /// this name.
    async fn objects_at(&self, path: &str) -> Result<Objects, String> {
        let uri = S3Uri::from_str(path).map_err(|error| format!("{path}: {error}"))?;
        match self.table_at(&uri).await {
            Ok(Some(objects)) => return Ok(objects),
            Ok(None) => {}
            Err(why) => {
                let remark = format!("all objects below {path} are brought: {why}");
                tracing::info!(id = %Ulid(self.id), remark, "a table is not read");
                self.outcomes.remark(remark);
            }
        }
        self.objects_below(&uri).await
    }

    /// Finds the objects below a name, or the one of this name.
    async fn objects_below(&self, uri: &S3Uri) -> Result<Objects, String> {
        let S3Uri { bucket, key } = uri;
        let folder = format!("{key}/");
        let (mut found, mut after) = (Objects::default(), Vec::new());
        let refusal = loop {
            let page = match self.listed(bucket, folder.as_bytes(), &after).await {
                Ok(page) => page,
                Err(refusal) => break Some(refusal),
            };
            let Some(last) = page.last() else { break None };
            after.clone_from(&last.key);
            for listed in page {
                if listed.size_bytes > 0 && !is_left_out(&listed.key[folder.len()..]) {
                    found.bytes += listed.size_bytes;
                    found.objects.push((name(bucket, &listed.key), Some(listed)));
                }
            }
            if found.objects.len() > OBJECTS_MAX {
                break None;
            }
        };
        if !found.objects.is_empty() {
            return Ok(found);
        }
        let object = name(bucket, key.as_bytes());
        match (self.lake.version(&object, TRIES).await, refusal) {
            (Ok(version), _) => Ok(Objects {
                objects: vec![(object, None)],
                bytes: version.size_bytes,
            }),
            (Err(_), Some(refusal)) => Err(format!("{uri} cannot be listed: {refusal}")),
            // A table may be empty at first, and the lake may not have it yet.
            (Err(ObjectFailure::Refused(_) | ObjectFailure::Skipped(_)), None) => Ok(Objects::default()),
            (Err(failure), None) => Err(format!("{uri}: {failure}")),
        }
    }

    /// Lists a page, however long the lake takes to answer.
    pub(super) async fn listed(
        &self,
        bucket: &str,
        prefix: &[u8],
        after: &[u8],
    ) -> Result<Vec<ListedObject>, LakeRefusal> {
        let mut pauses = pauses();
        loop {
            let page = self.lake.list(bucket, prefix, after).await;
            let Err(LakeRefusal::Trouble(why)) = page else {
                self.outcomes.wait_for(None);
                return page;
            };
            self.outcomes.wait_for(Some(format!("waits for the lake: {why}")));
            pauses.wait().await;
        }
    }

    /// Checks that hints may take `bytes` more of the room of the nodes.
    async fn find_room(&self, hint: &HintFacts, bytes: u64) -> Result<(), String> {
        let nodes = self.placer.targets.nodes();
        let answers = self.nodes.ask_each(&nodes, || Question::Early(Vec::new())).await;
        let capacity: u64 = answers
            .into_iter()
            .map(|answer| match answer {
                Ok(Answer::Early(early)) => early.capacity_bytes,
                _ => 0,
            })
            .sum();
        let room = u128::from(capacity) * u128::from(self.base.hints.room_percent) / 100;
        let room = u64::try_from(room).unwrap_or(u64::MAX);
        // Runs that read the same share it.
        let mut counted = HashSet::from([hint.inputs.clone()]);
        let taken: u64 = self
            .base
            .records
            .live_hints()
            .iter()
            .filter_map(|entry| {
                let (other, progress) = (entry.order.hint.as_ref()?, &entry.progress);
                let is_before = entry.id < self.id || hint.goes_behind(other);
                let is_before = is_before && progress.state != TaskState::Failed;
                let bytes = progress.tally.bytes.total.filter(|_| is_before)?;
                counted.insert(other.inputs.clone()).then_some(bytes)
            })
            .sum();
        if taken.saturating_add(bytes) > room {
            return Err(format!(
                "no room: its inputs have {}, and hints may take {}, of which {} are taken",
                shown(bytes),
                shown(room),
                shown(taken)
            ));
        }
        Ok(())
    }
}

/// Returns the name of the newest version of an object.
pub(super) fn name(bucket: &str, key: &[u8]) -> ObjectName {
    ObjectName {
        bucket: bucket.into(),
        key: key.into(),
        version: None,
    }
}

/// Returns true if engines leave a file of a table out: a part of its path below the table is hidden. The log
/// of a Delta table is read.
fn is_left_out(below: &[u8]) -> bool {
    below.split(|byte| *byte == b'/').any(|part| match part.first() {
        Some(b'.') => true,
        Some(b'_') => !part.contains(&b'=') && part != b"_delta_log" && !part.starts_with(b"_metadata"),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::is_left_out;

    #[test]
    fn hidden_files_of_a_table_are_left_out() {
        for (below, is_out) in [
            ("part-0.parquet", false),
            ("date=2026-11-29/part-0.parquet", false),
            ("_SUCCESS", true),
            ("_temporary/0/part-0", true),
            (".part-0.crc", true),
            ("a/.hidden/b", true),
            ("_delta_log/0.json", false),
            ("_key=1/part-0", false),
            ("_metadata", false),
            ("", false),
        ] {
            assert_eq!(is_left_out(below.as_bytes()), is_out, "{below}");
        }
    }
}
