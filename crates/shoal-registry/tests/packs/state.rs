//! A state of the model: entries, root, lake, requests on their way, and how far each process is.

use std::fmt;

use shoal_registry::entry::{Entry, Versioned};
use ulid::Ulid;

use super::monitor::{Explanations, Open};

/// The number of names.
pub(crate) const NAMES: usize = 2;
/// Each node has a packer: the processes 0 and 1.
pub(crate) const NODES: usize = 2;
/// Rewrites packs, on node 0.
pub(crate) const KEEPER: usize = NODES;
/// The first process that serves a client.
pub(crate) const FIRST_CLIENT: usize = KEEPER + 1;
/// The maximum number of clients.
pub(crate) const CLIENTS: usize = 3;
pub(crate) const PROCESSES: usize = FIRST_CLIENT + CLIENTS;

/// The bit in the number of a tombstone.
const TOMBSTONE: u8 = 0x40;
/// The bit in the number of an object that is too large for a pack.
const LARGE: u8 = 0x20;

/// A dirty object or a tombstone. In the model it is a number, in the order of writing; 0 stands for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Object(pub(crate) u8);

impl Object {
    /// Returns true for an object that belongs into a pack.
    pub(crate) fn is_small(self) -> bool {
        self.0 & (TOMBSTONE | LARGE) == 0
    }
}

impl Versioned for Object {
    fn id(&self) -> Ulid {
        Ulid(u128::from(self.0))
    }
}

/// The object that a read finds where it finds this one: none if it is a tombstone.
pub(crate) fn value(object: u8) -> u8 {
    if object & TOMBSTONE == 0 { object } else { 0 }
}

/// The object that an operation writes.
pub(crate) fn object_of(work: Work, number: u8) -> u8 {
    match work {
        Work::Delete => number | TOMBSTONE,
        Work::Large => number | LARGE,
        _ => number,
    }
}

/// Where a map finds an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) pack: u8,
    pub(crate) object: u8,
}

/// The packed object of each name: all tables of a manifest, newest first.
pub(crate) type Map = [Option<Member>; NAMES];

/// A pack at the lake: its object of each name, 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pack {
    pub(crate) id: u8,
    pub(crate) members: [u8; NAMES],
}

/// The registry's state of the packs below a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Root {
    /// The current map, named by its number.
    pub(crate) map: Map,
    /// The process that may write the next manifest, and the token of its round.
    pub(crate) reserved: Option<Reservation>,
}

/// The exclusive right to write the next manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reservation {
    pub(crate) token: u8,
    pub(crate) owner: Life,
}

/// A node in one of its lives. The session of the life has ended if the node has begun a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Life {
    pub(crate) node: u8,
    pub(crate) number: u8,
}

/// The work of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Work {
    Nothing,
    /// Brings dirty objects to the lake, again and again.
    Pack,
    /// Rewrites a pack, and removes the old one.
    Rewrite,
    /// A PUT of a small object.
    Put,
    /// A PUT of an object that is too large for a pack.
    Large,
    /// A DELETE: writes a tombstone.
    Delete,
    /// A PUT through the cache.
    Write,
    Get,
    /// A LIST, as far as it concerns one name.
    List,
    /// Writes the packed object under its own name.
    Unpack,
}

/// The revision of an entry that a process has read, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stamp {
    Absent,
    Unchanged,
    Outdated,
}

/// Changes of names that go to the lake and into the map together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Round {
    pub(crate) kind: RoundKind,
    pub(crate) token: u8,
    /// The object of each name that the round writes, 0 for none.
    pub(crate) objects: [u8; NAMES],
    /// The pack that it writes, 0 for none.
    pub(crate) pack: u8,
    /// Planted: what the map was when the round began.
    pub(crate) seen: Map,
}

