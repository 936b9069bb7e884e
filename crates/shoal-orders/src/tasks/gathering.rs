//! Orders whose lists still grow: announcements that come in the same moment become one task.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::records::files::ManifestFacts;
use super::records::order::{Order, TaskRequest};

/// Announcements with the same request within this time become one task, of at most about so many objects.
const GATHERING: Duration = Duration::from_secs(1);
const OBJECTS_MAX: u64 = 100_000;

/// The orders whose lists grow, by their requests.
#[derive(Debug, Default)]
pub(super) struct Gatherings(HashMap<String, Gathering>);

/// An order whose list still grows.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) id: u128,
    pub(super) order: Order,
    ends: Instant,
}

impl Gatherings {
    /// The order to whose list the objects of this request are added.
    pub(super) fn of(&mut self, request: &TaskRequest) -> Option<&mut Gathering> {
        self.0.get_mut(&key(request))
    }

    /// Has the list of an order grow from now on.
    pub(super) fn begin(&mut self, id: u128, order: Order, now: Instant) {
        let ends = now + GATHERING;
        self.0.insert(key(&order.request), Gathering { id, order, ends });
    }

    /// Takes out the orders whose lists have grown for long enough, are long enough, or are of a task that
    /// `is_cancelled`. They are as they will stay.
    pub(super) fn end(&mut self, now: Instant, is_cancelled: impl Fn(u128) -> bool) -> Vec<(u128, Order)> {
        let is_over =
            |open: &mut Gathering| now >= open.ends || open.objects() >= OBJECTS_MAX || is_cancelled(open.id);
        let ended = self.0.extract_if(|_, open| is_over(open));
        ended
            .map(|(_, open)| {
                let order = Order {
                    gathers: false,
                    ..open.order
                };
                (open.id, order)
            })
            .collect()
    }
}

impl Gathering {
    /// The objects that were gathered.
    pub(super) fn objects(&self) -> u64 {
        self.order.manifest.map_or(0, |facts| facts.objects)
    }

    /// Notes that the list has grown.
    pub(super) fn note(&mut self, facts: ManifestFacts) {
        self.order.manifest = Some(facts);
    }
}

fn key(request: &TaskRequest) -> String {
    serde_json::to_string(request).expect("a request is JSON")
}
