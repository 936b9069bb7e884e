//! The parts of a node that tasks work with.

pub(super) mod helper;
pub(super) mod holdings;
pub(super) mod lake_view;
pub(super) mod manifest;
pub(super) mod messages;
pub(super) mod nodes;
pub(super) mod order_files;
pub(super) mod placer;
pub(super) mod planned_rates;
pub(super) mod targets;
pub(super) mod task_identity;

use std::sync::Arc;

use shoal_cache::fetch::{CacheParts, Fetcher};
use shoal_cache::lake::Lake;
use shoal_net::clock;
use shoal_s3::identity::{Caller, Identities};

use self::order_files::OrderFiles;
use super::refusal::TaskRefusal;

/// The parts of a node that tasks work with.
pub struct TaskParts {
    /// The name of this node.
    pub name: String,
    /// The lake, and what stands before it.
    pub lake: Arc<dyn Lake>,
    /// Identities in whose names tasks run.
    pub identities: Arc<Identities>,
    /// Brings blocks to the store, with the parts that it uses.
    pub fetcher: Arc<Fetcher>,
    /// Lists of objects and documents on disk.
    pub order_files: Arc<OrderFiles>,
}

impl TaskParts {
    /// The parts of the cache.
    pub(in crate::tasks) fn cache(&self) -> &CacheParts {
        &self.fetcher.parts
    }

    /// Returns the name of the identity that an order means.
    pub(in crate::tasks) fn identity(&self, given: Option<&str>) -> Result<Option<String>, TaskRefusal> {
        let known = &self.identities;
        match given {
            Some(given) if known.named(given, clock::utc_now()).is_some() => Ok(Some(given.into())),
            Some(given) => {
                let hint = "name one of the configuration of the nodes";
                let why = format!("no [[identity]] has the access key {given:?}\nhint: {hint}");
                Err(TaskRefusal::bad(why))
            }
            None => match &known.all()[..] {
                [] => Ok(None),
                [only] => Ok(Some(only.access_key.clone())),
                several => {
                    let why = format!("the order names no identity, and there are {}", several.len());
                    let hint = "name the access key in whose name the lake is asked: --as, or identity";
                    Err(TaskRefusal::bad(format!("{why}\nhint: {hint}")))
                }
            },
        }
    }

    /// Returns the caller with a name, or with the access key by which another node names it. The error is a
    /// predicate, whose subject is this node.
    pub(in crate::tasks) fn caller(&self, name: Option<&str>) -> Result<Caller, String> {
        let Some(name) = name else {
            return Ok(Caller::Anonymous);
        };
        let named = || self.identities.named(name, clock::utc_now());
        let identity = self.identities.get(name).or_else(named).map(Caller::Identity);
        identity.ok_or_else(|| {
            format!("has no [[identity]] with the access key {name:?}, and no temporary key of such a role")
        })
    }
}
