//! Remembers answers of the lake for a limited time.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shoal_net::clock;
use shoal_s3::identity::CallerId;

use super::Group;

/// How long answers stay valid while the lake is silent.
pub(in crate::dirty) const SILENCE_MAX: Duration = Duration::from_mins(10);

/// Number of permissions that are remembered. When it is exceeded, all are forgotten.
const GRANTS_MAX: usize = 10_000;

/// Number of refusal counters, half a mebibyte. Pairs of caller and bucket share them by a hash that no
/// client knows. A refusal also ends the permissions of pairs with the same counter, which costs a question
/// each.
const COUNTS: usize = 65_536;

/// The permissions that the lake has granted.
pub(super) struct GrantMemory {
    /// Each permission, with the refusals of its caller in its bucket when it was asked for. It ends when
    /// there is another one.
    granted: Memory<Group, u64>,
    refusals: Vec<AtomicU64>,
    hasher: foldhash::fast::RandomState,
}

/// Taken when a question is sent, to detect refusals before its answer.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    at: Instant,
    refusals: u64,
}

impl GrantMemory {
    /// Remembers each permission for the time `lasts`.
    pub(super) fn new(lasts: Duration) -> Self {
        Self {
            granted: Memory::new(lasts, GRANTS_MAX),
            refusals: (0..COUNTS).map(|_| AtomicU64::new(0)).collect(),
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    /// Returns true if permissions are not remembered at all.
    pub(super) fn is_forgetful(&self) -> bool {
        self.granted.lasts.is_zero()
    }

    /// Returns true if the permission is remembered and still valid.
    pub(super) fn has(&self, group: &Group) -> bool {
        self.has_within(group, self.granted.lasts)
    }

    /// Returns true if the permission is remembered and younger than `age_max`.
    pub(super) fn has_within(&self, group: &Group, age_max: Duration) -> bool {
        self.granted.get_within(group, age_max) == Some(self.stamp(group).refusals)
    }

    pub(super) fn stamp(&self, group: &Group) -> Stamp {
        Stamp {
            at: clock::instant(),
            refusals: self.count(group.caller, &group.bucket).load(Ordering::Acquire),
        }
    }

    /// Remembers a permission, unless there was a refusal since `stamp`.
    pub(super) fn learn(&self, group: &Group, stamp: Stamp) {
        if !self.is_forgetful() && self.stamp(group).refusals == stamp.refusals {
            self.granted.learn_at(group.clone(), stamp.refusals, stamp.at);
        }
    }

    /// Revokes a caller's permissions for a bucket, including those of questions in flight.
    pub(super) fn forget(&self, caller: CallerId, bucket: &str) {
        self.count(caller, bucket).fetch_add(1, Ordering::AcqRel);
    }

    fn count(&self, caller: CallerId, bucket: &str) -> &AtomicU64 {
        &self.refusals[self.hasher.hash_one((caller, bucket)) as usize % COUNTS]
    }
}

/// Remembers answers of any type.
pub(in crate::dirty) struct Memory<K, V> {
    lasts: Duration,
    answers_max: usize,
    answers: Mutex<HashMap<K, (V, Instant)>>,
}

impl<K: Eq + Hash, V: Clone> Memory<K, V> {
    /// Remembers each answer for the time `lasts`. When `answers_max` is exceeded, all are forgotten.
    pub(in crate::dirty) fn new(lasts: Duration, answers_max: usize) -> Self {
        Self {
            lasts,
            answers_max,
            answers: Mutex::default(),
        }
    }

    pub(in crate::dirty) fn get(&self, key: &K) -> Option<V> {
        self.get_within(key, self.lasts)
    }

    /// Returns the latest answer if it is younger than `age_max`.
    pub(in crate::dirty) fn get_within(&self, key: &K, age_max: Duration) -> Option<V> {
        let answers = self.answers.lock();
        let (answer, since) = answers.get(key)?;
        let age = clock::instant().saturating_duration_since(*since);
        (age < age_max).then(|| answer.clone())
    }

    pub(in crate::dirty) fn learn(&self, key: K, answer: V) {
        self.learn_at(key, answer, clock::instant());
    }

    fn learn_at(&self, key: K, answer: V, since: Instant) {
        let mut answers = self.answers.lock();
        if answers.len() >= self.answers_max {
            answers.clear();
        }
        answers.insert(key, (answer, since));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use shoal_s3::identity::CallerId;

    use super::{GRANTS_MAX, GrantMemory, Memory, SILENCE_MAX};
    use crate::dirty::permission::{Action, Group};

    const HOUR: Duration = Duration::from_hours(1);

    fn group(caller: u32, bucket: &str, rule: usize, action: &Action) -> Group {
        Group {
            caller: CallerId(caller),
            bucket: Arc::from(bucket),
            rule,
            kind: std::mem::discriminant(action),
            folder: Box::default(),
        }
    }

    fn learn(granted: &GrantMemory, group: &Group) {
        granted.learn(group, granted.stamp(group));
    }

    #[test]
    fn a_yes_is_one_callers_for_one_bucket_rule_and_kind() {
        let granted = GrantMemory::new(HOUR);
        let own = group(1, "b", 0, &Action::Write);
        learn(&granted, &own);
        assert!(granted.has(&own));
        let folder = Group {
            folder: b"x/".as_slice().into(),
            ..own.clone()
        };
        for other in [
            folder,
            group(2, "b", 0, &Action::Write),
            group(1, "c", 0, &Action::Write),
            group(1, "b", 1, &Action::Write),
            group(1, "b", 0, &Action::Remove),
        ] {
            assert!(!granted.has(&other), "{other:?}");
        }
        let forgetful = GrantMemory::new(Duration::ZERO);
        learn(&forgetful, &own);
        assert!(!forgetful.has(&own));
    }

    #[test]
    fn a_yes_that_is_too_old_still_holds_for_a_silent_lake_and_never_without_memory() {
        let own = group(1, "b", 0, &Action::Back);
        for (lasts, outlives) in [(Duration::from_nanos(1), true), (Duration::ZERO, false)] {
            let granted = GrantMemory::new(lasts);
            learn(&granted, &own);
            assert_eq!(
                (granted.has(&own), granted.has_within(&own, SILENCE_MAX)),
                (false, outlives)
            );
            granted.forget(CallerId(1), "b");
            assert!(!granted.has_within(&own, SILENCE_MAX), "a refusal has ended it");
        }
    }

    #[test]
    fn a_refusal_ends_every_yes_about_its_bucket_and_the_one_that_is_on_its_way() {
        let granted = GrantMemory::new(HOUR);
        let (write, remove) = (
            group(1, "b", 0, &Action::Write),
            group(1, "b", 1, &Action::Remove),
        );
        let (other, elsewhere) = (group(2, "b", 0, &Action::Write), group(1, "c", 0, &Action::Write));
        for group in [&write, &remove, &other, &elsewhere] {
            learn(&granted, group);
        }
        let stamp = granted.stamp(&write);
        granted.forget(CallerId(1), "b");
        granted.learn(&write, stamp);
        let kept = [&write, &remove, &other, &elsewhere].map(|group| granted.has(group));
        assert_eq!(kept, [false, false, true, true]);
        learn(&granted, &write);
        assert!(granted.has(&write), "it was asked for after the refusal");
    }

    #[test]
    fn no_more_than_so_many_answers_are_remembered() {
        let memory = Memory::new(HOUR, 10);
        memory.learn(0, true);
        assert_eq!((memory.get(&0), memory.get(&1)), (Some(true), None));
        for key in 1..=10 {
            memory.learn(key, false);
        }
        assert_eq!((memory.get(&0), memory.get(&10)), (None, Some(false)));
        let granted = GrantMemory::new(HOUR);
        for caller in 0..=GRANTS_MAX {
            learn(
                &granted,
                &group(u32::try_from(caller).unwrap(), "b", 0, &Action::Write),
            );
        }
        assert!(!granted.has(&group(0, "b", 0, &Action::Write)));
        assert_eq!(granted.granted.answers.lock().len(), 1);
    }
}
