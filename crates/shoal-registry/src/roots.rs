//! The roots of the maps of packed objects. A root lists the tables of its map, and decides which node may
//! add the next one (decision 0048).
//!
//! A node *reserves* the next number, writes the table of that number to the lake, and *commits* it: the root
//! lists the table from then on. In between no other node changes the map, so a table may rely on the map as
//! it was when its number was reserved. Numbers are not used twice.
//!
//! A reservation has a definite end. Its owner commits or releases it, and retries until the registry has
//! recorded that. If the owner is gone, the worker of another node looks for the table at the lake once it
//! can no longer appear there: see [`worker`](crate::worker).

mod root;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use scopeguard::ScopeGuard;
use shoal_base::send_permit::SendPermit;
use tokio::time::sleep;

pub use self::root::{MapTable, Reservation, Root, rebuilds_in};
use crate::engine::{Change, Condition, EngineError, Outcome, Revision};
use crate::keys::{MapName, ROOTS, member};
use crate::names::{Names, decoded, encoded};
use crate::session::{Session, new_id};

/// Number of roots on a page.
const PAGE: usize = 64;

/// Pause before the end of a reservation is sent to the registry again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A map with its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRoot {
    /// The name of the map.
    pub map: MapName,
    /// Its root.
    pub root: Root,
}

/// The purpose of a new table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It names packed objects. A map that is ending takes no more of them.
    Packing,
    /// It removes names, merges tables, or moves objects to other packs.
    Upkeep,
}

/// A reservation of this node, with the root as it was reserved. If it is dropped before it has ended, it is
/// resolved like one of a dead node.
#[derive(Debug)]
#[must_use]
pub struct Reserved {
    map: MapName,
    reservation: Reservation,
    found: FoundRoot,
    session: Arc<Session>,
}

/// A committed table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The root, which lists the table or newer ones that replace it.
    pub root: Root,
}

/// A number cannot be reserved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// The reservation of another table has not ended.
    #[error("another node commits a table of the map")]
    Busy(Reservation),
    /// The registry has no such map.
    #[error("the registry has no map of this prefix")]
    NoRoot,
    /// The map takes no more objects, or has ended.
    #[error("the map of this prefix is ending: its objects are being unpacked, or have been")]
    Ending,
    /// This node's session has ended.
    #[error("the session of this node has ended")]
    NoSession,
    /// The registry failed. If the reservation exists nevertheless, this node's worker ends it.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A map cannot be replaced by the tables that the lake has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebuildError {
    /// A node is about to commit a table, so the registry has lost nothing.
    #[error("a node commits a table of the map; try again when it has ended")]
    Busy(Reservation),
    /// The registry has given the number of the newest table itself, so it has lost nothing.
    #[error("the newest table is {number}, and the registry gives {next} to the next one: it is not older")]
    NotOlder {
        /// The number of the newest table at the lake.
        number: u64,
        /// The number of the next reservation.
        next: u64,
    },
    /// The registry failed; the map may be replaced.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The session of this node has ended, and another node has resolved its reservation: the table is in the map
/// if the lake had it by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another node has ended the reservation of a table, because this node's session had ended")]
pub struct TakenOver;

/// The roots of one registry, as one node sees them.
#[derive(Clone, Debug)]
pub struct Roots {
    names: Names,
    session: Arc<Session>,
}

/// A reservation that this process does not end.
#[derive(Clone, Debug)]
pub(crate) struct AbandonedReservation {
    pub(crate) map: MapName,
    pub(crate) reservation: Reservation,
}

/// A root, and the revision of its last change.
#[derive(Clone, Debug)]
struct FoundRoot {
    root: Root,
    revision: Revision,
}

/// A reservation is over.
enum Ended {
    /// By this call, which left this root.
    Now(Root),
    /// Already, and this is the root, if there is one.
    Before(Option<Root>),
}

impl Roots {
    /// Creates the roots in the registry of `names`. The node reserves numbers while `session` lasts.
    pub fn new(names: Names, session: Arc<Session>) -> Self {
        Self { names, session }
    }

