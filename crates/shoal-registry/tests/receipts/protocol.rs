//! The states of the model, and what may happen next in each.

use std::collections::BTreeSet;

use shoal_registry::entry::{Busy, Entry, Kind, Owner, Versioned};
use shoal_registry::receipts::{ReceiptId, Receipts, restored};
use ulid::Ulid;

/// The number of replaced versions whose receipts an entry lists before a write removes them.
const REPLACED_MAX: usize = 1;

/// The lake's object at the start.
const AT_START: u8 = 100;

/// The operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// Writes an object into the tier.
    Put,
    /// Removes the object by a tombstone.
    Remove,
    /// Writes an object to the lake while nothing is dirty.
    Through,
}

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    CommitsFirst,
    RemovesBeforeTheLake,
    RemovesAfterTheEnd,
    RemovesTheNewestFirst,
    LeavesReplaced,
    IgnoresTheOrderOfIds,
    NoReceiptOfTombstones,
    SweepsWithoutFence,
    RemovesTheUnknown,
    PrunesTheCurrent,
    ListsTheNewestOnly,
}

/// A part of the model to search.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) works: Vec<Work>,
    pub(crate) planted: Option<Planted>,
}

impl Case {
    pub(crate) fn new(works: &[Work]) -> Self {
        Self {
            works: works.to_vec(),
            planted: None,
        }
    }

    fn lacks(&self, rule: Planted) -> bool {
        self.planted == Some(rule)
    }
}

/// A dirty object or a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Version {
    id: u8,
    is_tombstone: bool,
}

impl Versioned for Version {
    fn id(&self) -> Ulid {
        ulid(self.id)
    }
}

impl Version {
    /// What readers find: the number of an object, or 0 for none.
    fn value(self) -> u8 {
        if self.is_tombstone { 0 } else { self.id }
    }
}

fn ulid(id: u8) -> Ulid {
    Ulid(id.into())
}

fn receipt(id: u8) -> ReceiptId {
    ReceiptId {
        id: ulid(id),
        node: 0,
    }
}

fn number(receipt: ReceiptId) -> u8 {
    u8::try_from(receipt.id.0).expect("ids are small")
}

/// How far the operation of a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// It has not begun.
    Start,
    /// It has an id, and no receipt.
    Named(Version),
    /// Its receipt is stored.
    Stored(Version),
    /// Its client does not know the outcome; the commit may still happen.
    Late(Version),
    /// Its client does not know the outcome. It has not been committed, and will not be by its node.
    Orphan(Version),
    /// It has happened.
    Happened,
    /// It has not happened, and its client may know.
    Never,
}

/// How far a flush is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Flush {
    None,
    Begun(Version),
    AtLake(Version),
    /// Ended in the registry before its receipts are removed: only with a planted fault.
    Ended(Version),
}

/// A state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    entry: Entry<Version>,
    listed: Receipts,
    /// The receipts in the tier's store.
    store: BTreeSet<Version>,
    /// The lake's object, or 0.
    lake: u8,
    clients: Vec<At>,
    flush: Flush,
    was_lost: bool,
}

impl State {
    pub(crate) fn new(case: &Case) -> Self {
        Self {
            entry: Entry::default(),
            listed: Receipts::default(),
            store: BTreeSet::new(),
            lake: AT_START,
            clients: vec![At::Start; case.works.len()],
            flush: Flush::None,
            was_lost: false,
        }
    }

    /// What readers find.
    fn truth(&self) -> u8 {
        self.entry.current.map_or(self.lake, Version::value)
    }

    /// What they would find if the registry were recovered now.
    fn remade(&self) -> u8 {
        self.store.last().map_or(self.lake, |newest| newest.value())
    }

    /// Checks that a registry that is recovered now means what this one does. Operations whose outcome is
    /// unknown may happen by that.
    pub(crate) fn check(&self) -> Result<(), String> {
        let may_happen = self.store.last().is_some_and(|newest| {
            let mut pending = self.clients.iter();
            pending.any(|at| matches!(at, At::Stored(of) | At::Late(of) | At::Orphan(of) if of == newest))
        });
        if self.remade() == self.truth() || may_happen {
            return Ok(());
        }
        Err(format!(
            "readers find {}, and would find {}",
            self.truth(),
            self.remade()
        ))
    }

