//! Transfers over shared links: the rate of each flow, and the time when it is done.
//!
//! Links are shared max-min fairly. Flows over the same path get the same rate, so they are one [`Class`].
//! The progress of a class is the bytes that each member has received since the class began, and a flow is
//! done when the progress reaches its mark (fair queuing's virtual time). An arrival or a departure therefore
//! touches one class and its links, however many flows there are.
//!
//! Rates are recomputed (`fair.rs`) when the arrivals and departures on some link since the last computation
//! exceed a tolerated share of its flows. Between computations flows keep their rates, so a link is over- or
//! underused by no more than that share. A computation visits only the links that classes connect with that
//! link: the clients of one node do not slow down the computation for another.

mod ends;
pub(crate) mod events;
mod fair;
pub mod links;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use shoal_sim::Time;

use self::ends::Ends;

/// A directed link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(u32);

/// All flows over one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(u32);

/// Share of a link's flows that may arrive or depart before rates are recomputed.
pub const TOLERANCE: f64 = 1.0 / 64.0;

/// Links, and the flows on them. `F` names a flow.
#[derive(Clone, Debug)]
pub struct Network<F> {
    links: Vec<Link>,
    classes: Vec<Class<F>>,
    /// The time when the first flow of each class is done. Kept outside the classes, because every step
    /// searches it.
    ends: Ends,
    components: Vec<Component>,
    /// Components whose rates must be recomputed.
    stale: Vec<u32>,
    tolerance: f64,
    now: Time,
    started: u64,
    refreshes: u64,
}

/// Links that share classes, directly or through others. A change on one link has no effect outside the
/// component.
#[derive(Clone, Debug, Default)]
struct Component {
    links: Vec<u32>,
    classes: Vec<u32>,
    is_stale: bool,
}

#[derive(Clone, Debug)]
struct Link {
    bytes_per_second: f64,
    component: u32,
    flows: u32,
    /// Arrivals and departures since the last computation of rates.
    changes: u32,
    /// The rate that one more flow would get, as of the last computation.
    share: f64,
    classes: Vec<u32>,
    carried_bytes: u64,
    /// During a computation: the rate that is not given away, the flows without a rate, and the rate at which
    /// these flows fill the link.
    free: f64,
    rising: u32,
    full_at: f64,
}

#[derive(Clone, Debug)]
struct Class<F> {
    path: Vec<LinkId>,
    /// The rate of one flow, in bytes per second.
    rate: f64,
    /// Bytes that each flow has received since the class was last empty, at the moment `at`.
    progress: f64,
    at: Time,
    flows: BinaryHeap<Reverse<Flow<F>>>,
    /// During a computation: whether the class has its rate.
    settled: bool,
}

#[derive(Clone, Debug)]
struct Flow<F> {
    /// The progress of the class at which the flow is done.
    mark: f64,
    rank: u64,
    bytes: u64,
    name: F,
}

impl<F> Network<F> {
    /// Creates a network without links. `tolerance` is [`TOLERANCE`], or 0 to compute rates at every change.
    pub fn new(tolerance: f64) -> Self {
        Self {
            links: Vec::new(),
            classes: Vec::new(),
            ends: Ends::default(),
            components: Vec::new(),
            stale: Vec::new(),
            tolerance,
            now: Time::ZERO,
            started: 0,
            refreshes: 0,
        }
    }

    /// Adds a link.
    pub fn link(&mut self, bytes_per_second: f64) -> LinkId {
        assert!(bytes_per_second > 0.0, "a link carries something");
        let link = self.links.len() as u32;
        self.components.push(Component {
            links: vec![link],
            ..Component::default()
        });
        self.links.push(Link {
            bytes_per_second,
            component: self.components.len() as u32 - 1,
            flows: 0,
            changes: 0,
            share: bytes_per_second,
            classes: Vec::new(),
            carried_bytes: 0,
            free: 0.0,
            rising: 0,
            full_at: 0.0,
        });
        LinkId(link)
    }

    /// Adds a class of flows over `path`. Transfers over an empty path take no time.
    pub fn class(&mut self, path: Vec<LinkId>) -> ClassId {
        let class = self.classes.len() as u32;
        for link in &path {
            self.links[link.0 as usize].classes.push(class);
        }
        if let Some(&LinkId(first)) = path.first() {
            let component = self.links[first as usize].component;
            for link in &path {
                self.join(component, self.links[link.0 as usize].component);
            }
            self.components[component as usize].classes.push(class);
        }
        self.classes.push(Class {
            path,
            rate: f64::INFINITY,
            progress: 0.0,
            at: self.now,
            flows: BinaryHeap::new(),
            settled: false,
        });
        self.ends.add();
        ClassId(class)
    }