impl Round {
    /// A round that writes these objects, and a pack if its kind has one.
    pub(crate) fn new(state: &State, kind: RoundKind, objects: [u8; NAMES]) -> Self {
        let has_pack = matches!(kind, RoundKind::Packed | RoundKind::Rewritten(_));
        Self {
            kind,
            token: state.new_token(),
            objects,
            pack: if has_pack { state.new_pack() } else { 0 },
            seen: state.root.map,
        }
    }

    /// A round about one name.
    pub(crate) fn of(state: &State, kind: RoundKind, name: usize, object: u8) -> Self {
        let mut objects = [0; NAMES];
        objects[name] = object;
        Self::new(state, kind, objects)
    }

    /// The name of a round about one.
    pub(crate) fn name(&self) -> usize {
        let name = self.objects.iter().position(|object| *object != 0);
        name.expect("a round is about an object")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RoundKind {
    /// Small objects become a pack.
    Packed,
    /// A large object gets its own name.
    Plain,
    /// A tombstone removes the plain object.
    Removal,
    /// A client's object gets its own name.
    Through,
    /// A packed object gets its own name.
    Unpacked,
    /// The living members of this pack become another one.
    Rewritten(u8),
}

/// The request of a round that is on its way: the bytes, or the manifest with this map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sent {
    pub(crate) round: Round,
    pub(crate) manifest: Option<Map>,
}

/// How far a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum At {
    Idle,
    /// Its changes are in the entries; nothing is sent.
    Begun(Round),
    /// Its request is sent.
    Waits(Sent),
    /// The lake will not answer.
    Silent(Sent),
    /// The lake has the bytes; the map must change.
    /// A commit of the reservation may be under way: it looks, and tries again.
    Reserves(Round),
    Reserved(Round, Map),
    /// The lake has the manifest; the root is to name it.
    Commits(Round, Map),
    /// The commit of the root was not answered.
    CommitUnsure(Round, Map),
    /// The changes are to leave the entries.
    Ends(Round),
    /// The old pack is to be removed.
    Removes(u8),
    /// A GET has found its object in a pack.
    ReadsPack(Member),
    /// A GET found no object in the entry and the map.
    AsksLake(Stamp),
    LooksAgain(Stamp),
    /// A LIST has found no object in the entry.
    ListsMap,
    ListsLake,
    /// Planted: a LIST has found this in the map.
    ListsEntry(u8),
    /// Its client has no answer, or one with an unknown outcome.
    Unknown,
    Ended,
}

/// A process: a packer, the keeper, or an operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) work: Work,
    pub(crate) name: usize,
    /// The object that it writes.
    pub(crate) object: u8,
    /// The node and the life in which it began what it does.
    pub(crate) life: Life,
    pub(crate) at: At,
    /// True once its client has sent its request.
    pub(crate) is_open: bool,
}

impl Process {
    pub(crate) fn new(work: Work, name: usize, node: usize, number: u8) -> Self {
        Self {
            work,
            name,
            object: object_of(work, number),
            life: Life {
                node: node as u8,
                number: 0,
            },
            at: if work == Work::Nothing {
                At::Ended
            } else {
                At::Idle
            },
            is_open: false,
        }
    }

    fn round(&self) -> Option<Round> {
        match self.at {
            At::Begun(round)
            | At::Waits(Sent { round, .. })
            | At::Silent(Sent { round, .. })
            | At::Reserves(round)
            | At::Reserved(round, _)
            | At::Commits(round, _)
            | At::CommitUnsure(round, _)
            | At::Ends(round) => Some(round),
            _ => None,
        }
    }
}

/// A request on its way to the lake, or at work there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) what: What,
    pub(crate) owner: Life,
    pub(crate) token: u8,
    pub(crate) sender: usize,
}

/// The change that a request makes at the lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    Pack(Pack),
    Manifest(Map),
    /// An object under its own name; 0 removes it.
    Plain(usize, u8),
}

/// A commit of the root that was not answered and may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LateCommit {
    /// If the root is as it was.
    Reserves(Reservation),
    /// If the reservation with this token is still there.
    Names(u8, Map),
}

