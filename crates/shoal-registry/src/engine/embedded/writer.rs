//! The single thread that changes the file. It commits all queued transactions with one `fsync`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use shoal_base::clock;
use tokio::sync::oneshot;

use super::database::{Changing, Database};
use super::folder::{Folder, RESERVE_BYTES};
use super::shared::{Shared, out_of_use};
use super::witness::Witness;
use crate::engine::{Change, EngineError, Outcome, Revision, SessionId, Transaction};

/// Maximum number of transactions per `fsync`.
const BATCH_MAX: usize = 512;
/// Maximum total size of these; more would delay later ones.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Maximum number of queued transactions. Beyond it the engine is unavailable.
const WAITING_MAX: usize = 8192;
/// Pause before retrying a failed disk operation.
const PAUSE: Duration = Duration::from_secs(1);

/// A transaction that waits for its outcome.
struct Job {
    transaction: Transaction,
    answer: oneshot::Sender<Result<Outcome, EngineError>>,
}

/// The handle of the thread.
pub(super) struct Writer {
    /// `None` wakes the thread.
    jobs: Option<SyncSender<Option<Job>>>,
    thread: Option<JoinHandle<()>>,
    /// The folder of the registry.
    pub(super) folder: PathBuf,
}

impl Writer {
    /// Starts the thread, which keeps the folder locked until it ends.
    pub(super) fn start(folder: Folder, witness: Witness, revision: Revision, shared: Arc<Shared>) -> Self {
        let (jobs, waiting) = sync_channel(WAITING_MAX);
        let path = folder.path().to_owned();
        let state = State {
            folder,
            witness,
            revision,
            shared,
            waiting,
            full_until: None,
            broken: None,
        };
        let thread = thread::Builder::new()
            .name("registry".into())
            .spawn(|| state.run());
        let thread = thread.expect("a process that starts has room for a thread");
        Self {
            jobs: Some(jobs),
            thread: Some(thread),
            folder: path,
        }
    }

    /// Queues a transaction and waits for its outcome.
    pub(super) async fn commit(&self, transaction: Transaction) -> Result<Outcome, EngineError> {
        let (answer, answered) = oneshot::channel();
        self.give(Some(Job { transaction, answer }))?;
        answered
            .await
            .map_err(|_| EngineError::Unknown("its thread has stopped".into()))?
    }

    /// Wakes the thread to recompute when the next session ends.
    pub(super) fn look_again(&self) {
        // A busy thread does so anyway.
        drop(self.give(None));
    }

    fn give(&self, job: Option<Job>) -> Result<(), EngineError> {
        let jobs = self.jobs.as_ref().expect("only drop takes it");
        jobs.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(_) => {
                EngineError::Unavailable(format!("{WAITING_MAX} transactions wait for the disk"))
            }
            TrySendError::Disconnected(_) => EngineError::Unavailable("its thread has stopped".into()),
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It has logged why it stopped.
            drop(thread.join());
        }
    }
}

/// The thread.
struct State {
    folder: Folder,
    witness: Witness,
    /// The newest acknowledged revision.
    revision: Revision,
    shared: Arc<Shared>,
    waiting: Receiver<Option<Job>>,
    /// The disk was full; every put is rejected until this time.
    full_until: Option<Instant>,
    /// `fsync` has failed.
    broken: Option<String>,
}

/// The effects of a batch once it is committed.
struct Done {
    outcomes: Vec<Result<Outcome, EngineError>>,
    /// The sessions that have ended, and their keys, which were removed.
    ended: Vec<SessionId>,
    removed: Vec<bytes::Bytes>,
    revision: Revision,
}

impl State {
    fn run(mut self) {
        while let Some(batch) = self.next_batch() {
            self.carry_out(batch);
        }
    }

