//! The uploads that one node keeps, and the parts that it holds for itself and others. Pure: time is an
//! argument.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shoal_policy::VersionId;
use tokio::sync::watch;

use super::Selection;
use super::completion::Ended;
use crate::dirty::multipart::{
    Completed, OpenUpload, Part, Upload, UploadEnd, UploadId, UploadProgress, UploadQuery,
};

/// Somebody who was not told that an upload is complete, and asks again, is told so for a while.
const REMEMBERED: Duration = Duration::from_mins(10);

/// See above.
#[derive(Default)]
pub(super) struct Table {
    kept: HashMap<UploadId, Kept>,
    held: HashMap<VersionId, Held>,
    held_bytes: u64,
    /// How many uploads ended how, in the order of [`UploadEnd::ALL`].
    ends: [u64; UploadEnd::ALL.len()],
}

struct Kept {
    upload: Arc<Upload>,
    parts: BTreeMap<u16, Arc<Part>>,
    /// When something was last done to it.
    touched: Instant,
    stage: Stage,
}

enum Stage {
    Open,
    Completing(Ending),
    Complete(Arc<Completed>),
}

/// A part whose blocks are here.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) upload: UploadId,
    pub(super) part: Arc<Part>,
    pub(super) since: Instant,
}

/// How a completion ends; the sender goes without a word when it breaks off.
pub(super) type Ending = watch::Receiver<Option<Ended>>;

/// Why a part is not taken into an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotNoted {
    /// There is no such upload.
    Nothing,
    /// It is being completed.
    Completing,
    /// The object would have more bytes than it may.
    TooLarge,
}

/// What who wants an upload completed is to do.
pub(super) enum Begin {
    /// Complete it of these parts, and say how it ended.
    Lead(Arc<Upload>, Vec<Arc<Part>>, watch::Sender<Option<Ended>>),
    /// Somebody does: wait.
    Join(Ending),
    /// It is complete.
    Complete(Arc<Completed>),
    /// The parts are others now.
    Changed,
    /// There is no such upload.
    Nothing,
}

impl Table {
    /// Keeps an upload.
    pub(super) fn keep(&mut self, upload: Upload, now: Instant) {
        let kept = Kept {
            parts: BTreeMap::new(),
            touched: now,
            stage: Stage::Open,
            upload: Arc::new(upload),
        };
        self.kept.insert(kept.upload.id, kept);
    }

    /// An upload that is kept here and is not complete.
    pub(super) fn get(&self, id: UploadId) -> Option<&Arc<Upload>> {
        let kept = self.kept.get(&id)?;
        (!matches!(kept.stage, Stage::Complete(_))).then_some(&kept.upload)
    }

    /// An upload that is kept here, or was and is complete now.
    pub(super) fn known(&self, id: UploadId) -> Option<&Arc<Upload>> {
        self.kept.get(&id).map(|kept| &kept.upload)
    }

    /// How far an upload is.
    pub(super) fn progress(&self, id: UploadId) -> Option<UploadProgress> {
        let kept = self.kept.get(&id)?;
        Some(match &kept.stage {
            Stage::Complete(completed) => UploadProgress::Complete(Arc::clone(completed)),
            Stage::Open | Stage::Completing(_) => {
                UploadProgress::Open(kept.parts.values().cloned().collect())
            }
        })
    }

    /// Takes a part into its upload; the one of the same number that it replaces, if there is one.
    pub(super) fn note(
        &mut self,
        id: UploadId,
        part: &Arc<Part>,
        object_bytes_max: u64,
        now: Instant,
    ) -> Result<Option<Arc<Part>>, NotNoted> {
        let kept = self.kept.get_mut(&id).ok_or(NotNoted::Nothing)?;
        match kept.stage {
            Stage::Open => {}
            Stage::Completing(_) => return Err(NotNoted::Completing),
            Stage::Complete(_) => return Err(NotNoted::Nothing),
        }
        let others = kept.parts.values().filter(|other| other.number != part.number);
        let bytes = others.map(|other| other.size_bytes()).sum::<u64>() + part.size_bytes();
        if bytes > object_bytes_max {
            return Err(NotNoted::TooLarge);
        }
        kept.touched = now;
        Ok(kept.parts.insert(part.number, Arc::clone(part)))
    }

