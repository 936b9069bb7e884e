//! Carries out acknowledged removals at the lake: those of one identity in one bucket by one request, or one
//! by one at a lake that does not support that.

use std::collections::HashMap;
use std::str::from_utf8;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream::{self, StreamExt};
use http::StatusCode;
use shoal_base::encoding::Malformed;
use shoal_base::send_permit::SendPermit;
use shoal_net::clock;
use shoal_net::endpoint::s3::{S3Client, SendOptions};
use shoal_registry::changes::LakeChange;
use shoal_registry::worker::{Flushing, NotFlushed};
use shoal_s3::error::ErrorCode;
use shoal_s3::target;
use shoal_s3::xml::{DeletionResult, Key};

use super::cleaner::{Cleaner, log_refused};
use crate::dirty::lake_writer::{LakeWriteError, NotWritten};
use crate::dirty::record::format::Unreadable;
use crate::dirty::record::keys::object_name;
use crate::dirty::record::tombstone::Tombstone;
use crate::dirty::stock::status::WriteBackOutcome;

/// Number of removals in parallel at a lake that takes one at a time.
const PARALLEL: usize = 8;

/// The outcome of one removal.
type Removed = Result<(), Arc<NotWritten>>;

/// The removals of one request.
struct Batch<'a> {
    client: S3Client,
    permit: SendPermit,
    tombstones: Vec<&'a Tombstone>,
}

impl Cleaner {
    /// Removes the names of tombstones. Returns the outcome of each, in their order.
    pub(super) async fn remove_all(&self, removals: &[Flushing]) -> Vec<Result<(), NotFlushed>> {
        let tombstones: Vec<_> = removals.iter().map(tombstone_of).collect();
        // Equal records have the same writer and headers.
        let mut batches: HashMap<_, Vec<usize>> = HashMap::new();
        for (number, removal) in removals.iter().enumerate() {
            let (bucket, _) = removal.change.name().parts();
            if let Ok(tombstone) = &tombstones[number] {
                let of_batch = (
                    bucket,
                    &removal.version.record,
                    self.shared.flusher(&tombstone.name),
                );
                batches.entry(of_batch).or_default().push(number);
            }
        }
        let mut outcomes: Vec<_> = tombstones
            .iter()
            .map(|read| read.as_ref().map(drop).map_err(Clone::clone))
            .collect();
        for numbers in batches.into_values() {
            let batch: Vec<_> = numbers
                .iter()
                .filter_map(|number| tombstones[*number].as_ref().ok())
                .collect();
            let permit = LakeChange::permit_of_all(numbers.iter().map(|number| &removals[*number].change));
            let removed = self.remove_batch(&batch, permit).await;
            for ((number, tombstone), removed) in numbers.into_iter().zip(batch).zip(removed) {
                outcomes[number] = self.judged(tombstone, removed);
            }
        }
        outcomes
    }

    /// Removes names with the same record in one bucket.
    async fn remove_batch(&self, tombstones: &[&Tombstone], permit: SendPermit) -> Vec<Removed> {
        let (writer, name) = (&tombstones[0].record.writer, &tombstones[0].name);
        let Ok(caller) = self.shared.writer(writer, name) else {
            let error = LakeWriteError::UnknownWriter(Arc::clone(writer));
            return all(tombstones, error);
        };
        let batch = Batch {
            client: self.shared.client(&caller),
            permit,
            tombstones: tombstones.to_vec(),
        };
        let removed = if self.takes_one_at_a_time.load(Ordering::Relaxed) {
            batch.remove_each().await
        } else {
            match batch.remove_at_once().await {
                Ok(removed) => removed,
                Err(LakeWriteError::Refused(
                    StatusCode::NOT_IMPLEMENTED | StatusCode::METHOD_NOT_ALLOWED,
                )) => {
                    self.takes_one_at_a_time.store(true, Ordering::Relaxed);
                    tracing::info!("the lake does not remove many objects in one request");
                    batch.remove_each().await
                }
                Err(error) => {
                    let removed = all(tombstones, error);
                    if let Some(Err(failure)) = removed.first() {
                        self.pacing.flushed(Err(failure), 0, clock::instant());
                    }
                    removed
                }
            }
        };
        for tombstone in tombstones {
            self.shared
                .parts
                .cache()
                .grants
                .invalidate_object(&tombstone.name);
        }
        removed
    }