    /// Returns all that may happen next.
    pub(crate) fn next(&self, case: &Case) -> Vec<(String, Self)> {
        let mut next = Vec::new();
        for client in 0..self.clients.len() {
            self.client(case, client, &mut next);
        }
        self.flusher(case, &mut next);
        if !self.was_lost {
            next.push(("the registry is lost and recovered".into(), self.recovered(case)));
        }
        next
    }

    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut after = self.clone();
        change(&mut after);
        after
    }

    fn client(&self, case: &Case, client: usize, next: &mut Vec<(String, Self)>) {
        let mut add = |step: &str, after: Self| next.push((format!("client {client} {step}"), after));
        match self.clients[client] {
            At::Start if case.works[client] == Work::Through => {
                if self.entry.is_empty() {
                    let value = AT_START + 1 + client as u8;
                    let after = self.with(|after| {
                        after.lake = value;
                        after.clients[client] = At::Happened;
                    });
                    add("writes to the lake", after);
                }
            }
            At::Start => {
                let is_tombstone = case.works[client] == Work::Remove;
                let taken = |id| self.ids().any(|taken| taken == id);
                for id in (1..=case.works.len() as u8 + 1).filter(|id| !taken(*id)) {
                    let version = Version { id, is_tombstone };
                    add(&format!("takes the id {id}"), self.at(client, At::Named(version)));
                }
            }
            At::Named(version) => {
                let needs_none = case.lacks(Planted::NoReceiptOfTombstones) && version.is_tombstone;
                let mut after = self.at(client, At::Stored(version));
                if !needs_none && !case.lacks(Planted::CommitsFirst) {
                    after.store.insert(version);
                }
                add("stores its receipt", after);
            }
            At::Stored(version) => {
                self.prune(case, client, version, next);
                let mut add = |step: &str, after: Self| next.push((format!("client {client} {step}"), after));
                if let Some(after) = self.committed(case, client, version) {
                    add("commits", after);
                } else if self.is_outdated(case, version) {
                    let after = self
                        .at(client, At::Never)
                        .with(|after| _ = after.store.remove(&version));
                    add("is outdated", after);
                }
                add("crashes as it commits", self.at(client, At::Late(version)));
                let unknown = self.at(client, At::Late(version)).with(|after| {
                    if case.lacks(Planted::RemovesTheUnknown) {
                        after.store.remove(&version);
                    }
                });
                add("gets no answer", unknown);
            }
            At::Late(version) => {
                if let Some(after) = self.committed(case, client, version) {
                    add("commits late", after);
                }
                add("cannot commit any more", self.at(client, At::Orphan(version)));
                if case.lacks(Planted::SweepsWithoutFence) && self.listed.of(version.id()).is_none() {
                    add("is swept", self.with(|after| _ = after.store.remove(&version)));
                }
            }
            At::Orphan(version) if self.listed.of(version.id()).is_none() => {
                let after = self
                    .at(client, At::Never)
                    .with(|after| _ = after.store.remove(&version));
                add("is swept", after);
            }
            At::Orphan(_) | At::Happened | At::Never => {}
        }
    }

    /// The ids that are taken.
    fn ids(&self) -> impl Iterator<Item = u8> {
        let clients = self.clients.iter().filter_map(|at| match at {
            At::Named(of) | At::Stored(of) | At::Late(of) | At::Orphan(of) => Some(of.id),
            At::Start | At::Happened | At::Never => None,
        });
        let rest = self.store.iter().chain(&self.entry.current).map(|of| of.id);
        let listed = self.listed.ids().iter().map(|of| number(*of));
        clients
            .chain(rest)
            .chain(listed)
            .chain((self.lake < AT_START).then_some(self.lake))
    }

    fn at(&self, client: usize, at: At) -> Self {
        self.with(|after| after.clients[client] = at)
    }

    fn is_outdated(&self, case: &Case, version: Version) -> bool {
        !case.lacks(Planted::IgnoresTheOrderOfIds) && self.entry.current_id() > Some(version.id())
    }

    fn is_full(&self) -> bool {
        let current = self.entry.current_id();
        current.is_some_and(|current| self.listed.before(current).ids().len() >= REPLACED_MAX)
    }

    /// A write removes receipts of versions that were replaced before.
    fn prune(&self, case: &Case, client: usize, version: Version, next: &mut Vec<(String, Self)>) {
        if !self.is_full() || self.is_outdated(case, version) {
            return;
        }
        let current = self.entry.current_id().expect("a full entry has a version");
        let mut old = self.listed.before(current);
        if case.lacks(Planted::PrunesTheCurrent) {
            old = self.listed.clone();
        }
        for old in old.ids() {
            let after = self.with(|after| after.store.retain(|stored| stored.id() != old.id));
            if after != *self {
                next.push((
                    format!("client {client} removes the receipt of {}", number(*old)),
                    after,
                ));
            }
        }
    }

    /// The state after the commit of a write, if it may happen.
    fn committed(&self, case: &Case, client: usize, version: Version) -> Option<Self> {
        if self.is_outdated(case, version) {
            return None;
        }
        let mut listed = self.listed.clone();
        if let Some(current) = self.entry.current_id().filter(|_| self.is_full()) {
            let old = listed.before(current);
            if old
                .ids()
                .iter()
                .any(|old| self.store.iter().any(|stored| stored.id() == old.id))
            {
                return None;
            }
            listed = listed.since(current);
        }
        let is_swept = !self.store.contains(&version) && !case.lacks(Planted::CommitsFirst);
        let has_receipt = !(is_swept && case.lacks(Planted::NoReceiptOfTombstones));
        Some(self.at(client, At::Happened).with(|after| {
            after.entry = self.entry.written(version);
            after.listed = if has_receipt {
                listed.with(receipt(version.id))
            } else {
                listed
            };
        }))
    }

    fn flusher(&self, case: &Case, next: &mut Vec<(String, Self)>) {
        let mut add = |step: String, after: Self| next.push((step, after));
        match self.flush {
            Flush::None => {
                if let Some(busy) = self.entry.busy {
                    let entry = self.entry.given_up(busy.token).expect("it is in the entry");
                    add(
                        "a flush is given up".into(),
                        self.with(|after| after.entry = entry),
                    );
                } else if let Some(current) = self.entry.current {
                    let busy = Busy {
                        kind: Kind::Flush,
                        owner: Owner {
                            node: 0,
                            life: ulid(0),
                        },
                        token: ulid(0),
                        of: Some(current.id()),
                    };
                    let after = self.with(|after| {
                        after.entry = self.entry.begun(busy).expect("nothing is in flight");
                        after.flush = Flush::Begun(current);
                    });
                    add(format!("a flush of {} begins", current.id), after);
                }
                return;
            }
            Flush::Begun(version) => {
                if case.lacks(Planted::RemovesBeforeTheLake) {
                    self.remove_receipts(case, version, &mut add);
                }
                let after = self.with(|after| {
                    after.lake = version.value();
                    after.flush = Flush::AtLake(version);
                });
                add(format!("the lake gets {}", version.value()), after);
            }
            Flush::AtLake(version) => {
                let are_gone = self.remove_receipts(case, version, &mut add);
                if case.lacks(Planted::RemovesAfterTheEnd) {
                    let after = self
                        .ended(version)
                        .with(|after| after.flush = Flush::Ended(version));
                    add("the flush ends".into(), after);
                } else if are_gone {
                    add("the flush ends".into(), self.ended(version));
                }
            }
            Flush::Ended(version) => {
                self.remove_receipts(case, version, &mut add);
            }
        }
        add(
            "the flusher crashes".into(),
            self.with(|after| after.flush = Flush::None),
        );
    }

    fn ended(&self, version: Version) -> Self {
        let busy = self.entry.busy.expect("a change ends once");
        self.with(|after| {
            after.entry = self.entry.done(busy.token).expect("it is in the entry");
            after.listed = self.listed.after(version.id());
            after.flush = Flush::None;
        })
    }

    /// Removes one receipt, as the rules want it. Returns true if all are gone.
    fn remove_receipts(&self, case: &Case, version: Version, add: &mut impl FnMut(String, Self)) -> bool {
        let in_store = |receipts: Receipts| {
            let ids = receipts.ids().to_vec();
            let stored = self.store.iter().copied();
            stored
                .filter(move |stored| ids.iter().any(|of| of.id == stored.id()))
                .collect::<Vec<_>>()
        };
        let replaced = in_store(self.listed.before(version.id()));
        let own: Vec<_> = self.store.get(&version).copied().into_iter().collect();
        let (first, then) = match case.planted {
            Some(Planted::RemovesTheNewestFirst) => (own, replaced),
            Some(Planted::LeavesReplaced) => (Vec::new(), own),
            _ => (replaced, own),
        };
        let gone = if first.is_empty() { then } else { first };
        for version in &gone {
            let after = self.with(|after| _ = after.store.remove(version));
            add(format!("the receipt of {} is removed", version.id), after);
        }
        gone.is_empty()
    }

    /// The state with a new registry. Commits of the old one do not happen any more.
    fn recovered(&self, case: &Case) -> Self {
        self.with(|after| {
            (after.entry, after.listed) = Default::default();
            for version in &self.store {
                let found = (&after.entry, &after.listed);
                (after.entry, after.listed) = restored(found, *version, receipt(version.id));
                if case.lacks(Planted::ListsTheNewestOnly) {
                    after.listed = Receipts::default().with(receipt(version.id));
                }
            }
            for at in &mut after.clients {
                *at = match *at {
                    At::Stored(of) | At::Late(of) | At::Orphan(of) if self.store.contains(&of) => {
                        At::Happened
                    }
                    At::Named(_) | At::Stored(_) | At::Late(_) | At::Orphan(_) => At::Never,
                    at => at,
                };
            }
            after.flush = Flush::None;
            after.was_lost = true;
        })
    }
}