    /// A part is lost: it must be uploaded again.
    pub(super) fn lose(&mut self, id: UploadId, part: &Part) {
        if let Some(kept) = self.kept.get_mut(&id)
            && kept
                .parts
                .get(&part.number)
                .is_some_and(|known| known.version.id == part.version.id)
        {
            kept.parts.remove(&part.number);
        }
    }

    /// Whether a part is one of an upload that is kept here.
    pub(super) fn wants(&self, id: UploadId, version: VersionId) -> bool {
        let kept = self.kept.get(&id);
        kept.is_some_and(|kept| kept.parts.values().any(|part| part.version.id == version))
    }

    /// Who wants it completed begins, or waits for who has begun.
    pub(super) fn begin(&mut self, id: UploadId, selection: &Selection, now: Instant) -> Begin {
        let Some(kept) = self.kept.get_mut(&id) else {
            return Begin::Nothing;
        };
        match &kept.stage {
            Stage::Complete(completed) => return Begin::Complete(Arc::clone(completed)),
            // Whoever would say how it ends is there.
            Stage::Completing(ending) if ending.has_changed().is_ok() => return Begin::Join(ending.clone()),
            Stage::Open | Stage::Completing(_) => {}
        }
        let Some(parts) = selection.among(|number| kept.parts.get(&number)) else {
            return Begin::Changed;
        };
        let (end, ending) = watch::channel(None);
        kept.stage = Stage::Completing(ending);
        kept.touched = now;
        Begin::Lead(Arc::clone(&kept.upload), parts, end)
    }

    /// The completion has ended: with an object, and then the parts that are of no use any more are given, or
    /// without one.
    pub(super) fn ended(
        &mut self,
        id: UploadId,
        completed: Option<Arc<Completed>>,
        now: Instant,
    ) -> Vec<Arc<Part>> {
        let Some(kept) = self.kept.get_mut(&id) else {
            return Vec::new();
        };
        kept.touched = now;
        let Some(completed) = completed else {
            kept.stage = Stage::Open;
            return Vec::new();
        };
        kept.stage = Stage::Complete(completed);
        self.ends[UploadEnd::Completed as usize] += 1;
        std::mem::take(&mut kept.parts).into_values().collect()
    }

    /// Forgets an upload that ends without an object; its parts. `Err`: it is being completed.
    pub(super) fn give_up(&mut self, id: UploadId, end: UploadEnd) -> Result<Option<OpenUpload>, NotNoted> {
        match self.kept.get(&id).map(|kept| &kept.stage) {
            None | Some(Stage::Complete(_)) => return Ok(None),
            Some(Stage::Completing(_)) => return Err(NotNoted::Completing),
            Some(Stage::Open) => {}
        }
        let kept = self.kept.remove(&id);
        self.ends[end as usize] += u64::from(kept.is_some());
        Ok(kept.map(|kept| (kept.upload, kept.parts.into_values().collect())))
    }

    /// Uploads to which nothing was done for so long, and that are not being completed.
    pub(super) fn idle(&self, longer_than: Duration, now: Instant) -> Vec<UploadId> {
        let idle = self.kept.iter().filter(|(_, kept)| {
            let is_open = matches!(kept.stage, Stage::Open);
            is_open && now.saturating_duration_since(kept.touched) > longer_than
        });
        idle.map(|(id, _)| *id).collect()
    }

    /// Forgets those that were complete long ago.
    pub(super) fn forget_complete(&mut self, now: Instant) {
        self.kept.retain(|_, kept| {
            let is_complete = matches!(kept.stage, Stage::Complete(_));
            !is_complete || now.saturating_duration_since(kept.touched) <= REMEMBERED
        });
    }

