//! A lake in the process of the test: an S3 store that counts what it is asked and misbehaves on command.
//!
//! It shares no code with the product. Every signature is checked, also those of chunks and trailers, so a
//! request that gets an answer was signed right.
//!
//! ```text
//! let lake = Lake::start().await;
//! lake.put("bucket", "key", "some bytes");
//! lake.misbehave(Fault::status(503).times(2));
//! // … something reads s3://bucket/key …
//! assert_eq!(lake.count(Request::is_get), 3);
//! ```

mod answer;
mod deletion;
mod fault;
mod object;
mod policy;
mod read;
mod request;
mod serve;
mod signature;
mod state;
mod uploads;
mod wire;
mod write;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::task::JoinHandle;

pub(crate) use self::fault::{Cut, Fault, Gate};
pub(crate) use self::object::{Content, Object, hex};
pub(crate) use self::policy::{ANONYMOUS, Access};
pub(crate) use self::request::Request;

use self::policy::Rule;
use self::state::State;

/// The account that every lake knows from the start.
pub(crate) const ACCESS_KEY: &str = "lake-access-key";
pub(crate) const SECRET_KEY: &str = "lake-secret-key";
pub(crate) const REGION: &str = "us-east-1";

/// A handle to a running lake; clones are handles to the same one.
#[derive(Clone)]
pub(crate) struct Lake {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    server: Arc<Mutex<JoinHandle<()>>>,
    /// For the tier of the nodes in front of this lake.
    tier: Arc<TempDir>,
}

impl Lake {
    /// Starts an empty lake on a port of its own; it ends with the runtime of the test.
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        state.lock().users.insert(ACCESS_KEY.into(), SECRET_KEY.into());
        let listener = serve::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await;
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve::serve(listener, Arc::clone(&state)));
        Self {
            address,
            state,
            server: Arc::new(Mutex::new(server)),
            tier: Arc::new(TempDir::new().unwrap()),
        }
    }

    /// A folder that the nodes in front of this lake share.
    pub(crate) fn tier_folder(&self) -> PathBuf {
        self.tier.path().join("tier")
    }

    /// Closes the port and all connections; what is stored stays.
    pub(crate) async fn stop(&self) {
        self.server.lock().abort();
        while !self.server.lock().is_finished() {
            tokio::task::yield_now().await;
        }
    }

    /// Serves again, at the same address.
    pub(crate) async fn resume(&self) {
        let listener = serve::bind(self.address).await;
        *self.server.lock() = tokio::spawn(serve::serve(listener, Arc::clone(&self.state)));
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    // Contents.

    /// Stores an object, creating the bucket if need be; gives its `ETag`.
    pub(crate) fn put(&self, bucket: &str, key: impl AsRef<[u8]>, object: impl Into<Object>) -> String {
        let object = object.into();
        let etag = object.etag.clone();
        self.state.lock().put(bucket, key.as_ref(), object);
        etag
    }

    pub(crate) fn delete(&self, bucket: &str, key: impl AsRef<[u8]>) {
        self.state.lock().delete(bucket, key.as_ref(), None);
    }

    /// The current version, if there is one.
    pub(crate) fn object(&self, bucket: &str, key: impl AsRef<[u8]>) -> Option<Object> {
        self.state.lock().object(bucket, key.as_ref(), None).ok().cloned()
    }

    /// The keys of all objects of a bucket, ascending.
    pub(crate) fn keys(&self, bucket: &str) -> Vec<String> {
        let state = self.state.lock();
        let objects = state.buckets[bucket].objects.iter();
        let current =
            objects.filter(|(_, versions)| versions.last().is_some_and(|(_, object)| object.is_some()));
        current
            .map(|(key, _)| String::from_utf8_lossy(key).into_owned())
            .collect()
    }

    pub(crate) fn create_bucket(&self, bucket: &str) {
        self.state.lock().buckets.entry(bucket.to_owned()).or_default();
    }

    /// Creates the bucket if need be, and keeps all versions of its objects from now on.
    pub(crate) fn keep_versions(&self, bucket: &str) {
        self.state
            .lock()
            .buckets
            .entry(bucket.to_owned())
            .or_default()
            .versioned = true;
    }

    /// Adds an upload in parts that began at the time `begun`, and returns its id.
    pub(crate) fn begin_upload(&self, bucket: &str, key: &str, begun: SystemTime) -> String {
        let upload = uploads::Upload::new(bucket, key, begun);
        uploads::begin(&mut self.state.lock(), upload)
    }

    /// Uploads in parts that were begun and have not ended.
    pub(crate) fn uploads(&self) -> usize {
        self.state.lock().uploads.len()
    }

    // Permissions.

    /// Makes a key pair known; its owner may do everything until a rule says otherwise.
    pub(crate) fn add_user(&self, access_key: &str, secret_key: &str) {
        self.state
            .lock()
            .users
            .insert(access_key.into(), secret_key.into());
    }

    /// `who` is an access key or [`ANONYMOUS`]; `place` is `bucket` or `bucket/prefix`. Later rules win.
    pub(crate) fn allow(&self, who: &str, access: Access, place: &str) {
        self.rule(who, access, place, true);
    }

    /// The opposite of [`Lake::allow`].
    pub(crate) fn deny(&self, who: &str, access: Access, place: &str) {
        self.rule(who, access, place, false);
    }

    fn rule(&self, who: &str, access: Access, place: &str, allowed: bool) {
        let (who, place) = (Some(who.to_owned()), place.to_owned());
        self.state.lock().rules.push(Rule {
            who,
            access: Some(access),
            place,
            allowed,
            origin: None,
        });
    }

    // Faults.

    /// Queues a fault; see [`Fault`] for the requests that it befalls.
    pub(crate) fn misbehave(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Encodes its answers from now on for clients that accept it, as MinIO encodes documents.
    pub(crate) fn encode(&self) {
        self.state.lock().encodes = true;
    }

    /// Holds every answer to such requests until the gate is opened.
    pub(crate) fn hold(&self, when: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Gate {
        let gate = Gate::new();
        self.misbehave(Fault::new().held_by(&gate).when(when).always());
        gate
    }

    /// Drops all faults that are left.
    pub(crate) fn behave(&self) {
        self.state.lock().faults.clear();
    }

    // Requests so far.

    /// Every request so far, oldest first.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.state.lock().log.clone()
    }

    /// The latest request.
    pub(crate) fn last_request(&self) -> Request {
        self.state
            .lock()
            .log
            .last()
            .expect("the lake was asked something")
            .clone()
    }

    /// Number of requests of this kind: `lake.count(Request::is_get)`.
    pub(crate) fn count(&self, kind: impl Fn(&Request) -> bool) -> usize {
        self.state
            .lock()
            .log
            .iter()
            .filter(|request| kind(request))
            .count()
    }

    /// Number of requests that nodes sent in their own name. [`Lake::requests`] does not list them.
    pub(crate) fn nodes_questions(&self) -> usize {
        self.state.lock().nodes_questions
    }

    /// Bytes of all response bodies handed to sockets; a reader that went away may not have seen the last of
    /// them.
    pub(crate) fn body_bytes_sent(&self) -> u64 {
        self.state
            .lock()
            .log
            .iter()
            .map(|request| request.body_sent)
            .sum()
    }

    /// Forgets the requests so far, so that a test counts from here. Wait until none is under way.
    pub(crate) fn forget_requests(&self) {
        self.state.lock().log.clear();
    }
}
