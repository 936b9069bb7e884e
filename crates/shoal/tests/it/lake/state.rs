//! State of the lake: buckets, objects, users, rules, pending faults, and the log of requests.

use std::collections::{BTreeMap, HashMap};

use super::fault::Fault;
use super::object::Object;
use super::policy::{Access, Rule, is_allowed};
use super::request::Request;
use super::uploads::Upload;

#[derive(Default)]
pub(super) struct State {
    pub(super) buckets: BTreeMap<String, Bucket>,
    /// Secret keys by access key.
    pub(super) users: HashMap<String, String>,
    pub(super) rules: Vec<Rule>,
    pub(super) faults: Vec<Fault>,
    pub(super) log: Vec<Request>,
    /// By id.
    pub(super) uploads: BTreeMap<String, Upload>,
    ids: u64,
    /// True if answers with a body are encoded for clients that accept it.
    pub(super) encodes: bool,
    /// Number of requests of nodes in their own name. The log has only requests for clients.
    pub(super) nodes_questions: usize,
}

#[derive(Default)]
pub(super) struct Bucket {
    pub(super) versioned: bool,
    /// Versions of each key, the current one last; none for a delete marker.
    pub(super) objects: BTreeMap<Vec<u8>, Vec<(String, Option<Object>)>>,
}

impl State {
    /// Notes a request: its place in the log, and the fault that befalls it. A request of a node in
    /// its own name has no place and meets no fault.
    pub(super) fn receive(&mut self, request: &Request) -> (usize, Fault) {
        if request.is_of_a_node() {
            self.nodes_questions += 1;
            return (usize::MAX, Fault::new());
        }
        self.log.push(request.clone());
        let fault = Fault::take(&mut self.faults, request);
        (self.log.len() - 1, fault.unwrap_or_else(Fault::new))
    }

    /// Stores a new current version and gives its id, when the bucket has versions.
    pub(super) fn put(&mut self, bucket: &str, key: &[u8], mut object: Object) -> Option<String> {
        let id = self.fresh_id();
        let bucket = self.buckets.entry(bucket.to_owned()).or_default();
        let versions = bucket.objects.entry(key.to_vec()).or_default();
        if !bucket.versioned {
            versions.clear();
            versions.push(("null".into(), Some(object)));
            return None;
        }
        object.version_id.clone_from(&id);
        versions.push((id.clone(), Some(object)));
        Some(id)
    }

    /// Removes an object, one version of it, or hides it behind a marker.
    pub(super) fn delete(&mut self, bucket: &str, key: &[u8], version: Option<&str>) {
        let marker = self.fresh_id();
        let Some(bucket) = self.buckets.get_mut(bucket) else {
            return;
        };
        let Some(versions) = bucket.objects.get_mut(key) else {
            return;
        };
        match version {
            Some(id) => versions.retain(|(given, _)| given != id),
            None if bucket.versioned => versions.push((marker, None)),
            None => versions.clear(),
        }
        if versions.is_empty() {
            bucket.objects.remove(key);
        }
    }

    /// The current version or the one named, or the S3 error code.
    pub(super) fn object(
        &self,
        bucket: &str,
        key: &[u8],
        version: Option<&str>,
    ) -> Result<&Object, &'static str> {
        let versions = self
            .buckets
            .get(bucket)
            .ok_or("NoSuchBucket")?
            .objects
            .get(key)
            .ok_or("NoSuchKey")?;
        match version {
            None => versions
                .last()
                .and_then(|(_, object)| object.as_ref())
                .ok_or("NoSuchKey"),
            Some(id) => {
                let (_, object) = versions
                    .iter()
                    .find(|(given, _)| given == id)
                    .ok_or("NoSuchVersion")?;
                object.as_ref().ok_or("MethodNotAllowed")
            }
        }
    }

    pub(super) fn check(&self, request: &Request, access: Access) -> Result<(), &'static str> {
        self.check_place(request, access, &request.bucket, &request.key)
    }

    pub(super) fn check_place(
        &self,
        request: &Request,
        access: Access,
        bucket: &str,
        key: &[u8],
    ) -> Result<(), &'static str> {
        let allowed = is_allowed(&self.rules, request.access_key.as_deref(), access, bucket, key);
        if allowed { Ok(()) } else { Err("AccessDenied") }
    }

    /// Replaces the rules that came from the same place.
    pub(super) fn replace_rules(&mut self, origin: &str, rules: Vec<Rule>) {
        self.rules.retain(|rule| rule.origin.as_deref() != Some(origin));
        self.rules.extend(rules);
    }

    pub(super) fn fresh_id(&mut self) -> String {
        self.ids += 1;
        format!("id-{}", self.ids)
    }
}