    /// Uploads that are not complete, with their parts, in the order of names.
    pub(super) fn open(&self) -> Vec<OpenUpload> {
        let open = self
            .kept
            .values()
            .filter(|kept| !matches!(kept.stage, Stage::Complete(_)));
        let mut open: Vec<_> = open
            .map(|kept| (Arc::clone(&kept.upload), kept.parts.values().cloned().collect()))
            .collect();
        open.sort_by(|(one, _): &OpenUpload, (other, _)| {
            let key = |upload: &Arc<Upload>| {
                (
                    Arc::clone(&upload.name.bucket),
                    Arc::clone(&upload.name.key),
                    upload.begun,
                )
            };
            key(one).cmp(&key(other))
        });
        open
    }

    /// Uploads that are not complete and that somebody wants to hear of.
    pub(super) fn meant_by(&self, inquiry: &UploadQuery) -> Vec<Arc<Upload>> {
        let meant = self.kept.values().filter(|kept| {
            let is_open = !matches!(kept.stage, Stage::Complete(_));
            is_open && inquiry.is_about(&kept.upload)
        });
        meant.map(|kept| Arc::clone(&kept.upload)).collect()
    }

    /// How many uploads ended how since the node started.
    pub(super) fn ends(&self) -> [(UploadEnd, u64); UploadEnd::ALL.len()] {
        UploadEnd::ALL.map(|end| (end, self.ends[end as usize]))
    }

    /// The blocks of a part are here.
    pub(super) fn hold(&mut self, upload: UploadId, part: Arc<Part>, since: Instant) {
        self.held_bytes += part.size_bytes();
        let held = Held { upload, part, since };
        let version = held.part.version.id;
        if let Some(before) = self.held.insert(version, held) {
            self.held_bytes -= before.part.size_bytes();
        }
    }

    /// The blocks of a part are to go; whether they were here.
    pub(super) fn release(&mut self, version: VersionId) -> bool {
        let held = self.held.remove(&version);
        self.held_bytes -= held.as_ref().map_or(0, |held| held.part.size_bytes());
        held.is_some()
    }

    /// Uploads to which something was done, and parts for others that came, no longer ago than that.
    pub(super) fn busy(&self, within: Duration, now: Instant) -> u64 {
        let is_recent = |at: Instant| now.saturating_duration_since(at) <= within;
        let kept = self
            .kept
            .values()
            .filter(|kept| !matches!(kept.stage, Stage::Complete(_)) && is_recent(kept.touched));
        let held = self
            .held
            .values()
            .filter(|held| !self.kept.contains_key(&held.upload) && is_recent(held.since));
        (kept.count() + held.count()) as u64
    }

    /// Every part whose blocks are here.
    pub(super) fn held(&self) -> Vec<Held> {
        self.held.values().cloned().collect()
    }

    /// Bytes of these.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{Begin, Completed, NotNoted, Selection, Table, Upload, UploadEnd};
    use crate::clock;
    use crate::dirty::multipart::tests::{part, upload};

    const MAX: u64 = 1000;

    #[test]
    fn a_part_that_is_uploaded_again_replaces_the_one_before() {
        let (mut table, upload, now) = (Table::default(), Arc::new(upload()), clock::instant());
        table.keep(Upload::clone(&upload), now);
        let (first, again) = (Arc::new(part(1, 'a', 900)), Arc::new(part(1, 'b', 950)));
        assert_eq!(
            table
                .note(upload.id, &first, MAX, now)
                .unwrap()
                .map(|part| part.number),
            None
        );
        let replaced = table.note(upload.id, &again, MAX, now).unwrap().unwrap();
        assert_eq!(replaced.version.id, first.version.id);
        assert!(table.wants(upload.id, again.version.id) && !table.wants(upload.id, first.version.id));
        let beyond = table.note(upload.id, &Arc::new(part(2, 'c', 51)), MAX, now);
        assert_eq!(
            beyond.unwrap_err(),
            NotNoted::TooLarge,
            "together they are too many bytes"
        );
    }

