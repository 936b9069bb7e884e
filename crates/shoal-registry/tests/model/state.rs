//! A state of the model: the entry, the lake, the requests on their way, and how far each process is.

use std::fmt;

use shoal_registry::entry::{Busy, Entry, Kind, Owner, Versioned};
use ulid::Ulid;

use super::monitor::Explanations;

/// The number of nodes.
pub(crate) const NODES: usize = 3;
/// Each node has a flusher: the processes 0, 1 and 2. Two more processes tend the entries of others: they
/// clear the changes of dead owners and remove empty entries. They are on no node in particular.
pub(crate) const FIRST_TENDER: usize = NODES;
/// The first process that serves a client.
pub(crate) const FIRST_CLIENT: usize = FIRST_TENDER + 2;
/// The maximum number of clients at a time.
pub(crate) const CLIENTS: usize = 5;
/// The number of processes.
pub(crate) const PROCESSES: usize = FIRST_CLIENT + CLIENTS;

/// A dirty object. In the model an object is a number; 0 stands for none. A tombstone is one, too: it has a
/// number of its own with this bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Object(pub(crate) u8);

/// The bit in the number of a tombstone.
pub(crate) const TOMBSTONE: u8 = 0x80;

/// The object that a read finds if it finds this dirty one: none if it is a tombstone.
pub(crate) fn value(dirty: u8) -> u8 {
    if is_tombstone(dirty) { 0 } else { dirty }
}

/// Returns true if a dirty object is a tombstone.
pub(crate) fn is_tombstone(dirty: u8) -> bool {
    dirty & TOMBSTONE != 0
}

impl Versioned for Object {
    fn id(&self) -> Ulid {
        Ulid(u128::from(self.0))
    }
}

/// An entry, small enough to be kept millions of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Packed {
    pub(crate) current: u8,
    pub(crate) busy: Option<PackedBusy>,
}

/// A change of the name that is on its way to the lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PackedBusy {
    pub(crate) kind: Kind,
    pub(crate) owner: Life,
    pub(crate) token: u8,
    pub(crate) of: u8,
}

/// A node in one of its lives. Its number is less than that of the node's present life if its session has
/// ended, by a crash or because the node was frozen for long, or if the present life has taken it over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Life {
    pub(crate) node: u8,
    pub(crate) number: u8,
}

impl From<Packed> for Entry<Object> {
    fn from(packed: Packed) -> Self {
        Self {
            current: Some(Object(packed.current)).filter(|object| object.0 != 0),
            busy: packed.busy.map(|busy| Busy {
                kind: busy.kind,
                owner: Owner {
                    node: u64::from(busy.owner.node),
                    life: Ulid(u128::from(busy.owner.number)),
                },
                token: Ulid(u128::from(busy.token)),
                of: Some(Ulid(u128::from(busy.of))).filter(|of| of.0 != 0),
            }),
        }
    }
}

impl From<Entry<Object>> for Packed {
    fn from(entry: Entry<Object>) -> Self {
        Self {
            current: entry.current.map_or(0, |object| object.0),
            busy: entry.busy.map(|busy| PackedBusy {
                kind: busy.kind,
                owner: Life {
                    node: busy.owner.node as u8,
                    number: busy.owner.life.0 as u8,
                },
                token: busy.token.0 as u8,
                of: busy.of.map_or(0, |of| of.0 as u8),
            }),
        }
    }
}

/// The revision that a process has read, as far as it matters: whether it is still the entry's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stamp {
    /// There was no entry. It is so again once an entry has come and gone.
    Absent,
    /// The entry has not changed since.
    Unchanged,
    /// The entry has changed since, or the process read it longer ago than it may rely on.
    Outdated,
}

/// The outcome of a commit in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Left {
    /// This entry.
    Entry(Packed),
    /// No entry. It has been empty for longer than a process may rely on a read, and than a commit is on its
    /// way.
    Nothing,
    /// No entry, as before the change that leaves it.
    NothingAtOnce,
}

impl Left {
    pub(crate) fn entry(self) -> Option<Packed> {
        match self {
            Self::Entry(entry) => Some(entry),
            Self::Nothing | Self::NothingAtOnce => None,
        }
    }
}

impl From<Entry<Object>> for Left {
    fn from(entry: Entry<Object>) -> Self {
        Self::Entry(entry.into())
    }
}

/// The use that a process has for a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// To look whether the entry is still the same.
    Get,
    /// As the condition of a commit.
    Commit,
}

/// A reading of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) stamp: Stamp,
    pub(crate) entry: Packed,
}

/// The work of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Work {
    Nothing,
    /// Brings dirty objects to the lake, again and again.
    Flush,
    /// Clears changes of dead owners and removes empty entries, again and again.
    Tend,
    Put,
    Get,
    Delete,
    /// A DELETE that is acknowledged at its tombstone.
    Remove,
    /// A PUT with `If-None-Match: *`.
    Create,
    /// A PUT with `If-Match`.
    Replace,
    /// A PUT that goes through the cache or around it.
    Write,
}