    /// Waits for transactions and returns all that are queued; an empty batch if a session has ended, `None`
    /// when the engine is closed.
    fn next_batch(&mut self) -> Option<Vec<Job>> {
        let first = match self.pause() {
            Some(pause) => match self.waiting.recv_timeout(pause) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => return Some(Vec::new()),
                Err(RecvTimeoutError::Disconnected) => return None,
            },
            None => self.waiting.recv().ok()?,
        };
        let mut bytes = first.as_ref().map_or(0, Job::bytes);
        let mut batch = Vec::from_iter(first);
        while batch.len() < BATCH_MAX
            && bytes < BATCH_BYTES_MAX
            && let Ok(job) = self.waiting.try_recv()
        {
            bytes += job.as_ref().map_or(0, Job::bytes);
            batch.extend(job);
        }
        Some(batch)
    }

    /// How long to wait for a transaction; `None` without limit.
    fn pause(&self) -> Option<Duration> {
        let sessions = self.shared.sessions.lock();
        if sessions.has_ended() {
            // Their keys could not be removed; retry.
            return Some(PAUSE);
        }
        let deadline = sessions.next_deadline()?;
        Some(deadline.saturating_duration_since(clock::instant()))
    }

    fn carry_out(&mut self, mut batch: Vec<Job>) {
        if batch.is_empty() && !self.shared.sessions.lock().are_due(clock::instant()) {
            return;
        }
        if let Some(full) = self.full(&batch) {
            batch = refuse_puts(batch, &full);
        }
        let mut attempted = self.attempt(&batch);
        if let Err(full @ EngineError::Full(_)) = &attempted {
            self.full_until = Some(clock::instant() + PAUSE);
            batch = refuse_puts(batch, full);
            attempted = self.attempt(&batch);
        }
        match attempted {
            Ok(done) => self.answer(batch, done),
            Err(error) => batch.into_iter().for_each(|job| job.answer(Err(error.clone()))),
        }
    }

    /// Commits a batch as one transaction of the file. Only after [`EngineError::Unknown`], it may have been
    /// committed.
    fn attempt(&mut self, batch: &[Job]) -> Result<Done, EngineError> {
        let database = self.database()?;
        let (transaction, done) = match self.change(&database, batch) {
            Ok(prepared) => prepared,
            Err(error) => return self.recover(database, &error, None),
        };
        let Some(transaction) = transaction else {
            return Ok(done);
        };
        // Invalidates the cached values that the batch changes.
        let keys = batch.iter().flat_map(Job::keys).chain(&done.removed);
        self.shared.recent.lock().change(done.revision, keys);
        if let Err(error) = transaction.commit() {
            return self.recover(database, &error.into(), Some(done));
        }
        drop(database);
        self.acknowledge(done)
    }

    /// Applies the changes of a batch. If it returns no transaction, nothing has changed.
    fn change(
        &self,
        database: &Database,
        batch: &[Job],
    ) -> Result<(Option<redb::WriteTransaction>, Done), redb::Error> {
        let transaction = database.begin_write()?;
        let mut changing = Changing::new(&transaction)?;
        let mut done = Done {
            outcomes: Vec::with_capacity(batch.len()),
            ended: self.shared.sessions.lock().expire(clock::instant()),
            removed: Vec::new(),
            revision: self.revision,
        };
        if !done.ended.is_empty() {
            done.removed = changing.remove_keys_of(|session| done.ended.contains(&session))?;
            done.revision.0 += u64::from(!done.removed.is_empty());
        }
        for job in batch {
            let outcome = self.commit(&mut changing, &job.transaction, &mut done.revision)?;
            done.outcomes.push(outcome);
        }
        if done.revision == self.revision {
            drop(changing);
            transaction.abort()?;
            return Ok((None, done));
        }
        changing.set_revision(done.revision)?;
        drop(changing);
        Ok((Some(transaction), done))
    }

    fn commit(
        &self,
        changing: &mut Changing<'_>,
        transaction: &Transaction,
        revision: &mut Revision,
    ) -> Result<Result<Outcome, EngineError>, redb::Error> {
        if !changing.hold(&transaction.conditions)? {
            return Ok(Ok(Outcome::Conflict));
        }
        let is_open = |session| self.shared.sessions.lock().is_open(session, clock::instant());
        if !transaction.sessions().all(is_open) {
            return Ok(Err(EngineError::SessionEnded));
        }
        let next = Revision(revision.0 + 1);
        if changing.apply(transaction, next)? {
            *revision = next;
        }
        Ok(Ok(Outcome::Committed(*revision)))
    }

    /// Records the committed revision outside the database, so that a damaged database is noticed.
    fn acknowledge(&mut self, done: Done) -> Result<Done, EngineError> {
        assert!(
            done.revision > self.revision,
            "each change of the file has a greater revision"
        );
        if let Err(error) = self.witness.write(done.revision.0) {
            return Err(self.give_up(&error.to_string()));
        }
        self.revision = done.revision;
        Ok(done)
    }

    /// Determines the outcome after a disk error: closes, checks and reopens the file. `done` are the effects
    /// if the transaction was committed.
    fn recover(
        &mut self,
        database: Arc<Database>,
        error: &redb::Error,
        done: Option<Done>,
    ) -> Result<Done, EngineError> {
        tracing::warn!(folder = %self.folder.path().display(), %error, "the file of the registry is opened again");
        drop(database);
        self.close();
        if self.folder.sync_failed() {
            return Err(self.give_up(&error.to_string()));
        }
        let newest = self.reopen().map_err(EngineError::Unknown)?;
        match done {
            Some(done) if newest == done.revision => self.acknowledge(done),
            _ if newest == self.revision => Err(undone(error)),
            _ => {
                // No later transaction may have this revision.
                self.revision = newest;
                Err(EngineError::Unknown(error.to_string()))
            }
        }
    }

    /// Closes the file for good: after a failed `fsync` the disk's content is unknown.
    fn give_up(&mut self, error: &str) -> EngineError {
        self.close();
        tracing::error!(
            folder = %self.folder.path().display(),
            error,
            "the disk of the registry refuses fsync: look at the disk, then restart this process"
        );
        self.broken = Some(format!("its disk refused fsync: {error}; restart this process"));
        EngineError::Unknown(error.to_owned())
    }

    /// Returns the open file, reopening an unusable one.
    fn database(&mut self) -> Result<Arc<Database>, EngineError> {
        if let Some(broken) = &self.broken {
            return Err(EngineError::Unavailable(broken.clone()));
        }
        let database = self.shared.database.read().clone();
        if let Some(database) = database {
            return Ok(database);
        }
        // It is newer if a transaction whose outcome was unknown had been carried out.
        self.revision = self.reopen().map_err(EngineError::Unavailable)?;
        self.shared.database.read().clone().ok_or_else(out_of_use)
    }

    /// Reopens the file and returns its newest revision. Fails if an acknowledged transaction is missing.
    fn reopen(&mut self) -> Result<Revision, String> {
        let (database, revision) = self.folder.open_database().map_err(|error| error.to_string())?;
        if revision < self.revision {
            return Err(format!(
                "revision {} is lost; the file has {}",
                self.revision.0, revision.0
            ));
        }
        *self.shared.database.write() = Some(Arc::new(database));
        Ok(revision)
    }

    /// Closes the file once all reads have ended.
    fn close(&self) {
        let Some(mut database) = self.shared.database.write().take() else {
            return;
        };
        while let Err(used) = Arc::try_unwrap(database) {
            database = used;
            thread::sleep(Duration::from_millis(1));
        }
        // No read is left that could fill the cache, and the cache must not answer for a closed file.
        self.shared.recent.lock().clear();
    }

    /// Returns an error if there is no room for the puts of a batch.
    fn full(&self, batch: &[Job]) -> Option<EngineError> {
        if !batch.iter().any(Job::puts) {
            return None;
        }
        let needed = RESERVE_BYTES + 4 * batch.iter().map(Job::bytes).sum::<usize>() as u64;
        let free = self.folder.free_bytes();
        let recently = self.full_until.is_some_and(|until| clock::instant() < until);
        (recently || free.is_some_and(|free| free < needed)).then(|| {
            let free = free.map_or_else(|| "no".into(), |free| (free >> 20).to_string());
            EngineError::Full(format!("{} has {free} MiB free", self.folder.path().display()))
        })
    }

    fn answer(&self, batch: Vec<Job>, done: Done) {
        assert_eq!(
            batch.len(),
            done.outcomes.len(),
            "each transaction has an outcome"
        );
        self.shared.sessions.lock().forget(&done.ended);
        for (job, outcome) in batch.into_iter().zip(done.outcomes) {
            job.answer(outcome);
        }
    }
}