    #[test]
    fn an_upload_is_completed_by_one_and_the_others_hear_how_it_ended() {
        let (mut table, upload, now) = (Table::default(), Arc::new(upload()), clock::instant());
        table.keep(Upload::clone(&upload), now);
        let one = Arc::new(part(1, 'a', 9));
        table.note(upload.id, &one, MAX, now).unwrap();
        let selection = Selection::of(std::slice::from_ref(&one));
        let other = Selection::of(&[Arc::new(part(1, 'b', 9))]);
        assert!(matches!(table.begin(upload.id, &other, now), Begin::Changed));
        let lead = table.begin(upload.id, &selection, now);
        assert!(matches!(lead, Begin::Lead(..)));
        assert!(matches!(table.begin(upload.id, &selection, now), Begin::Join(_)));
        assert_eq!(
            table.note(upload.id, &one, MAX, now).unwrap_err(),
            NotNoted::Completing
        );
        assert!(
            table.give_up(upload.id, UploadEnd::Aborted).is_err(),
            "what is being completed is not aborted"
        );
        assert!(
            table.ended(upload.id, None, now).is_empty(),
            "in vain: its parts stay"
        );
        assert!(matches!(table.begin(upload.id, &selection, now), Begin::Lead(..)));
        let completed = Arc::new(Completed::default());
        assert_eq!(table.ended(upload.id, Some(completed), now).len(), 1);
        assert!(matches!(
            table.begin(upload.id, &selection, now),
            Begin::Complete(_)
        ));
        assert!(table.get(upload.id).is_none() && table.open().is_empty());
        table.forget_complete(now + super::REMEMBERED + Duration::from_secs(1));
        assert!(matches!(table.begin(upload.id, &selection, now), Begin::Nothing));
    }

    #[test]
    fn uploads_are_counted_once_by_how_they_ended() {
        let (mut table, upload, now) = (Table::default(), Arc::new(upload()), clock::instant());
        for end in [UploadEnd::Expired, UploadEnd::Aborted, UploadEnd::Aborted] {
            table.keep(Upload::clone(&upload), now);
            assert!(table.give_up(upload.id, end).unwrap().is_some());
            assert!(table.give_up(upload.id, end).unwrap().is_none());
        }
        table.keep(Upload::clone(&upload), now);
        table.ended(upload.id, None, now);
        table.ended(upload.id, Some(Arc::default()), now);
        assert!(table.give_up(upload.id, UploadEnd::Aborted).unwrap().is_none());
        let counts = table.ends().map(|(end, count)| (end.as_str(), count));
        assert_eq!(counts, [("completed", 1), ("aborted", 2), ("expired", 1)]);
    }

    #[test]
    fn an_upload_is_idle_when_nothing_was_done_to_it_for_long() {
        let (mut table, upload, now) = (Table::default(), Arc::new(upload()), clock::instant());
        table.keep(Upload::clone(&upload), now);
        let minute = Duration::from_mins(1);
        table
            .note(upload.id, &Arc::new(part(1, 'a', 9)), MAX, now + minute)
            .unwrap();
        assert!(table.idle(minute, now + 2 * minute).is_empty());
        assert_eq!(table.idle(minute, now + 3 * minute), [upload.id]);
    }

    #[test]
    fn the_bytes_of_parts_are_counted_while_they_are_held() {
        let (mut table, now) = (Table::default(), clock::instant());
        let (one, two) = (Arc::new(part(1, 'a', 9)), Arc::new(part(2, 'a', 5)));
        for held in [&one, &two, &two] {
            table.hold(upload().id, Arc::clone(held), now);
        }
        assert_eq!(table.held_bytes(), 14);
        assert!(table.release(two.version.id) && !table.release(two.version.id));
        assert_eq!(table.held_bytes(), 9);
    }
}