    /// The session of this node.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Reads the number of the newest table of a map; `None` if the map has no tables. Linearizable.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn number(&self, map: &MapName) -> Result<Option<u64>, EngineError> {
        self.names.number(map).await
    }

    /// Reads the root of a map, if there is one. Linearizable.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn read(&self, map: &MapName) -> Result<Option<Root>, EngineError> {
        let found = self.find(map).await?.map(|found| found.root);
        Ok(found.filter(|root| !root.is_over()))
    }

    /// Returns true if objects may be packed: the map has no root yet, or one that is not ending.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn takes_objects(&self, map: &MapName) -> Result<bool, EngineError> {
        let found = self.find(map).await?;
        Ok(found.is_none_or(|found| !found.root.is_ending))
    }

    /// Returns true if this registry has given out the number of a table. The map may have ended since.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn has_given_out(&self, map: &MapName, number: u64) -> Result<bool, EngineError> {
        let found = self.find(map).await?;
        Ok(found.is_some_and(|found| number < found.root.next))
    }

    /// Returns all maps with their roots, ordered by name.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn all(&self) -> Result<Vec<MapRoot>, EngineError> {
        let all = self.names.engine.all(Bytes::from_static(ROOTS), PAGE);
        let roots = all.try_filter_map(async |(key, stored)| {
            let root: Root = decoded(&stored.value)?;
            let map = MapName::of_root_key(&key).filter(|_| !root.is_over());
            Ok(map.map(|map| MapRoot { map, root }))
        });
        roots.try_collect().await
    }

    /// Creates the root of a map, unless there is one. The caller has made sure that the lake has no table of
    /// this map.
    ///
    /// # Errors
    ///
    /// The root may exist.
    pub async fn create(&self, map: &MapName) -> Result<(), EngineError> {
        while self.find(map).await?.is_none() {
            self.replace(map, None, &Root::default()).await?;
        }
        Ok(())
    }

    /// Lets a map that has ended begin again. Its numbers go on: none is used twice.
    ///
    /// # Errors
    ///
    /// The map may have begun.
    pub async fn begin_again(&self, map: &MapName) -> Result<(), EngineError> {
        while let Some(found) = self.find(map).await?.filter(|found| found.root.is_over()) {
            let root = Root {
                is_ending: false,
                ..found.root.clone()
            };
            self.replace(map, Some(&found), &root).await?;
        }
        Ok(())
    }

    /// Reserves the number of the next table.
    ///
    /// # Errors
    ///
    /// The number is not reserved, and no table may be written.
    pub async fn reserve(&self, map: &MapName, purpose: Purpose) -> Result<Reserved, ReserveError> {
        let owner = self.session.owner().ok_or(ReserveError::NoSession)?;
        let token = new_id();
        self.session.reservations.lock().insert(token);
        let not_reserved = scopeguard::guard(token, |token| {
            self.session.reservations.lock().remove(&token);
        });
        let found = loop {
            let found = self.find(map).await?.ok_or(ReserveError::NoRoot)?;
            match found.root.reservation {
                // An earlier attempt was committed, and its answer was lost.
                Some(reservation) if reservation.token == token => break found,
                Some(reservation) => return Err(ReserveError::Busy(reservation)),
                None => {}
            }
            if found.root.is_over() || found.root.is_ending && purpose == Purpose::Packing {
                return Err(ReserveError::Ending);
            }
            let number = found.root.next;
            let root = Root {
                next: number + 1,
                reservation: Some(Reservation { number, owner, token }),
                ..found.root.clone()
            };
            if let Some(revision) = self.replace(map, Some(&found), &root).await? {
                break FoundRoot { root, revision };
            }
        };
        ScopeGuard::into_inner(not_reserved);
        Ok(Reserved {
            map: map.clone(),
            reservation: found.root.reservation.expect("the number was reserved"),
            found,
            session: Arc::clone(&self.session),
        })
    }

    /// Commits a table with the reserved number, which the lake has: `tables` is the map with it, newest
    /// first. Retries until the outcome is known.
    ///
    /// # Errors
    ///
    /// Another node has decided, because this node's session has ended.
    pub async fn commit(&self, reserved: &Reserved, tables: Vec<MapTable>) -> Result<Committed, TakenOver> {
        let root = match self.end_reservation(reserved, Some(&tables)).await {
            Ended::Now(root) => Some(root),
            // While the session lasts, no other node ends the reservation, so this node has committed the
            // table, by a transaction whose answer was lost.
            Ended::Before(root) => root.filter(|root| {
                let number = reserved.number();
                let lasts = self.session.is_of(reserved.reservation.owner);
                root.lists(number) || lasts && root.number >= number
            }),
        };
        root.map(|root| Committed { root }).ok_or(TakenOver)
    }

    /// Ends a reservation without a table. The lake must not have the table, nor be able to get it. Retries
    /// until the registry has recorded it.
    pub async fn release(&self, reserved: &Reserved) {
        self.end_reservation(reserved, None).await;
    }

    /// Marks a map as ending, if it has a root: nothing is packed any more. A table of packed objects whose
    /// number was reserved before may still be committed.
    ///
    /// # Errors
    ///
    /// The map may be ending.
    pub async fn end(&self, map: &MapName) -> Result<(), EngineError> {
        loop {
            let Some(found) = self.find(map).await?.filter(|found| !found.root.is_ending) else {
                return Ok(());
            };
            let root = Root {
                is_ending: true,
                ..found.root.clone()
            };
            self.replace(map, Some(&found), &root).await?;
        }
    }

    /// Removes the root of a map that is ending and names no object as of table `number`. Returns false if
    /// the map has changed since, or has a reservation, or is not ending.
    ///
    /// # Errors
    ///
    /// The root may be gone.
    pub async fn remove(&self, map: &MapName, number: u64) -> Result<bool, EngineError> {
        loop {
            let Some(found) = self.find(map).await?.filter(|found| !found.root.is_over()) else {
                return Ok(true);
            };
            let Root {
                is_ending,
                reservation,
                ..
            } = found.root;
            if !is_ending || reservation.is_some() || found.root.number != number {
                return Ok(false);
            }
            let root = Root {
                tables: Vec::new(),
                ..found.root.clone()
            };
            self.replace(map, Some(&found), &root).await?;
        }
    }

    /// Makes `tables`, newest first, the map: the lake has them, and the registry has lost them. `rebuilds`
    /// is greater than in each sequence that the lake has.
    ///
    /// # Errors
    ///
    /// The registry has lost nothing, or failed.
    pub async fn rebuild(
        &self,
        map: &MapName,
        tables: &[MapTable],
        rebuilds: u16,
    ) -> Result<(), RebuildError> {
        let number = tables.iter().map(|table| table.number).max().unwrap_or_default();
        let mut unsure = false;
        loop {
            let found = self.find(map).await?;
            let before = found.as_ref().map(|found| found.root.clone()).unwrap_or_default();
            if unsure && before.tables == tables && before.rebuilds == rebuilds {
                return Ok(());
            }
            if let Some(reservation) = before.reservation {
                return Err(RebuildError::Busy(reservation));
            }
            if before.next > number {
                return Err(RebuildError::NotOlder {
                    number,
                    next: before.next,
                });
            }
            let root = Root {
                number,
                next: before.next.max(number + 1),
                tables: tables.to_vec(),
                rebuilds: before.rebuilds.max(rebuilds),
                ..before
            };
            match self.replace(map, found.as_ref(), &root).await? {
                Some(_) => return Ok(()),
                None => unsure = true,
            }
        }
    }

    /// Returns the reservations of a node that this process does not end: those of an earlier life, of a dead
    /// node, or of an attempt whose outcome this node has not found out.
    pub(crate) async fn abandoned(&self, node: u64) -> Result<Vec<AbandonedReservation>, EngineError> {
        let all = self.all().await?.into_iter();
        let reserved = all.filter_map(|MapRoot { map, root }| {
            let reservation = root.reservation?;
            Some(AbandonedReservation { map, reservation })
        });
        let known = self.session.reservations.lock();
        let is_abandoned = |abandoned: &AbandonedReservation| {
            let Reservation { owner, token, .. } = abandoned.reservation;
            owner.node == node && !known.contains(&token)
        };
        Ok(reserved.filter(is_abandoned).collect())
    }

    /// Ends a reservation whose owner is gone: with the map that the reserved table at the lake lists, or
    /// without a table.
    pub(crate) async fn resolve(
        &self,
        abandoned: &AbandonedReservation,
        tables: Option<&[MapTable]>,
    ) -> Result<(), EngineError> {
        let AbandonedReservation { map, reservation } = abandoned;
        self.try_to_end(map, reservation, tables, None).await.map(drop)
    }

    async fn end_reservation(&self, reserved: &Reserved, tables: Option<&[MapTable]>) -> Ended {
        let Reserved { map, reservation, .. } = reserved;
        let mut known = Some(reserved.found.clone());
        loop {
            match self.try_to_end(map, reservation, tables, known.take()).await {
                Ok(ended) => return ended,
                Err(error) => {
                    tracing::debug!(%error, ?map, "the end of a reservation was not recorded");
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Tries to end a reservation. `known` is a recently read root.
    async fn try_to_end(
        &self,
        map: &MapName,
        reservation: &Reservation,
        tables: Option<&[MapTable]>,
        mut known: Option<FoundRoot>,
    ) -> Result<Ended, EngineError> {
        loop {
            let found = match known.take() {
                Some(known) => Some(known),
                None => self.find(map).await?,
            };
            let token = |root: &Root| root.reservation.map(|reservation| reservation.token);
            let Some(found) = found else {
                return Ok(Ended::Before(None));
            };
            if token(&found.root) != Some(reservation.token) {
                return Ok(Ended::Before(Some(found.root)));
            }
            let mut root = Root {
                reservation: None,
                ..found.root.clone()
            };
            if let Some(tables) = tables {
                root.number = reservation.number;
                root.tables = tables.to_vec();
                assert!(root.lists(reservation.number), "a map lists its newest table");
            }
            if self.replace(map, Some(&found), &root).await?.is_some() {
                return Ok(Ended::Now(root));
            }
        }
    }

    async fn find(&self, map: &MapName) -> Result<Option<FoundRoot>, EngineError> {
        let Some(stored) = self.names.engine.get(&map.root_key()).await? else {
            return Ok(None);
        };
        Ok(Some(FoundRoot {
            root: decoded(&stored.value)?,
            revision: stored.revision,
        }))
    }

    /// Replaces a root, and the number with it. Returns `None` if the root has to be read again: it has
    /// changed since it was found, or the answer was lost.
    async fn replace(
        &self,
        map: &MapName,
        found: Option<&FoundRoot>,
        root: &Root,
    ) -> Result<Option<Revision>, EngineError> {
        let unchanged = Condition {
            key: map.root_key(),
            revision: found.map(|found| found.revision),
        };
        let mut changes = vec![Change::put(map.root_key(), encoded(root))];
        let before = found.and_then(|found| found.root.named());
        match root.named() {
            number if number == before => {}
            Some(number) => {
                let number = Bytes::copy_from_slice(&number.to_be_bytes());
                changes.push(Change::put(map.number_key(), number));
            }
            None => changes.push(Change::delete(map.number_key())),
        }
        if let Some(reservation) = root.reservation {
            // If the commit is late, and the others have found nothing left of this node by then, one of them
            // finds it again.
            changes.push(Change::put(member(reservation.owner.node), Bytes::new()));
        }
        match self.names.commit(vec![unchanged], changes).await {
            Ok(Outcome::Committed(revision)) => Ok(Some(revision)),
            Ok(Outcome::Conflict) | Err(EngineError::Unknown(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Reserved {
    /// Returns the map.
    pub fn map(&self) -> &MapName {
        &self.map
    }

    /// Returns the root as it is while the number is reserved.
    pub fn root(&self) -> &Root {
        &self.found.root
    }

    /// Returns the number of the new table.
    pub fn number(&self) -> u64 {
        self.reservation.number
    }

    /// Returns the permission to write the table to the lake.
    pub fn permit(&self) -> SendPermit {
        let (session, owner) = (Arc::clone(&self.session), self.reservation.owner);
        SendPermit::new(move || session.is_of(owner))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // One that has not ended is from now on the worker's.
        self.session.reservations.lock().remove(&self.reservation.token);
    }
}