/// How far a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum At {
    /// It has not begun.
    Idle,
    /// It is about to read the entry.
    Start,
    /// The commit of its object has not been answered.
    PutUnsure(Stamp),
    /// It found no dirty object, and asks the lake.
    AsksLake(Stamp),
    /// The lake has no object; it is about to look at the entry again.
    LooksAgain(Stamp),
    /// Planted: it has asked the lake first, and got this.
    LakeSaid(u8),
    /// The commit that begins its change has not been answered.
    BeginUnsure { stamp: Stamp, token: u8 },
    /// Its change is in the entry; the request is not sent.
    Begun { token: u8, of: u8 },
    /// The request is in a buffer of the node.
    Buffered { token: u8, of: u8 },
    /// The request is sent.
    Waits { token: u8, of: u8 },
    /// The lake has answered.
    Answered { token: u8, of: u8, answer: LakeAnswer },
    /// The lake will not answer; the process waits for as long as the request may still be carried out.
    Silent { token: u8, of: u8 },
    /// Its client has no answer, or one with an unknown outcome.
    Unknown,
    /// Its client has an answer.
    Ended,
}

/// An answer of the lake to a request that changes the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LakeAnswer {
    Done,
    ConditionFailed,
    /// Nothing was done, for a reason of the lake.
    Refused,
}

/// A process: an operation of a client, a flusher, or a tender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) work: Work,
    pub(crate) at: At,
    /// The node and the life in which it began what it does.
    pub(crate) life: Life,
    /// The object that it writes.
    pub(crate) object: u8,
    /// The object that `If-Match` names.
    pub(crate) expects: u8,
    /// Its reading of the entry, if reading and committing are separate steps.
    pub(crate) seen: Option<Seen>,
    /// True if there was no entry before its change, and the entry has not changed since.
    pub(crate) alone: bool,
}

impl Process {
    pub(crate) fn new(work: Work, node: u8, object: u8, expects: u8) -> Self {
        Self {
            work,
            at: if work == Work::Nothing {
                At::Ended
            } else {
                At::Idle
            },
            life: Life { node, number: 0 },
            object,
            expects,
            seen: None,
            alone: false,
        }
    }

    pub(crate) fn is_client(&self) -> bool {
        !matches!(self.work, Work::Nothing | Work::Flush | Work::Tend)
    }

    /// Returns true if it has begun a change, or tries to.
    pub(crate) fn has_change(&self) -> bool {
        self.token().is_some()
    }

    fn token(&self) -> Option<u8> {
        match self.at {
            At::BeginUnsure { token, .. }
            | At::Begun { token, .. }
            | At::Buffered { token, .. }
            | At::Waits { token, .. }
            | At::Answered { token, .. }
            | At::Silent { token, .. } => Some(token),
            _ => None,
        }
    }

    /// The revisions that the process relies on, and whether it reads or commits with them.
    fn stamps(&mut self) -> impl Iterator<Item = (Use, &mut Stamp)> {
        let at = match &mut self.at {
            At::AsksLake(stamp) | At::LooksAgain(stamp) => Some((Use::Get, stamp)),
            At::PutUnsure(stamp) | At::BeginUnsure { stamp, .. } => Some((Use::Commit, stamp)),
            _ => None,
        };
        let seen = self.seen.as_mut().map(|seen| (Use::Commit, &mut seen.stamp));
        at.into_iter().chain(seen)
    }
}

/// A request that changes the name, on its way to the lake or at work there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) work: Work,
    /// The object that it writes.
    pub(crate) object: u8,
    pub(crate) expects: u8,
    pub(crate) owner: Life,
    pub(crate) token: u8,
    /// The process that sent it.
    pub(crate) sender: u8,
}

/// A commit that was not answered and may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LateCommit {
    pub(crate) stamp: Stamp,
    pub(crate) left: Left,
    /// The process that sent it.
    pub(crate) sender: u8,
}

/// A moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The entry in the registry.
    pub(crate) entry: Option<Packed>,
    /// The object at the lake.
    pub(crate) lake: u8,
    pub(crate) requests: Vec<Request>,
    pub(crate) late_commits: Vec<LateCommit>,
    /// The number of each node's present life.
    pub(crate) lives: [u8; NODES],
    /// The first life of each node whose session lasts by its own clock: less than the present one if that
    /// one has taken it over.
    pub(crate) lasting: [u8; NODES],
    pub(crate) processes: [Process; PROCESSES],
    pub(crate) explanations: Explanations,
    /// How many more nodes may crash or freeze.
    pub(crate) crashes_left: u8,
    /// How many more answers may be lost, late, or errors.
    pub(crate) losses_left: u8,
}