    /// Starts a flow of `bytes` at `now`.
    pub fn start(&mut self, now: Time, class: ClassId, bytes: u64, name: F) {
        self.now = now;
        let position = class.0 as usize;
        let Class { path, .. } = &self.classes[position];
        let rate_of_another = path
            .iter()
            .map(|link| self.links[link.0 as usize].share)
            .fold(f64::INFINITY, f64::min);
        let class = &mut self.classes[position];
        if class.flows.is_empty() {
            class.rate = rate_of_another;
            class.progress = 0.0;
        }
        class.advance(now);
        let rank = self.started;
        self.started += 1;
        class.flows.push(Reverse(Flow {
            mark: class.progress + bytes as f64,
            rank,
            bytes,
            name,
        }));
        self.ends.set(position, class.end());
        self.count(position, 1);
    }

    /// The time when the next flow is done.
    pub fn next_end(&mut self) -> Option<Time> {
        while let Some(component) = self.stale.pop() {
            self.refresh(component as usize);
        }
        self.ends.earliest()
    }

    /// Ends the next flow; its time is [`Network::next_end`].
    pub fn end_next(&mut self) -> Option<F> {
        let now = self.next_end()?;
        self.now = now;
        let position = self.ends.first_at(now)?;
        let class = &mut self.classes[position];
        let Reverse(flow) = class.flows.pop().expect("a class that ends has a flow");
        // Exactly the mark: rounding to nanoseconds must not add up.
        class.progress = flow.mark;
        class.at = now;
        self.ends.set(position, class.end());
        for link in &self.classes[position].path {
            self.links[link.0 as usize].carried_bytes += flow.bytes;
        }
        self.count(position, -1);
        Some(flow.name)
    }

    /// Changes the rate of `link` to `bytes_per_second` from `now` on.
    pub fn set_rate(&mut self, now: Time, link: LinkId, bytes_per_second: f64) {
        assert!(bytes_per_second > 0.0, "a link carries something");
        self.now = now;
        self.links[link.0 as usize].bytes_per_second = bytes_per_second;
        self.outdate(self.links[link.0 as usize].component);
    }

    /// Bytes that completed flows sent over `link`.
    pub fn carried_bytes(&self, link: LinkId) -> u64 {
        self.links[link.0 as usize].carried_bytes
    }

    /// The number of computations of rates.
    pub const fn refreshes(&self) -> u64 {
        self.refreshes
    }

    /// Counts one flow more or less in the class at `position`.
    fn count(&mut self, position: usize, change: i32) {
        let mut outdated = None;
        for link in &self.classes[position].path {
            let link = &mut self.links[link.0 as usize];
            link.flows = link.flows.saturating_add_signed(change);
            link.changes += 1;
            if f64::from(link.changes) > self.tolerance * f64::from(link.flows) {
                outdated = Some(link.component);
            }
        }
        if let Some(component) = outdated {
            self.outdate(component);
        }
    }

    fn outdate(&mut self, component: u32) {
        if !std::mem::replace(&mut self.components[component as usize].is_stale, true) {
            self.stale.push(component);
        }
    }

    /// Merges `other` into `component`, since a class crosses both.
    fn join(&mut self, component: u32, other: u32) {
        if component == other {
            return;
        }
        let Component {
            links,
            classes,
            is_stale,
        } = std::mem::take(&mut self.components[other as usize]);
        for &link in &links {
            self.links[link as usize].component = component;
        }
        let joined = &mut self.components[component as usize];
        joined.links.extend(links);
        joined.classes.extend(classes);
        if is_stale {
            self.outdate(component);
        }
    }

    fn refresh(&mut self, component: usize) {
        self.refreshes += 1;
        self.components[component].is_stale = false;
        let component = &self.components[component];
        for &class in &component.classes {
            let class = &mut self.classes[class as usize];
            if !class.flows.is_empty() {
                class.advance(self.now);
            }
        }
        fair::share(component, &mut self.links, &mut self.classes);
        for &class in &component.classes {
            let end = self.classes[class as usize].end();
            self.ends.set(class as usize, end);
        }
    }
}

impl<F> Class<F> {
    fn advance(&mut self, now: Time) {
        if self.rate.is_finite() && now > self.at {
            self.progress += self.rate * (now.0 - self.at.0) as f64 * 1e-9;
        }
        self.at = now;
    }

    /// The time when the first flow is done.
    fn end(&self) -> Time {
        let Some(Reverse(first)) = self.flows.peek() else {
            return Time::NEVER;
        };
        let missing = (first.mark - self.progress).max(0.0);
        Time(
            self.at
                .0
                .saturating_add(Time::from_secs_f64(missing / self.rate).0),
        )
    }
}

impl<F> PartialEq for Flow<F> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<F> Eq for Flow<F> {}

impl<F> PartialOrd for Flow<F> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<F> Ord for Flow<F> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.mark.total_cmp(&other.mark).then(self.rank.cmp(&other.rank))
    }
}

#[cfg(test)]
mod tests;
