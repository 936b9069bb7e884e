//! Orders of operators, and the errors of orders that cannot be carried out.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shoal_base::spelling::suggestion;
use shoal_base::words;
use shoal_s3::glob::{KeyPattern, KeyPatternError};
use shoal_s3::object::ObjectName;
use shoal_s3::uri::{S3Uri, S3UriError};

use super::files::{DocumentFacts, HintFacts, ManifestFacts};
use super::moment::Moment;
use crate::tasks::refusal::TaskRefusal;

/// Maximum duration of a task.
const LIFE: Duration = Duration::from_hours(7 * 24);

/// The time for which a task is remembered after that, or after the end of its pins.
const MEMORY: Duration = Duration::from_hours(24);

/// Maximum time until the end of pins or a deadline.
const AHEAD_MAX: Duration = Duration::from_hours(400 * 24);

/// The fields of a request.
const FIELDS: [&str; 8] = [
    "kind",
    "uri",
    "identity",
    "to",
    "rate_bytes_per_second",
    "deadline",
    "until",
    "dry_run",
];

words! {
    /// The kind of a task.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum TaskKind {
        /// Fetches objects into the cache.
        Prefetch = "prefetch",
        /// Fetches objects into the cache, and keeps them there until a time.
        Pin = "pin",
        /// Ends pins before their time.
        Unpin = "unpin",
        /// Removes objects from the cache of every node.
        Evict = "evict",
        /// Counts what is cached, and where.
        Cached = "cached",
        /// Carries a plan out.
        Plan = "plan",
        /// Fetches what a running job reads now or next, and keeps it while the job runs.
        Hint = "hint",
    }
}

/// An operator's request for a task: the body of `POST /tasks`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRequest {
    /// The kind of the task.
    pub kind: TaskKind,
    /// The objects: `s3://bucket/prefix`, or with wildcards in the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// The access key of the identity in whose name the lake is asked. `None`: the only one that there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The nodes that are to hold the objects: a place of the topology, or the name of a node. `None`: the
    /// homes of the widest layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Maximum number of bytes to fetch in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_second: Option<u64>,
    /// When everything should be there. The task goes just fast enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Moment>,
    /// When the pins end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Moment>,
    /// True if the task only counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// An order that a node has accepted. It does not change once its list is complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The request as it came, with its identity filled in if there is one.
    #[serde(flatten)]
    pub request: TaskRequest,
    /// The list of objects, in place of a URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<ManifestFacts>,
    /// The document of a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<DocumentFacts>,
    /// The run that a hint is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Box<HintFacts>>,
    /// True if the list may still grow: announcements of one moment become one task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gathers: bool,
    /// When it was accepted.
    pub created: Moment,
    /// The node that accepted it.
    pub accepted_by: String,
    /// When all nodes forget the task. It is the same for all of its records, so that none of them comes back
    /// without the others.
    pub forgotten: Moment,
}

/// The objects of an order that has a URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The bucket.
    pub bucket: String,
    /// The keys.
    pub keys: KeyPattern,
}

impl TaskKind {
    /// Returns true if it brings objects into the cache.
    pub const fn fetches(self) -> bool {
        matches!(self, Self::Prefetch | Self::Pin | Self::Hint)
    }

    /// Returns true if it keeps objects in the cache until a time.
    pub const fn pins(self) -> bool {
        matches!(self, Self::Pin | Self::Hint)
    }
}

impl TaskRequest {
    /// Creates a request about the objects of a URI, without any limit.
    pub fn new(kind: TaskKind, uri: Option<String>) -> Self {
        Self {
            kind,
            uri,
            identity: None,
            to: None,
            rate_bytes_per_second: None,
            deadline: None,
            until: None,
            dry_run: false,
        }
    }