/// A moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) entries: [Option<Entry<Object>>; NAMES],
    pub(crate) root: Root,
    /// The objects at the lake under their own names, 0 for none.
    pub(crate) plain: [u8; NAMES],
    /// In ascending order of their ids.
    pub(crate) packs: Vec<Pack>,
    /// The manifest at the lake that follows the one that the root names, if there is one.
    pub(crate) next_manifest: Option<Map>,
    /// The map that each node has read last. It may use it for a name without an entry.
    pub(crate) cached: [Map; NODES],
    pub(crate) requests: Vec<Request>,
    pub(crate) late_commits: Vec<LateCommit>,
    /// The number of each node's present life.
    pub(crate) lives: [u8; NODES],
    pub(crate) processes: [Process; PROCESSES],
    pub(crate) explanations: [Explanations; NAMES],
    pub(crate) crashes_left: u8,
    pub(crate) losses_left: u8,
    pub(crate) rewrites_left: u8,
    pub(crate) rebuilds_left: u8,
}

/// An object that the map names and nobody can read.
pub(crate) const UNREADABLE: u8 = u8::MAX;

impl State {
    /// The object that a read finds at this moment.
    pub(crate) fn visible(&self, name: usize) -> u8 {
        let current = self.entries[name].as_ref().and_then(|entry| entry.current);
        match (current, self.root.map[name]) {
            (Some(object), _) => value(object.0),
            (None, Some(member)) if self.has(member) => member.object,
            (None, Some(_)) => UNREADABLE,
            (None, None) => self.plain[name],
        }
    }

    /// Returns true if the pack of a member is at the lake, and has it.
    pub(crate) fn has(&self, member: Member) -> bool {
        self.packs
            .iter()
            .any(|pack| pack.id == member.pack && pack.members.contains(&member.object))
    }

    /// Changes an entry, and with it what the stamps of all processes mean.
    pub(crate) fn commit(&mut self, name: usize, entry: Option<Entry<Object>>) {
        let is_removed = entry.is_none();
        for process in self.processes.iter_mut().filter(|process| process.name == name) {
            if let At::AsksLake(stamp) | At::LooksAgain(stamp) = &mut process.at
                // An empty entry stays longer than a process may rely on having seen none.
                && (*stamp == Stamp::Unchanged || is_removed)
            {
                *stamp = Stamp::Outdated;
            }
        }
        self.entries[name] = entry;
    }

    /// Changes the root. A late reservation has been overtaken.
    pub(crate) fn commit_root(&mut self, map: Map, reserved: Option<Reservation>) {
        self.root = Root { map, reserved };
        self.late_commits
            .retain(|late| matches!(late, LateCommit::Names(..)));
    }

    pub(crate) fn stamp(&self, name: usize) -> Stamp {
        self.entries[name]
            .as_ref()
            .map_or(Stamp::Absent, |_| Stamp::Unchanged)
    }

    /// Returns true if the entry is as it was when a process read `stamp`.
    pub(crate) fn is_unchanged(&self, name: usize, stamp: Stamp) -> bool {
        match stamp {
            Stamp::Absent => self.entries[name].is_none(),
            Stamp::Unchanged => true,
            Stamp::Outdated => false,
        }
    }

    pub(crate) fn present_life(&self, node: u8) -> Life {
        Life {
            node,
            number: self.lives[usize::from(node)],
        }
    }

    pub(crate) fn has_lapsed(&self, life: Life) -> bool {
        life.number < self.lives[usize::from(life.node)]
    }

    /// Returns true if a request of this life may still be carried out: FENCE has not passed.
    pub(crate) fn may_still_send(&self, owner: Life) -> bool {
        self.requests.iter().any(|request| request.owner == owner)
    }

    /// The operations on a name that have begun and are not over.
    pub(crate) fn open(&self, name: usize) -> Open {
        std::array::from_fn(|client| {
            let process = &self.processes[FIRST_CLIENT + client];
            (process.is_open && process.name == name).then_some((process.work, process.object))
        })
    }

