//! Max-min fair rates by progressive filling (Bertsekas and Gallager, *Data Networks*, 6.5.2), over classes
//! instead of flows.
//!
//! The rate of all flows rises until a link is full. The flows on that link keep their rate; the others rise
//! further.

use super::{Class, Component, Link};

/// Sets the rate per flow of each class of `component` that has flows, and the share that one more flow would
/// get on each link.
pub(super) fn share<F>(component: &Component, links: &mut [Link], classes: &mut [Class<F>]) {
    for &link in &component.links {
        links[link as usize].empty();
    }
    for &class in &component.classes {
        let class = &mut classes[class as usize];
        class.settled = class.flows.is_empty();
    }
    while let Some((fullest, rate)) = fullest(component, links) {
        // The loop changes the link while it iterates over the link's classes.
        let crossing = std::mem::take(&mut links[fullest].classes);
        for &position in &crossing {
            let class = &mut classes[position as usize];
            if std::mem::replace(&mut class.settled, true) {
                continue;
            }
            class.rate = rate;
            for link in &class.path {
                links[link.0 as usize].fill(class.flows.len() as u32, rate);
            }
        }
        links[fullest].classes = crossing;
        links[fullest].share = rate;
        links[fullest].free = f64::INFINITY;
    }
    for &link in &component.links {
        let link = &mut links[link as usize];
        // A link with infinite `free` was full, and has its share.
        if link.free.is_finite() {
            let alone = link.free <= 0.0;
            link.share = if alone {
                link.bytes_per_second / f64::from(link.flows + 1)
            } else {
                link.free
            };
        }
    }
}

impl Link {
    /// Resets the link to the state in which no flow has a rate.
    fn empty(&mut self) {
        self.changes = 0;
        self.free = self.bytes_per_second;
        self.rising = self.flows;
        self.full_at = full_at(self.free, self.rising);
    }

    /// Lets `flows` flows keep `rate`.
    fn fill(&mut self, flows: u32, rate: f64) {
        self.rising -= flows;
        self.free = (self.free - rate * f64::from(flows)).max(0.0);
        self.full_at = full_at(self.free, self.rising);
    }
}

/// The rate at which a link is full if all its rising flows rise alike. Kept with the link: a new division
/// for every link that fills would be most of the work.
fn full_at(free: f64, rising: u32) -> f64 {
    if rising == 0 {
        f64::INFINITY
    } else {
        free / f64::from(rising)
    }
}

/// The link that is full first, and the rate at which it is full.
fn fullest(component: &Component, links: &[Link]) -> Option<(usize, f64)> {
    let mut first = (0, f64::INFINITY);
    for &link in &component.links {
        let rate = links[link as usize].full_at;
        if rate < first.1 {
            first = (link as usize, rate);
        }
    }
    (first.1 < f64::INFINITY).then_some(first)
}
