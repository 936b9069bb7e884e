//! The time of a plan, cut into slots.

use crate::model::{Job, Request, Window};

/// Times nearer than this to the edge of a slot lie on it: 0.3 is 3 × 0.1 here.
const EDGE_S: f64 = 1e-6;

/// Slots of one length, from the start of the window to the last deadline.
#[derive(Clone, Debug, PartialEq)]
pub struct Slots {
    start_s: f64,
    slot_s: f64,
    /// The least rate of the link in each slot.
    pub link: Vec<f64>,
    /// The rate promised to others in each slot: the sum of all promises that touch it.
    pub promised: Vec<f64>,
}

impl Slots {
    /// Returns the slots of a checked request.
    pub fn new(request: &Request) -> Self {
        let Window { start_s, slot_s, .. } = request.window;
        let mut slots = Self {
            start_s,
            slot_s,
            link: Vec::new(),
            promised: Vec::new(),
        };
        let first_slots = request.jobs.iter().map(|job| slots.slot(job.submit_s) + 1);
        let count = first_slots.fold(slots.end(request.ends_s()), usize::max);
        slots.link = vec![request.link.bytes_per_second; count];
        for (number, change) in request.link.changes.iter().enumerate() {
            let after = slots.next(change.at_s).min(count);
            slots.link[after..].fill(change.bytes_per_second);
            // The slot of the change has the lesser rate.
            let within = slots.slot(change.at_s);
            if change.at_s > start_s && within < after {
                let before = match number {
                    0 => request.link.bytes_per_second,
                    _ => request.link.changes[number - 1].bytes_per_second,
                };
                slots.link[within] = slots.link[within].min(before.min(change.bytes_per_second));
            }
        }
        slots.promised = vec![0.0; count];
        for promise in &request.link.promised {
            let range = slots.slot(promise.start_s)..slots.end(promise.end_s).min(count);
            for promised in slots.promised.get_mut(range).unwrap_or_default() {
                *promised += promise.bytes_per_second;
            }
        }
        slots
    }

    /// Returns the number of slots.
    pub fn len(&self) -> usize {
        self.link.len()
    }

    /// Returns true if there is no slot.
    pub fn is_empty(&self) -> bool {
        self.link.is_empty()
    }

    /// Returns the length of a slot.
    pub fn seconds(&self) -> f64 {
        self.slot_s
    }

    /// Returns the start of a slot, which is the end of the one before.
    pub fn start_s(&self, slot: usize) -> f64 {
        self.start_s + self.slot_s * slot as f64
    }

    /// Returns the slot in which a time lies.
    pub fn slot(&self, time_s: f64) -> usize {
        whole(((time_s - self.start_s + EDGE_S) / self.slot_s).floor())
    }

    /// Returns the first slot that starts at or after a time.
    pub fn next(&self, time_s: f64) -> usize {
        whole(((time_s - self.start_s - EDGE_S) / self.slot_s).ceil())
    }

    /// Returns the slot after the last one of an interval that ends at `time_s`.
    pub fn end(&self, time_s: f64) -> usize {
        self.next(time_s)
    }

    /// Returns the slot after the last one of a job, which has one at least.
    pub fn until(&self, job: &Job) -> usize {
        self.end(job.deadline_s).max(self.slot(job.submit_s) + 1)
    }

    /// Returns the rate that is left in a slot.
    pub fn free(&self, slot: usize) -> f64 {
        (self.link[slot] - self.promised[slot]).max(0.0)
    }
}

#[expect(
    clippy::cast_sign_loss,
    reason = "a time before the window lies in its first slot"
)]
fn whole(slots: f64) -> usize {
    slots.max(0.0) as usize
}

#[cfg(test)]
mod tests {
    use crate::instance::slots::Slots;
    use crate::model::{Link, LinkChange, Promise, Request, Window};

    fn request(link: Link) -> Request {
        Request {
            window: Window {
                start_s: 10.0,
                end_s: 20.0,
                slot_s: 0.1,
            },
            link,
            ..crate::tests::table1()
        }
    }

    #[test]
    fn a_time_on_an_edge_belongs_to_the_slot_that_begins() {
        let mut request = request(Link {
            bytes_per_second: 1.0,
            changes: vec![],
            promised: vec![],
        });
        request.jobs.clear();
        let slots = Slots::new(&request);
        assert_eq!(slots.len(), 100);
        assert_eq!((slots.slot(10.3), slots.next(10.3), slots.end(10.3)), (3, 3, 3));
        assert_eq!(
            (slots.slot(10.31), slots.next(10.31), slots.end(10.31)),
            (3, 4, 4)
        );
        assert_eq!(slots.slot(3.0), 0);
    }

    #[test]
    fn a_slot_has_the_least_rate_of_its_time_and_the_most_promises() {
        let mut request = request(Link {
            bytes_per_second: 5.0,
            changes: vec![
                LinkChange {
                    at_s: 10.25,
                    bytes_per_second: 2.0,
                },
                LinkChange {
                    at_s: 10.5,
                    bytes_per_second: 8.0,
                },
            ],
            promised: vec![Promise {
                start_s: 10.45,
                end_s: 10.62,
                bytes_per_second: 3.0,
            }],
        });
        request.jobs.clear();
        let slots = Slots::new(&request);
        assert_eq!(slots.link[..7], [5.0, 5.0, 2.0, 2.0, 2.0, 8.0, 8.0]);
        let free: Vec<_> = (0..8).map(|slot| slots.free(slot)).collect();
        assert_eq!(free, [5.0, 5.0, 2.0, 2.0, 0.0, 5.0, 5.0, 8.0]);
    }
}