    /// A token that nothing refers to.
    pub(crate) fn new_token(&self) -> u8 {
        let busy = |entry: &Option<Entry<Object>>| entry.as_ref().and_then(|entry| entry.busy);
        let tokens = self
            .entries
            .iter()
            .filter_map(busy)
            .map(|busy| busy.token.0 as u8);
        let requests = self.requests.iter().map(|request| request.token);
        let late = self.late_commits.iter().map(|late| match late {
            LateCommit::Reserves(reserved) => reserved.token,
            LateCommit::Names(token, _) => *token,
        });
        let rounds = self
            .processes
            .iter()
            .filter_map(Process::round)
            .map(|round| round.token);
        let reserved = self.root.reserved.iter().map(|reserved| reserved.token);
        unused(tokens.chain(requests).chain(late).chain(rounds).chain(reserved))
    }

    /// An id that no pack has, and no map names.
    pub(crate) fn new_pack(&self) -> u8 {
        let packs = self.packs.iter().map(|pack| pack.id);
        let rounds = self
            .processes
            .iter()
            .filter_map(Process::round)
            .map(|round| round.pack);
        let sent = self.requests.iter().filter_map(|request| match request.what {
            What::Pack(pack) => Some(pack.id),
            _ => None,
        });
        let read = self.processes.iter().filter_map(|process| match process.at {
            At::ReadsPack(member) => Some(member.pack),
            At::Removes(pack) => Some(pack),
            _ => None,
        });
        let maps = [self.root.map, self.next_manifest.unwrap_or_default()];
        let mapped = maps
            .into_iter()
            .chain(self.cached)
            .chain(self.maps_on_their_way());
        let mapped: Vec<u8> = mapped.flatten().flatten().map(|member| member.pack).collect();
        unused(packs.chain(rounds).chain(sent).chain(read).chain(mapped))
    }

    fn maps_on_their_way(&self) -> impl Iterator<Item = Map> {
        let late = self.late_commits.iter().filter_map(|late| match late {
            LateCommit::Names(_, map) => Some(*map),
            LateCommit::Reserves(_) => None,
        });
        let sent = self.requests.iter().filter_map(|request| match request.what {
            What::Manifest(map) => Some(map),
            _ => None,
        });
        let rounds = self.processes.iter().filter_map(|process| match process.at {
            At::Waits(sent) | At::Silent(sent) => sent.manifest,
            At::Reserved(_, map) | At::Commits(_, map) | At::CommitUnsure(_, map) => Some(map),
            _ => None,
        });
        late.chain(sent).chain(rounds)
    }
}

/// The least number from 1 on that is not among `used`.
fn unused(used: impl Iterator<Item = u8>) -> u8 {
    let used: Vec<u8> = used.collect();
    let mut numbers = 1..=u8::MAX;
    numbers
        .find(|number| !used.contains(number))
        .expect("there are more numbers than uses")
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in 0..NAMES {
            match &self.entries[name] {
                None => write!(formatter, "[no entry")?,
                Some(entry) => {
                    let current = entry.current.map_or(0, |object| object.0);
                    write!(formatter, "[entry {current:#x}")?;
                    if let Some(busy) = entry.busy {
                        write!(formatter, " busy {:?} {}", busy.kind, busy.token.0)?;
                    }
                }
            }
            let member = self.root.map[name].map_or((0, 0), |member| (member.pack, member.object));
            write!(formatter, ", map {member:?}, plain {:#x}] ", self.plain[name])?;
        }
        let packs: Vec<_> = self.packs.iter().map(|pack| (pack.id, pack.members)).collect();
        write!(formatter, "packs {packs:?}")?;
        if let Some(Reservation { token, .. }) = self.root.reserved {
            write!(formatter, ", reserved by {token}")?;
        }
        if self.next_manifest.is_some() {
            write!(formatter, ", next manifest at the lake")?;
        }
        let sent: Vec<_> = self.requests.iter().map(|request| request.what).collect();
        write!(formatter, ", on their way {sent:?}")
    }
}
