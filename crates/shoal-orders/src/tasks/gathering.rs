//! Orders whose lists still grow: announcements that come in the same moment become one task.

use std::time::{Duration, Instant};

use super::records::order::{Order, TaskRequest};

/// The time within which announcements with the same request become one task, and the number of objects after
/// which they become another.
const GATHERING: Duration = Duration::from_secs(1);
const OBJECTS_MAX: u64 = 100_000;

/// The orders whose lists still grow.
#[derive(Debug, Default)]
pub(super) struct Gatherings(Vec<Gathering>);

/// An order whose list still grows.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) id: u128,
    pub(super) order: Order,
    ends: Instant,
}

impl Gatherings {
    /// Returns the order to whose list the objects of this request are added.
    pub(super) fn of(&mut self, request: &TaskRequest) -> Option<&mut Gathering> {
        self.0.iter_mut().find(|open| open.order.request == *request)
    }

    /// Lets the list of an order grow from now on.
    pub(super) fn begin(&mut self, id: u128, order: Order, now: Instant) {
        debug_assert!(order.gathers, "other nodes leave a list alone that grows");
        let ends = now + GATHERING;
        self.0.push(Gathering { id, order, ends });
    }

    /// Removes and returns the orders whose lists are complete: they have grown for long enough, are long
    /// enough, or are of a task that `is_cancelled`.
    pub(super) fn end(&mut self, now: Instant, is_cancelled: impl Fn(u128) -> bool) -> Vec<(u128, Order)> {
        let is_over =
            |open: &mut Gathering| now >= open.ends || open.objects() >= OBJECTS_MAX || is_cancelled(open.id);
        let ended = self.0.extract_if(.., is_over);
        ended
            .map(|mut open| {
                open.order.gathers = false;
                (open.id, open.order)
            })
            .collect()
    }
}

impl Gathering {
    /// Returns the number of objects that were gathered.
    pub(super) fn objects(&self) -> u64 {
        self.order.manifest.map_or(0, |facts| facts.objects)
    }
}