    /// Counts and logs an outcome.
    fn judged(&self, tombstone: &Tombstone, removed: Removed) -> Result<(), NotFlushed> {
        let outcomes = &self.shared.outcomes.writes;
        let Err(failure) = removed else {
            outcomes.count(WriteBackOutcome::Deleted);
            return Ok(());
        };
        outcomes.count(WriteBackOutcome::Failed);
        let (name, writer) = (&tombstone.name, &tombstone.record.writer);
        self.forget_permission(writer, name, &failure.error);
        let why = format!("its removal: {failure}");
        Err(match failure.error.remedy_of_removal() {
            _ if failure.may_exist => NotFlushed::Unknown(why.into()),
            None => NotFlushed::Lake(why.into()),
            Some(remedy) => {
                log_refused(name, &why, remedy);
                NotFlushed::Refused(format!("{why}; {remedy}").into())
            }
        })
    }
}

/// Returns the same failure for all of these.
fn all(tombstones: &[&Tombstone], error: LakeWriteError) -> Vec<Removed> {
    let failure = Arc::new(NotWritten::from(error));
    tombstones.iter().map(|_| Err(Arc::clone(&failure))).collect()
}

impl Batch<'_> {
    /// Removes all names by one request, and those that it cannot list or that the lake does not report by
    /// one each. Returns the outcome of each name.
    ///
    /// # Errors
    ///
    /// The lake reports no outcome at all.
    async fn remove_at_once(&self) -> Result<Vec<Removed>, LakeWriteError> {
        let keys: Vec<_> = self
            .tombstones
            .iter()
            .map(|tombstone| key_of(tombstone))
            .collect();
        let listed: Vec<_> = keys.iter().flatten().cloned().collect();
        let result = if listed.len() > 1 {
            self.remove_listed(listed).await?
        } else {
            DeletionResult::default()
        };
        let outcome = async |tombstone, key: Option<Key>| match key.and_then(|key| outcome_in(&result, &key))
        {
            Some(reported) => reported,
            None => self.remove_one(tombstone).await,
        };
        let each = self.tombstones.iter().zip(keys);
        let each: Vec<_> = each.map(|(tombstone, key)| outcome(tombstone, key)).collect();
        Ok(stream::iter(each).buffered(PARALLEL).collect().await)
    }

    async fn remove_listed(&self, keys: Vec<Key>) -> Result<DeletionResult, LakeWriteError> {
        let tombstone = self.tombstones[0];
        let mut request = self.client.delete_many(&tombstone.name.bucket, keys);
        request.headers.extend(tombstone.record.headers.clone());
        self.check()?;
        let answer = self.client.send(request, self.options()).await?;
        let document = answer.ok()?.settled()?;
        DeletionResult::read(&document).map_err(|_| LakeWriteError::Misunderstood)
    }

    /// Removes the names by one request each.
    async fn remove_each(&self) -> Vec<Removed> {
        let each: Vec<_> = self
            .tombstones
            .iter()
            .map(|tombstone| self.remove_one(tombstone))
            .collect();
        stream::iter(each).buffered(PARALLEL).collect().await
    }

    async fn remove_one(&self, tombstone: &Tombstone) -> Removed {
        let removed = self.ask_to_remove(tombstone).await;
        removed.map_err(|error| Arc::new(error.into()))
    }

    async fn ask_to_remove(&self, tombstone: &Tombstone) -> Result<(), LakeWriteError> {
        let target = target::of_object(&tombstone.name).expect("a name that is too long was refused");
        let request = self.client.delete(target);
        let request = request.with_headers(tombstone.record.headers.clone());
        self.check()?;
        let status = self.client.send(request, self.options()).await?.head.status;
        let is_gone = status.is_success() || status == StatusCode::NOT_FOUND;
        is_gone.then_some(()).ok_or(LakeWriteError::Refused(status))
    }

    fn options(&self) -> SendOptions<'_> {
        SendOptions::permitted_by(Some(&self.permit))
    }

    /// Checks the right to send before a request begins, as a flush does.
    fn check(&self) -> Result<(), LakeWriteError> {
        let may_send = self.permit.may_send();
        may_send.then_some(()).ok_or(LakeWriteError::SessionOver)
    }
}