    /// Reads the body of a request. An unknown field is rejected: it may be a limit that the operator relies
    /// on.
    ///
    /// # Errors
    ///
    /// Fails if it is not a request, with the reason.
    pub fn of_json(body: &[u8]) -> Result<Self, TaskRefusal> {
        let fields: BTreeMap<String, Value> = serde_json::from_slice(body).map_err(TaskRefusal::no_order)?;
        if let Some(field) = fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
            let hint = suggestion(field, FIELDS).map_or_else(
                || format!("the fields are {}", FIELDS.join(", ")),
                |known| format!("did you mean {known:?}?"),
            );
            return Err(TaskRefusal::bad(format!("unknown field {field:?}\nhint: {hint}")));
        }
        serde_json::from_slice(body).map_err(TaskRefusal::no_order)
    }

    /// Checks a request that came at `now`, with a list of objects or without.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be carried out, with the reason.
    pub fn check(&self, has_manifest: bool, now: SystemTime) -> Result<(), TaskRefusal> {
        let ensure = |holds: bool, why: &str, hint: &str| {
            if holds {
                return Ok(());
            }
            Err(TaskRefusal::bad(format!("{why}\nhint: {hint}")))
        };
        ensure(
            self.kind != TaskKind::Plan,
            "a plan comes with its document",
            "`shoal plan start FILE` hands one over, or a POST of /plan",
        )?;
        ensure(
            self.kind != TaskKind::Hint,
            "a hint comes as an event of a run",
            "`shoal hint FILE` sends one, or a POST of /api/v1/lineage",
        )?;
        ensure(
            self.uri.is_some() || has_manifest,
            "the order names no objects",
            "give a uri, or send a list of objects as text/plain, one URI a line",
        )?;
        if let Some(uri) = &self.uri {
            let twice = "the order has a uri and a list of objects";
            ensure(!has_manifest, twice, "send one of them")?;
            Selection::parse(uri)?;
        }
        let kind = self.kind.as_str();
        let means_nothing = |field: &str, is_given: bool| {
            let why = format!("{field} means nothing for {kind}");
            ensure(!is_given, &why, "leave it out")
        };
        let [until, deadline] = [self.until, self.deadline].map(|end| end.map(|end| end.after(now)));
        let is_near = |left: Option<Duration>| left.is_none_or(|left| left <= AHEAD_MAX);
        if self.kind == TaskKind::Pin {
            let hint = "give until, such as 2026-11-27T18:00:00Z";
            ensure(until.is_some(), "a pin needs its end", hint)?;
            let hint = "pin for a shorter time, and again before its end";
            ensure(is_near(until), "until is more than 400 days ahead", hint)?;
        } else {
            means_nothing("until", until.is_some())?;
        }
        if !self.kind.fetches() {
            means_nothing("to", self.to.is_some())?;
            means_nothing("rate_bytes_per_second", self.rate_bytes_per_second.is_some())?;
            means_nothing("deadline", deadline.is_some())?;
            // An order that is to count must not remove.
            means_nothing("dry_run", self.dry_run)?;
        }
        for (field, left) in [("until", until), ("deadline", deadline)] {
            let why = format!("{field} is not in the future");
            ensure(left != Some(Duration::ZERO), &why, "give a later time")?;
        }
        let hint = "give an earlier one, or a rate";
        ensure(is_near(deadline), "deadline is more than 400 days ahead", hint)?;
        let hint = "give a rate of 1 or more, or leave it out";
        let is_zero = self.rate_bytes_per_second == Some(0);
        ensure(!is_zero, "rate_bytes_per_second is 0", hint)
    }
}

impl Order {
    /// Creates the order that the node `accepted_by` has accepted at `created`. It is remembered until its
    /// pins have ended, and at least until `remembered`.
    pub fn accepted(
        request: TaskRequest,
        manifest: Option<ManifestFacts>,
        created: Moment,
        accepted_by: &str,
        remembered: Option<Moment>,
    ) -> Self {
        let ends = given_up(&request, created);
        let last = [Some(ends), request.until, remembered]
            .into_iter()
            .flatten()
            .max();
        Self {
            request,
            manifest,
            document: None,
            hint: None,
            gathers: false,
            created,
            accepted_by: accepted_by.into(),
            forgotten: last.unwrap_or(ends).plus(MEMORY),
        }
    }

    /// Creates the order to carry out the plan of a document, in the name of an identity.
    pub fn of_plan(
        identity: Option<String>,
        document: DocumentFacts,
        created: Moment,
        accepted_by: &str,
    ) -> Self {
        let request = TaskRequest {
            identity,
            ..TaskRequest::new(TaskKind::Plan, None)
        };
        let remembered = Some(document.ends);
        Self {
            document: Some(document),
            ..Self::accepted(request, None, created, accepted_by, remembered)
        }
    }

