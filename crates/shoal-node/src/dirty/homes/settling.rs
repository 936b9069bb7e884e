//! How a node becomes sure that it knows what it is home to.
//!
//! When the members of the last layer change, names have other homes. Every node then asks every other one
//! for what it is home to now. A node answers only those who see the members as it does. Who has heard
//! everybody has *settled*: whatever was acknowledged before, it knows. Until then it decides nothing, and
//! says so.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shoal_policy::{NodeId, ObjectId};

use super::home::{Home, takes_part};
use super::messenger::Answer;
use super::page::Page;
use super::records::KeepError;
use super::request::Request;
use super::view::View;
use crate::clock;
use crate::dirty::manifest::Manifest;
use crate::shutdown::Shutdown;

/// How often a node looks whether the members have changed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A node that did not run for so long may have been declared dead, and others decide in its place.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A node that cooperates and sees nobody may not have heard from anybody yet.
const LONELINESS: Duration = Duration::from_secs(2);

/// Of what is no longer dirty, and was not told so, this node hears by and by.
const AUDIT_EVERY: Duration = Duration::from_secs(30);

/// The home of a name is the last to keep a manifest: it may not know yet what was written a moment ago.
const COMMIT_MAX: Duration = Duration::from_mins(1);

/// A lost object is shown for a day.
const LOST_SHOWN: Duration = Duration::from_hours(24);

/// Who has which write of an object.
type Vouchers = HashMap<(ObjectId, u64), HashSet<NodeId>>;

impl Home {
    /// Keeps this node sure of what it is home to until it stops. `cooperates`: others may be there although
    /// none is seen.
    pub(crate) async fn keep_settled(self: Arc<Self>, cooperates: bool, stopping: Shutdown) {
        let began = clock::instant();
        let (mut looked, mut audit_at) = (began, began);
        loop {
            let now = clock::instant();
            if now.saturating_duration_since(looked) > PAUSE_MAX {
                *self.settled.lock() = None;
            }
            looked = now;
            let view = View::of(&self.cooperation);
            let is_settled = *self.settled.lock() == Some(view.digest);
            let may_be_lonely =
                cooperates && view.members().len() == 1 && now.saturating_duration_since(began) < LONELINESS;
            if !is_settled && !may_be_lonely {
                if self.settle(&view).await {
                    audit_at = now;
                }
            } else if is_settled && audit_at <= now {
                let is_done = self.audit(&view, clock::utc_now()).await;
                audit_at = now + if is_done { AUDIT_EVERY } else { LOOK_EVERY };
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = stopping.begun() => return,
            }
        }
    }

    /// Hears everybody; settled at the end, unless somebody was silent, or saw other members.
    async fn settle(&self, view: &View) -> bool {
        *self.settled.lock() = None;
        let mut vouchers = Vouchers::new();
        for node in view.others() {
            if !self.hear(view, node, &mut vouchers).await {
                return false;
            }
        }
        for manifest in self.at_home(view) {
            self.review(view, &manifest, &vouchers);
        }
        if View::of(&self.cooperation).digest != view.digest {
            return false;
        }
        *self.settled.lock() = Some(view.digest);
        tracing::debug!(
            members = view.members().len(),
            "this node knows which dirty objects are at home here"
        );
        true
    }

    /// Takes over what a node has that this one is home to now.
    async fn hear(&self, view: &View, node: NodeId, vouchers: &mut Vouchers) -> bool {
        let mut after = None;
        loop {
            let request = Request::Sync {
                view: view.digest,
                node: view.me,
                after,
            };
            let Ok(Answer::Done(body)) = self.messenger.say(node, &request).await else {
                return false;
            };
            let Ok(page) = Page::read(&body) else {
                return false;
            };
            for (name, sequence) in &page.gone {
                if self.records.drop_up_to(name, *sequence).await.is_err() {
                    return false;
                }
            }
            after = page.manifests.last().map(|last| last.name.clone());
            for manifest in page.manifests {
                let voucher = vouchers.entry((manifest.version.object, manifest.sequence));
                voucher.or_default().insert(node);
                match self.records.note(manifest).await {
                    Ok(()) | Err(KeepError::Overtaken) => {}
                    Err(error) => {
                        tracing::warn!(%error, "a dirty object that is at home here is not kept");
                        return false;
                    }
                }
            }
            if !page.more {
                return true;
            }
        }
    }

    /// Whether an object is whole: everybody who holds a part of it is there and has it.
    fn review(&self, view: &View, manifest: &Manifest, vouchers: &Vouchers) {
        let object = manifest.version.object;
        let vouched = vouchers.get(&(object, manifest.sequence));
        let has = |node: &NodeId| {
            if *node == view.me {
                self.records.vouches_for(manifest)
            } else {
                vouched.is_some_and(|vouched| vouched.contains(node))
            }
        };
        let is_whole = manifest.placement.nodes().iter().all(has);
        if !self.schedule.lock().knows(object) {
            let due = clock::instant() + self.flush_interval;
            self.schedule.lock().expect(object, due);
        }
        self.set_lost(manifest, !is_whole);
    }

    /// Drops what is no longer dirty and was not told so, what others keep now, and what was lost long ago.
    /// `false`: not every home could say.
    async fn audit(&self, view: &View, now: SystemTime) -> bool {
        let mut all_said = true;
        for manifest in self.records.all(None) {
            let homes = view.homes(manifest.version.object);
            let written = SystemTime::UNIX_EPOCH + Duration::from_micros(manifest.sequence);
            let age = now.duration_since(written).unwrap_or_default();
            match homes.first() {
                Some(home) if *home == view.me && age > LOST_SHOWN => self.drop_lost(&manifest).await,
                Some(home) if *home != view.me && (age > COMMIT_MAX || !takes_part(view, &manifest)) => {
                    all_said &= self.compare(view, *home, &manifest).await;
                }
                _ => {}
            }
        }
        all_said
    }

    async fn drop_lost(&self, manifest: &Manifest) {
        let is_lost = self.schedule.lock().is_lost(manifest.version.object);
        if is_lost && self.forget(manifest).await {
            self.schedule.lock().forget(manifest.version.object);
        }
    }

    /// Holds a manifest against what its home knows; whether the home could say.
    async fn compare(&self, view: &View, home: NodeId, manifest: &Manifest) -> bool {
        let request = Request::Find {
            view: view.digest,
            name: manifest.name.clone(),
        };
        let (has_said, is_overtaken) = match self.messenger.say(home, &request).await {
            Ok(Answer::Nothing) => (true, true),
            Ok(Answer::Done(body) | Answer::Lost(body)) => {
                let known = Manifest::of_bytes(&body).map(|known| known.sequence);
                let is_overtaken = known.is_ok_and(|known| known > manifest.sequence);
                (known.is_ok(), is_overtaken)
            }
            _ => (false, false),
        };
        if has_said && !takes_part(view, manifest) {
            // A write under way is none of this view: its home would not be settled in it.
            self.let_go(manifest).await;
        } else if is_overtaken {
            self.drop_here(&manifest.name, manifest.sequence).await;
        }
        has_said
    }
}
