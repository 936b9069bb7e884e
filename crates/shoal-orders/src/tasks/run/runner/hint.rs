//! Brings what a hint names: all inputs of a reader, or none.

use std::collections::HashSet;
use std::str::FromStr as _;

use shoal_base::amount::human_bytes as shown;
use shoal_cache::lake::LakeRefusal;
use shoal_s3::object::ObjectName;
use shoal_s3::uri::S3Uri;
use shoal_s3::xml::ListedObject;

use super::{ObjectFailure, Runner, TRIES, pauses};
use crate::tasks::parts::messages::{Answer, Question};
use crate::tasks::records::files::HintFacts;
use crate::tasks::records::progress::TaskState;

/// Maximum number of objects of one hint.
const OBJECTS_MAX: usize = 100_000;

/// The objects of an input, each with what a listing says of it, and their bytes.
type Objects = (Vec<(ObjectName, Option<ListedObject>)>, u64);

impl Runner<'_> {
    /// Brings the inputs of a hint if there is room for all of them: a reader that lacks one waits for the
    /// lake anyway.
    pub(super) async fn bring_hint(&self, hint: &HintFacts) -> Result<(), String> {
        let (mut objects, mut bytes) = (Vec::new(), 0);
        for path in &hint.inputs {
            let (more, size) = self.objects_at(path).await?;
            bytes += size;
            objects.extend(more);
            if objects.len() > OBJECTS_MAX {
                return Err(format!("its inputs have more than {OBJECTS_MAX} objects"));
            }
        }
        self.find_room(hint, bytes).await?;
        self.estimate.note_total(objects.len() as u64, bytes, false);
        let candidates = self.candidates(objects).await?;
        self.do_all(candidates).await
    }

    /// Finds the objects of an input: those below it, or the one of this name.
    async fn objects_at(&self, path: &str) -> Result<Objects, String> {
        let S3Uri { bucket, key } = S3Uri::from_str(path).map_err(|error| format!("{path}: {error}"))?;
        let name = |key: &[u8]| ObjectName {
            bucket: bucket.as_str().into(),
            key: key.into(),
            version: None,
        };
        let folder = format!("{key}/");
        let (mut objects, mut bytes, mut after) = (Vec::new(), 0, Vec::new());
        let mut pauses = pauses();
        let refusal = loop {
            let page = match self.lake.list(&bucket, folder.as_bytes(), &after).await {
                Ok(page) => page,
                Err(LakeRefusal::Trouble(why)) => {
                    self.outcomes.wait_for(Some(format!("waits for the lake: {why}")));
                    pauses.wait().await;
                    continue;
                }
                Err(refusal) => break Some(refusal),
            };
            self.outcomes.wait_for(None);
            let Some(last) = page.last() else { break None };
            after.clone_from(&last.key);
            for listed in page {
                if listed.size_bytes > 0 && !is_left_out(&listed.key[folder.len()..]) {
                    bytes += listed.size_bytes;
                    objects.push((name(&listed.key), Some(listed)));
                }
            }
            if objects.len() > OBJECTS_MAX {
                break None;
            }
        };
        if !objects.is_empty() {
            return Ok((objects, bytes));
        }
        let object = name(key.as_bytes());
        match (self.lake.version(&object, TRIES).await, refusal) {
            (Ok(version), _) => Ok((vec![(object, None)], version.size_bytes)),
            (Err(_), Some(refusal)) => Err(format!("{path} cannot be listed: {refusal}")),
            // A table may be empty at first, and the lake may not have it yet.
            (Err(ObjectFailure::Refused(_) | ObjectFailure::Skipped(_)), None) => Ok((Vec::new(), 0)),
            (Err(failure), None) => Err(format!("{path}: {failure}")),
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
                let is_before = entry.id < self.id && progress.state != TaskState::Failed;
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
