//! The tables of the file, and operations on them.

use std::ops::Bound;

use bytes::Bytes;
use redb::{
    ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata, Table, TableDefinition,
    WriteTransaction,
};

use crate::engine::{Change, Condition, Page, Range, Revision, SessionId, Stored, Transaction, prefix_end};

pub(super) use redb::Database;

/// Key → last revision, session or 0, value.
const KEYS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("keys");
/// Each key attached to a session → the session.
const SESSION_KEYS: TableDefinition<&[u8], u64> = TableDefinition::new("session_keys");
/// Name → number.
const STATE: TableDefinition<&str, u64> = TableDefinition::new("state");

/// The newest revision, in [`STATE`].
const REVISION: &str = "revision";

/// Bytes before the value: revision and session.
const HEAD_BYTES: usize = 16;

/// Creates the tables in a new file.
pub(super) fn create(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(KEYS)?;
    transaction.open_table(SESSION_KEYS)?;
    transaction.open_table(STATE)?.insert(REVISION, 0)?;
    transaction.commit()?;
    Ok(())
}

/// The newest revision.
pub(super) fn revision(transaction: &ReadTransaction) -> Result<Revision, redb::Error> {
    let state = transaction.open_table(STATE)?;
    let revision = state
        .get(REVISION)?
        .ok_or_else(|| damaged("it has no revision"))?;
    Ok(Revision(revision.value()))
}

/// Reads a key.
pub(super) fn get(transaction: &ReadTransaction, key: &[u8]) -> Result<Option<Stored>, redb::Error> {
    let value = transaction.open_table(KEYS)?.get(key)?;
    value.map(|value| stored(value.value())).transpose()
}

/// Reads keys in order, until their values have more than `bytes_max` bytes.
pub(super) fn range(
    transaction: &ReadTransaction,
    range: &Range,
    bytes_max: usize,
) -> Result<Page, redb::Error> {
    let mut keys = slice(&transaction.open_table(KEYS)?, &range.prefix, &range.after)?;
    let mut page = Page::default();
    let mut bytes = 0;
    while page.entries.len() < range.limit.max(1) && bytes <= bytes_max {
        let Some(entry) = keys.next() else { return Ok(page) };
        let (key, value) = entry?;
        bytes += value.value().len();
        page.entries
            .push((Bytes::copy_from_slice(key.value()), stored(value.value())?));
    }
    page.has_more = keys.next().transpose()?.is_some();
    Ok(page)
}

/// Counts the keys that begin with `prefix`.
pub(super) fn count(transaction: &ReadTransaction, prefix: &[u8]) -> Result<u64, redb::Error> {
    let keys = transaction.open_table(KEYS)?;
    if prefix.is_empty() {
        return Ok(keys.len()?);
    }
    slice(&keys, prefix, &[])?.try_fold(0, |count, entry| Ok(entry.map(|_| count + 1)?))
}

/// The tables in a write transaction.
pub(super) struct Changing<'t> {
    keys: Table<'t, &'static [u8], &'static [u8]>,
    session_keys: Table<'t, &'static [u8], u64>,
    state: Table<'t, &'static str, u64>,
}