    /// Creates the order to bring what a hint names, in the name of an identity, and to keep it until a time.
    pub fn of_hint(
        (identity, deadline): (Option<String>, Option<Moment>),
        hint: HintFacts,
        until: Moment,
        created: Moment,
        accepted_by: &str,
    ) -> Self {
        let request = TaskRequest {
            identity,
            deadline,
            until: Some(until),
            ..TaskRequest::new(TaskKind::Hint, None)
        };
        Self {
            hint: Some(Box::new(hint)),
            ..Self::accepted(request, None, created, accepted_by, None)
        }
    }

    /// Returns the size of the file that nodes keep for the order, in bytes: its list of objects, or its
    /// document.
    pub fn file_bytes(&self) -> Option<u64> {
        let list = self.manifest.map(|manifest| manifest.bytes);
        list.or(self.document.as_ref().map(|document| document.bytes))
    }

    /// Returns the time at which a run of the task that began at `started` is given up if it is not over. A
    /// pin runs again whenever there are other nodes, and never beyond its end. A plan ends by itself.
    pub fn ends(&self, started: Moment) -> Moment {
        if self.document.is_some() {
            return self.forgotten;
        }
        let ends = given_up(&self.request, self.created);
        match self.request.until {
            Some(until) => ends.max(started.plus(LIFE)).min(until),
            None => ends,
        }
    }

    /// Returns true if the task pins objects at `now`, unless it was cancelled.
    pub fn pins(&self, now: SystemTime) -> bool {
        let lasts = self
            .request
            .until
            .is_some_and(|until| !until.after(now).is_zero());
        self.request.kind.pins() && !self.request.dry_run && lasts
    }

    /// Returns the objects of the URI; `None` if they are listed.
    pub fn selection(&self) -> Option<Selection> {
        self.request
            .uri
            .as_deref()
            .and_then(|uri| Selection::parse(uri).ok())
    }
}

fn given_up(request: &TaskRequest, created: Moment) -> Moment {
    let of_life = created.plus(LIFE);
    request.deadline.map_or(of_life, |deadline| deadline.max(of_life))
}

impl Selection {
    /// Returns true if an object is one of these.
    pub fn has(&self, name: &ObjectName) -> bool {
        *self.bucket == *name.bucket && self.keys.matches(&name.key)
    }

    /// Parses a URI with or without wildcards in its key.
    ///
    /// # Errors
    ///
    /// Fails if the text is not one, with the reason.
    pub fn parse(uri: &str) -> Result<Self, TaskRefusal> {
        let hint = "write s3://bucket/prefix, or wildcards such as s3://bucket/t/*.parquet";
        let no_uri = |error: S3UriError| TaskRefusal::bad(format!("uri: {error}\nhint: {hint}"));
        let S3Uri { bucket, key } = uri.parse().map_err(no_uri)?;
        let no_keys = |error: KeyPatternError| TaskRefusal::bad(format!("uri: {error}"));
        let keys = KeyPattern::parse(key.as_bytes()).map_err(no_keys)?;
        Ok(Self { bucket, keys })
    }