impl Drop for State {
    /// The folder is unlocked after this, even if the thread has panicked.
    fn drop(&mut self) {
        self.close();
    }
}

impl Job {
    fn bytes(&self) -> usize {
        self.transaction.bytes()
    }

    /// The keys that it changes.
    fn keys(&self) -> impl Iterator<Item = &bytes::Bytes> {
        self.transaction.changes.iter().map(Change::key)
    }

    /// Returns true if it contains a put.
    fn puts(&self) -> bool {
        let mut changes = self.transaction.changes.iter();
        changes.any(|change| matches!(change, Change::Put { .. }))
    }

    /// Sends the result, if the caller is still waiting.
    fn answer(self, outcome: Result<Outcome, EngineError>) {
        drop(self.answer.send(outcome));
    }
}

impl Transaction {
    /// The sessions of the puts.
    fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.changes.iter().filter_map(|change| match change {
            Change::Put { session, .. } => *session,
            Change::Delete { .. } => None,
        })
    }
}

/// Rejects the transactions with puts; returns the others.
fn refuse_puts(batch: Vec<Job>, full: &EngineError) -> Vec<Job> {
    let (refused, rest): (Vec<_>, _) = batch.into_iter().partition(Job::puts);
    for job in refused {
        job.answer(Err(full.clone()));
    }
    rest
}

/// The error of a batch that changed nothing.
fn undone(error: &redb::Error) -> EngineError {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match error {
        redb::Error::Io(io) if matches!(io.kind(), FileTooLarge | QuotaExceeded | StorageFull) => {
            EngineError::Full(error.to_string())
        }
        _ => EngineError::Unavailable(error.to_string()),
    }
}