impl<'t> Changing<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            keys: transaction.open_table(KEYS)?,
            session_keys: transaction.open_table(SESSION_KEYS)?,
            state: transaction.open_table(STATE)?,
        })
    }

    /// Returns true if all conditions hold.
    pub(super) fn hold(&self, conditions: &[Condition]) -> Result<bool, redb::Error> {
        for condition in conditions {
            let stored = self.keys.get(&*condition.key)?;
            let revision = stored
                .map(|value| head(value.value()))
                .transpose()?
                .map(|head| head.0);
            if revision != condition.revision {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Applies the changes of a transaction. Returns true if they change anything.
    pub(super) fn apply(
        &mut self,
        transaction: &Transaction,
        revision: Revision,
    ) -> Result<bool, redb::Error> {
        let mut changed = false;
        for change in &transaction.changes {
            changed |= match change {
                Change::Put { key, value, session } => self.put(key, value, *session, revision)?,
                Change::Delete { key } => self.delete(key)?,
            };
        }
        Ok(changed)
    }

    /// Removes the keys of sessions that are over, except those that were since put without one. Returns
    /// them.
    pub(super) fn remove_keys_of(
        &mut self,
        is_over: impl Fn(SessionId) -> bool,
    ) -> Result<Vec<Bytes>, redb::Error> {
        let mut removed = Vec::new();
        for entry in self
            .session_keys
            .extract_if(|_, session| is_over(SessionId(session)))?
        {
            let (key, _) = entry?;
            let before = self.keys.remove(key.value())?;
            debug_assert!(before.is_some(), "a session has only keys that exist");
            removed.push(Bytes::copy_from_slice(key.value()));
        }
        Ok(removed)
    }

    /// Writes the newest revision.
    pub(super) fn set_revision(&mut self, revision: Revision) -> Result<(), redb::Error> {
        self.state.insert(REVISION, revision.0)?;
        Ok(())
    }

    fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        session: Option<SessionId>,
        revision: Revision,
    ) -> Result<bool, redb::Error> {
        let mut stored = Vec::with_capacity(HEAD_BYTES + value.len());
        stored.extend(revision.0.to_be_bytes());
        stored.extend(session.map_or(0, |session| session.0).to_be_bytes());
        stored.extend(value);
        let had_session = match self.keys.insert(key, stored.as_slice())? {
            Some(before) => head(before.value())?.1.is_some(),
            None => false,
        };
        if let Some(session) = session {
            self.session_keys.insert(key, session.0)?;
        } else if had_session {
            self.session_keys.remove(key)?;
        }
        Ok(true)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, redb::Error> {
        let had_session = match self.keys.remove(key)? {
            Some(before) => head(before.value())?.1.is_some(),
            None => return Ok(false),
        };
        if had_session {
            self.session_keys.remove(key)?;
        }
        Ok(true)
    }
}

type Keys = redb::Range<'static, &'static [u8], &'static [u8]>;

/// The keys that begin with `prefix` and are greater than `after`.
fn slice(
    keys: &ReadOnlyTable<&'static [u8], &'static [u8]>,
    prefix: &[u8],
    after: &[u8],
) -> Result<Keys, redb::Error> {
    let end = prefix_end(prefix);
    let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let lower = if after.is_empty() || after < prefix {
        Bound::Included(prefix)
    } else {
        Bound::Excluded(after)
    };
    // redb does not accept a range that ends before it begins.
    if let (Bound::Excluded(lower), Bound::Excluded(upper)) = (lower, upper)
        && lower >= upper
    {
        return Ok(keys.range::<&[u8]>((Bound::Included(upper), Bound::Excluded(upper)))?);
    }
    Ok(keys.range::<&[u8]>((lower, upper))?)
}

fn stored(bytes: &[u8]) -> Result<Stored, redb::Error> {
    let (revision, _) = head(bytes)?;
    Ok(Stored {
        value: Bytes::copy_from_slice(&bytes[HEAD_BYTES..]),
        revision,
    })
}

fn head(bytes: &[u8]) -> Result<(Revision, Option<SessionId>), redb::Error> {
    let (revision, rest) = bytes
        .split_first_chunk()
        .ok_or_else(|| damaged("a value is too short"))?;
    let (session, _) = rest
        .split_first_chunk()
        .ok_or_else(|| damaged("a value is too short"))?;
    let session = u64::from_be_bytes(*session);
    Ok((
        Revision(u64::from_be_bytes(*revision)),
        (session != 0).then_some(SessionId(session)),
    ))
}

fn damaged(found: &str) -> redb::Error {
    redb::Error::Corrupted(found.into())
}