    /// Returns true if every object of `other` is certain to be one of these.
    pub fn covers(&self, other: &Self) -> bool {
        self.bucket == other.bucket && self.keys.covers(&other.keys)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::json;

    use super::{Moment, Order, TaskKind, TaskRequest};

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn at(seconds: u64) -> Moment {
        Moment::from(NOW + Duration::from_secs(seconds))
    }

    fn request(kind: TaskKind) -> TaskRequest {
        TaskRequest::new(kind, Some("s3://b/p".into()))
    }

    #[test]
    fn each_run_of_a_pin_has_a_week_and_ends_with_the_pins() {
        let days = |days: u64| at(days * 86_400);
        let order = |request| Order::accepted(request, None, at(0), "n0", None);
        let pin = TaskRequest {
            until: Some(days(30)),
            ..request(TaskKind::Pin)
        };
        let pin = order(pin);
        for (started, ends) in [(0, 7), (8, 15), (29, 30)] {
            assert_eq!(pin.ends(days(started)), days(ends), "{started}");
        }
        let slow = TaskRequest {
            deadline: Some(days(9)),
            ..request(TaskKind::Prefetch)
        };
        assert_eq!(order(slow).ends(days(1)), days(9));
    }

    #[test]
    fn an_order_is_checked_before_it_is_accepted() {
        let pin = || TaskRequest {
            until: Some(at(60)),
            ..request(TaskKind::Pin)
        };
        let prefetch = || request(TaskKind::Prefetch);
        assert_eq!(prefetch().check(false, NOW), Ok(()));
        assert_eq!(pin().check(false, NOW), Ok(()));
        let bad = [
            (
                TaskRequest {
                    uri: None,
                    ..prefetch()
                },
                "the order names no objects",
            ),
            (request(TaskKind::Plan), "a plan comes with its document"),
            (request(TaskKind::Pin), "a pin needs its end"),
            (
                TaskRequest {
                    until: Some(at(0)),
                    ..pin()
                },
                "until is not in the future",
            ),
            (
                TaskRequest {
                    until: Some(at(401 * 86_400)),
                    ..pin()
                },
                "until is more than 400 days ahead",
            ),
            (
                TaskRequest {
                    deadline: Some(at(0)),
                    ..prefetch()
                },
                "deadline is not in the future",
            ),
            (
                TaskRequest {
                    deadline: Some(at(401 * 86_400)),
                    ..prefetch()
                },
                "deadline is more than 400 days ahead",
            ),
            (
                TaskRequest {
                    until: Some(at(60)),
                    ..prefetch()
                },
                "until means nothing for prefetch",
            ),
            (
                TaskRequest {
                    to: Some("dc1".into()),
                    ..request(TaskKind::Evict)
                },
                "to means nothing for evict",
            ),
            (
                TaskRequest {
                    dry_run: true,
                    ..request(TaskKind::Evict)
                },
                "dry_run means nothing for evict",
            ),
            (
                TaskRequest {
                    dry_run: true,
                    ..request(TaskKind::Unpin)
                },
                "dry_run means nothing for unpin",
            ),
            (
                TaskRequest {
                    rate_bytes_per_second: Some(0),
                    ..prefetch()
                },
                "rate_bytes_per_second is 0",
            ),
        ];
        for (request, why) in bad {
            let refusal = request.check(false, NOW).unwrap_err();
            assert!(refusal.why.starts_with(why), "{refusal} {request:?}");
            assert!(refusal.why.contains("\nhint: "), "{refusal}");
        }
        let refusal = prefetch().check(true, NOW).unwrap_err();
        assert!(
            refusal.why.starts_with("the order has a uri and a list"),
            "{refusal}"
        );
        for uri in ["b/p", "s3://", "s3://b*/k", "s3://b/[", "s3://b/\\"] {
            let request = TaskRequest {
                uri: Some(uri.into()),
                ..prefetch()
            };
            assert!(request.check(false, NOW).is_err(), "{uri}");
        }
    }

    #[test]
    fn a_request_with_a_misspelt_field_is_refused() {
        let parse = |json: serde_json::Value| TaskRequest::of_json(json.to_string().as_bytes());
        let good = json!({ "kind": "pin", "uri": "s3://b/", "until": "1970-01-01T00:01:00Z" });
        assert_eq!(
            parse(good),
            Ok(TaskRequest {
                until: Some(at(60)),
                ..TaskRequest::new(TaskKind::Pin, Some("s3://b/".into()))
            })
        );
        let full = TaskRequest {
            kind: TaskKind::Pin,
            uri: Some("s3://b/".into()),
            identity: Some("k".into()),
            to: Some("dc1".into()),
            rate_bytes_per_second: Some(1),
            deadline: Some(at(1)),
            until: Some(at(2)),
            dry_run: true,
        };
        assert_eq!(parse(json!(full)), Ok(full), "every field is known");
        let hint = parse(json!({ "kind": "pin", "url": "s3://b/" }))
            .unwrap_err()
            .to_string();
        assert_eq!(hint, "unknown field \"url\"\nhint: did you mean \"uri\"?");
        for bad in [
            json!({ "kind": "warm", "uri": "s3://b/" }),
            json!({ "uri": "s3://b/" }),
            json!({ "kind": "prefetch", "rate_bytes_per_second": -1 }),
            json!({ "kind": "pin", "until": "friday" }),
            json!([]),
        ] {
            assert!(
                parse(bad.clone()).unwrap_err().to_string().contains("\nhint: "),
                "{bad}"
            );
        }
    }
}