fn tombstone_of(removal: &Flushing) -> Result<Tombstone, NotFlushed> {
    let name = object_name(removal.change.name()).ok_or_else(|| Unreadable::from(Malformed));
    let read = name.and_then(|name| Tombstone::new(&name, &removal.version));
    read.map_err(|why| {
        let why = format!("this build cannot read the record of the removal: {why}");
        NotFlushed::Lake(why.into())
    })
}

/// Returns the key of a tombstone in a list, or `None` if lakes may not read it there as it is: XML has no
/// control characters, and some trim texts.
fn key_of(tombstone: &Tombstone) -> Option<Key> {
    let key = from_utf8(&tombstone.name.key).ok()?;
    let is_text = |character: char| !character.is_control() && !matches!(character, '\u{fffe}' | '\u{ffff}');
    (key.chars().all(is_text) && key.trim() == key).then(|| Key {
        key: key.to_owned(),
        ..Key::default()
    })
}

/// Returns the outcome that the lake reports for a key, if it reports one.
fn outcome_in(result: &DeletionResult, key: &Key) -> Option<Removed> {
    let Some(refusal) = result.refusal(key) else {
        return result.is_removed(key).then_some(Ok(()));
    };
    let error = match ErrorCode::named(&refusal.code) {
        Some(ErrorCode::NoSuchKey) => return Some(Ok(())),
        Some(code) => LakeWriteError::Refused(code.status()),
        None => LakeWriteError::Misunderstood,
    };
    Some(Err(Arc::new(error.into())))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use shoal_s3::object::ObjectName;
    use shoal_s3::xml::DeletionResult;

    use super::{Key, Tombstone, key_of, outcome_in};
    use crate::dirty::record::tombstone::RemovalRecord;

    #[test]
    fn a_key_that_xml_cannot_hold_is_in_no_list() {
        let of = |key: &[u8]| {
            let name = ObjectName {
                bucket: "b".into(),
                key: key.into(),
                version: None,
            };
            let record = RemovalRecord {
                writer: "AK".into(),
                headers: HeaderMap::new(),
            };
            key_of(&Tombstone { name, record }).map(|key| key.key)
        };
        assert_eq!(of("tmp/é <&>".as_bytes()).as_deref(), Some("tmp/é <&>"));
        for key in [
            &b"a\x01"[..],
            b"a\r",
            b" a",
            b"a\n",
            b"\xff",
            "\u{fffe}".as_bytes(),
        ] {
            assert_eq!(of(key), None, "{key:?}");
        }
    }

    #[test]
    fn a_name_is_removed_if_the_lake_says_so_or_has_no_such_object() {
        let outcome = |answer: &str| {
            let result = format!("<DeleteResult>{answer}</DeleteResult>");
            let result = DeletionResult::read(result.as_bytes()).unwrap();
            let key = Key {
                key: "k".into(),
                ..Key::default()
            };
            let outcome = outcome_in(&result, &key);
            outcome.map(|outcome| outcome.map_err(|error| (error.to_string(), error.may_exist)))
        };
        let error = |code: &str| outcome(&format!("<Error><Key>k</Key><Code>{code}</Code></Error>"));
        assert_eq!(outcome("<Deleted><Key>k</Key></Deleted>"), Some(Ok(())));
        assert_eq!(error("NoSuchKey"), Some(Ok(())));
        assert_eq!(outcome("<Deleted><Key>j</Key></Deleted>"), None);
        let refused = error("AccessDenied").unwrap().unwrap_err();
        assert_eq!(refused, ("the lake answered 403 Forbidden".to_owned(), false));
        for code in ["InternalError", "NoSuchThing"] {
            assert!(error(code).unwrap().unwrap_err().1, "{code} leaves it open");
        }
    }
}