impl State {
    /// The entry as a process reads it now.
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            stamp: self.entry.map_or(Stamp::Absent, |_| Stamp::Unchanged),
            entry: self.entry.unwrap_or_default(),
        }
    }

    /// Returns true if the entry is as it was when a process read `stamp`.
    pub(crate) fn is_unchanged(&self, stamp: Stamp) -> bool {
        match stamp {
            Stamp::Absent => self.entry.is_none(),
            Stamp::Unchanged => true,
            Stamp::Outdated => false,
        }
    }

    /// The object that a read finds at this moment.
    pub(crate) fn visible(&self) -> u8 {
        match self.entry {
            Some(Packed { current, .. }) if current != 0 => value(current),
            _ => self.lake,
        }
    }

    /// Changes the entry, and with it what the stamps of all processes mean. `removed_during` is a planted
    /// bug.
    pub(crate) fn commit(&mut self, left: Left, removed_during: Option<Use>) {
        // An empty entry stays longer than a process may rely on a read, and than a commit is on its way:
        // when it is removed, no process relies on having seen no entry before.
        let is_outdated = |stamp: Stamp, is_for: Use| match stamp {
            Stamp::Unchanged => true,
            Stamp::Absent => left == Left::Nothing && removed_during != Some(is_for),
            Stamp::Outdated => false,
        };
        for process in &mut self.processes {
            process.alone = false;
            for (is_for, stamp) in process.stamps() {
                if is_outdated(*stamp, is_for) {
                    *stamp = Stamp::Outdated;
                }
            }
        }
        self.late_commits
            .retain(|late| !is_outdated(late.stamp, Use::Commit));
        self.entry = left.entry();
    }

    /// The present life of the node of `process`.
    pub(crate) fn present_life(&self, process: &Process) -> Life {
        let node = process.life.node;
        Life {
            node,
            number: self.lives[usize::from(node)],
        }
    }

    /// Returns whether the session of this life has ended, also by its own clock.
    pub(crate) fn has_lapsed(&self, life: Life) -> bool {
        life.number < self.lasting[usize::from(life.node)]
    }

    /// Returns whether a later life of the node has begun.
    pub(crate) fn is_succeeded(&self, life: Life) -> bool {
        life.number < self.lives[usize::from(life.node)]
    }

    /// Returns whether no process knows a change that is in the entry, and it does not begin once more. Its
    /// commit was late, and its process has seen another change since.
    pub(crate) fn is_unknown(&self, token: u8) -> bool {
        let is_late = |late: &LateCommit| {
            let busy = late.left.entry().and_then(|entry| entry.busy);
            busy.is_some_and(|busy| busy.token == token)
        };
        !self
            .processes
            .iter()
            .any(|process| process.token() == Some(token))
            && !self.requests.iter().any(|request| request.token == token)
            && !self.late_commits.iter().any(is_late)
    }

    /// A token that nothing refers to, and so is equivalent to an unused one.
    pub(crate) fn new_token(&self) -> u8 {
        let busy = |entry: Option<Packed>| entry.and_then(|entry| entry.busy).map(|busy| busy.token);
        let is_used = |token: u8| {
            busy(self.entry) == Some(token)
                || self.requests.iter().any(|request| request.token == token)
                || self
                    .late_commits
                    .iter()
                    .any(|late| busy(late.left.entry()) == Some(token))
                || self.processes.iter().any(|process| {
                    process.token() == Some(token) || busy(process.seen.map(|seen| seen.entry)) == Some(token)
                })
        };
        (1..=u8::MAX)
            .find(|&token| !is_used(token))
            .expect("there are more tokens than processes")
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entry {
            None => write!(formatter, "no entry")?,
            Some(entry) => {
                write!(formatter, "entry {}", Named(entry.current))?;
                if let Some(busy) = entry.busy {
                    let PackedBusy { kind, owner, of, .. } = busy;
                    let (node, life) = (owner.node, owner.number);
                    write!(formatter, ", {kind:?} of {} by {node}.{life}", Named(of))?;
                }
            }
        }
        write!(formatter, "; lake {}", Named(self.lake))?;
        for request in &self.requests {
            write!(
                formatter,
                "; on its way: {:?} {}",
                request.work,
                Named(request.object)
            )?;
        }
        for late in &self.late_commits {
            write!(
                formatter,
                "; late: {:?}",
                late.left.entry().map(|entry| entry.current)
            )?;
        }
        Ok(())
    }
}

/// An object as counter-examples show it.
pub(crate) struct Named(pub(crate) u8);

impl fmt::Display for Named {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => write!(formatter, "none"),
            dirty if is_tombstone(dirty) => write!(formatter, "tombstone {}", dirty & !TOMBSTONE),
            object => write!(formatter, "o{object}"),
        }
    }
}
