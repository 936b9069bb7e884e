//! Permission to move bytes over one direction of a link, in the order of [classes](super).

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::demand::Usage;
use super::queues::Queues;
use super::{Bucket, Class, Demand, whole};
use crate::fair::Payer;

/// The time for which a transfer without a waiting client may occupy the link; a quantum is the bandwidth
/// times this.
const QUANTUM_TIME: Duration = Duration::from_micros(500);

/// As [`QUANTUM_TIME`], for client and planned transfers. They request the next quantum when one is granted,
/// and the request has to arrive before the link has room for others again, although timers are late.
const FIRST_QUANTUM_TIME: Duration = Duration::from_millis(3);

/// The bounds of a quantum. A smaller one costs more processor time than it saves waiting; a larger one fills
/// the buffers of a slow link.
const QUANTUM_MIN: u64 = 16 << 10;
const QUANTUM_MAX: u64 = 256 << 10;
const FIRST_QUANTUM_MIN: u64 = 64 << 10;

/// The burst after an idle time is the bandwidth times this. Timers may be a millisecond late, and the link
/// must not be idle until then.
const BURST_TIME: Duration = Duration::from_millis(5);

/// The guaranteed share of cleaning in the bandwidth.
const CLEANING_PART: f64 = 0.05;

/// The maximum share of all reservations in the bandwidth.
const RESERVED_PART_MAX: f64 = 0.8;

/// Other classes are held back for expected clients for at most this percentage of the time, so that clients
/// that send many small requests do not stop all others.
const HELD_PERCENT: u64 = 8;

/// The maximum time for which they are held back at once.
const HELD_MAX: Duration = Duration::from_millis(20);

/// Cancelled requests of a payer are removed whenever the length of its queue is a multiple of this.
const GIVEN_UP_MAX: usize = 256;

/// Grants permission to move bytes over one direction of a link. `T` identifies a waiting transfer.
///
/// In any time `t`, it grants at most `bandwidth * t` bytes plus one burst plus one client quantum. The burst
/// is 5 ms of bandwidth, but at least two client quanta.
#[derive(Debug)]
pub struct Meter<T> {
    total: Bucket,
    /// The sum of the rates that plans reserve, in bytes per second, before it is capped.
    asked_reserved: u64,
    reserved: Bucket,
    cleaning: Bucket,
    queues: Queues<Place<T>>,
    /// Waiting requests for promised bytes, by number.
    promised: HashMap<u64, Waiting<T>>,
    /// The order in which they use the reservation. Some have already been granted in their client's turn.
    promised_order: VecDeque<u64>,
    promised_number: u64,
    /// Classes below clients are held back until this time.
    held_until: Duration,
    /// Tokens are microseconds for which they may be held back.
    may_hold: Bucket,
    now: Duration,
    usage: [Usage; Class::ALL.len()],
    /// Promised bytes of clients that were charged as planned.
    pub promised_bytes: u64,
}

/// A request of a transfer for permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Its class.
    pub class: Class,
    /// The payer that is charged.
    pub payer: Payer,
    /// Bytes to move.
    pub bytes: u64,
    /// True if none of its bytes are in flight yet. A client's transfer may begin at any time.
    pub begins: bool,
    /// True if a plan has promised these bytes to the client. They are granted from the reservation or in the
    /// client's turn, whichever comes first, and count against both.
    pub is_promised: bool,
}

impl Ask {
    fn is_promised(&self) -> bool {
        self.is_promised && self.class == Class::Client
    }
}

#[derive(Debug)]
struct Waiting<T> {
    class: Class,
    bytes: u64,
    since: Duration,
    item: T,
}

/// A place in a queue.
#[derive(Debug)]
enum Place<T> {
    Own(Waiting<T>),
    /// A request for promised bytes, by number; void if it was granted already.
    Promised(u64),
}

/// A transfer that was granted permission.
#[derive(Debug, PartialEq, Eq)]
pub struct Granted<T> {
    /// The transfer.
    pub item: T,
    /// Its class when it asked.
    pub class: Class,
    /// The class that is charged: [`Class::Planned`] for promised bytes granted from the reservation.
    pub goes_as: Class,
    /// The bytes that it may move.
    pub bytes: u64,
    /// How long it has waited.
    pub waited: Duration,
}

impl<T> Meter<T> {
    /// Creates a meter for `bandwidth` bytes per second; 0 counts as 1.
    pub fn new(bandwidth: u64, now: Duration) -> Self {
        let bandwidth = bandwidth.max(1);
        Self {
            total: Bucket::new(bandwidth, burst(bandwidth), now),
            asked_reserved: 0,
            reserved: Bucket::new(0, guarantee_burst(bandwidth), now),
            cleaning: Bucket::new(part(bandwidth, CLEANING_PART), guarantee_burst(bandwidth), now),
            queues: Queues::new(),
            promised: HashMap::new(),
            promised_order: VecDeque::new(),
            promised_number: 0,
            held_until: now,
            may_hold: Bucket::new(10_000 * HELD_PERCENT, micros(HELD_MAX), now),
            now,
            usage: [Usage::at(now); Class::ALL.len()],
            promised_bytes: 0,
        }
    }

    /// Bytes a second.
    pub fn bandwidth(&self) -> u64 {
        self.total.rate()
    }

    /// The maximum bytes that a transfer should request at a time. A client's transfer should request the
    /// next ones when it has moved half of them.
    pub fn quantum(&self, class: Class) -> u64 {
        match class {
            Class::Client | Class::Planned => first_quantum(self.bandwidth()),
            Class::Prefetch | Class::Cleaning => quantum(self.bandwidth()),
        }
    }

    /// Changes the bandwidth from `now` on.
    pub fn set_bandwidth(&mut self, bandwidth: u64, now: Duration) {
        let bandwidth = bandwidth.max(1);
        self.total.set(bandwidth, burst(bandwidth), now);
        let burst = guarantee_burst(bandwidth);
        self.cleaning.set(part(bandwidth, CLEANING_PART), burst, now);
        self.set_reserved(self.asked_reserved, now);
    }

    /// Sets the rate reserved for planned transfers and promised bytes together, ahead of clients; capped at
    /// four fifths of the bandwidth.
    pub fn set_reserved(&mut self, rate: u64, now: Duration) {
        self.asked_reserved = rate;
        let most = part(self.bandwidth(), RESERVED_PART_MAX);
        let burst = guarantee_burst(self.bandwidth());
        self.reserved.set(rate.min(most), burst, now);
    }

    /// Sets the bound of bytes in flight per class, for transfers without a waiting client; another transfer
    /// of the class may begin only below it. Initially unbounded.
    pub fn set_ahead_max(&mut self, bytes: u64) {
        self.queues.ahead_max = bytes;
    }

    /// Holds back the classes below clients for a time because a client's bytes are expected: a connection
    /// that has just started cannot fill the link, and would be slowed down by a queue on it. Guarantees are
    /// not held back.
    pub fn expect_client(&mut self, within: Duration, now: Duration) {
        self.refill(now);
        let until = now.saturating_add(within);
        let more = until.saturating_sub(self.held_until.max(now));
        if self.may_hold.exceeds(micros(more)) {
            self.may_hold.take(micros(more));
            self.held_until = self.held_until.max(until);
        }
    }

    /// Grants permission if it is available at once, and returns the class that is charged.
    pub fn try_take(&mut self, ask: Ask, now: Duration) -> Option<Class> {
        self.refill(now);
        let Ask { class, bytes, .. } = ask;
        if ask.is_promised()
            && self.total.exceeds(0)
            && self.has_room_for_promises()
            && self.promised.is_empty()
        {
            self.charge((class, Class::Planned), bytes, now);
            return Some(Class::Planned);
        }
        let wants_reserved = self.queues.may_go_on(Class::Planned) || !self.promised.is_empty();
        let has_due_guarantee = wants_reserved && self.reserved.exceeds(0)
            || self.queues.may_go_on(Class::Cleaning) && self.cleaning.exceeds(0);
        let may_go = match class {
            Class::Client => self.total.exceeds(0) && !has_due_guarantee,
            _ => self.total.exceeds(self.quantum(class)) && now >= self.held_until,
        };
        let goes_before = |other: &Class| *other <= class && self.queues.may_go_on(*other);
        let waits_for_others = Class::ALL.iter().any(goes_before);
        let granted = may_go && !waits_for_others && (!ask.begins || self.queues.may_begin(class));
        granted.then(|| {
            self.charge((class, class), bytes, now);
            class
        })
    }

    /// Queues a transfer for permission. `is_wanted` returns false for cancelled transfers, which are
    /// removed.
    pub fn ask(&mut self, ask: Ask, item: T, now: Duration, is_wanted: impl Fn(&T) -> bool) {
        let Ask {
            class,
            payer,
            bytes,
            begins,
            ..
        } = ask;
        let waiting = Waiting {
            class,
            bytes,
            since: now,
            item,
        };
        let place = if ask.is_promised() {
            self.promise(waiting)
        } else {
            Place::Own(waiting)
        };
        let queue = self.queues.for_more(class, begins);
        queue.push(payer, bytes, place);
        if queue.len_of(payer.id).is_multiple_of(GIVEN_UP_MAX) {
            let promised = &mut self.promised;
            queue.retain(payer.id, |place| match place {
                Place::Own(waiting) => is_wanted(&waiting.item),
                Place::Promised(number) => {
                    let waits = promised
                        .get(number)
                        .is_some_and(|waiting| is_wanted(&waiting.item));
                    if !waits {
                        promised.remove(number);
                    }
                    waits
                }
            });
        }
        self.usage[class as usize].waited(now);
    }

    /// Grants permission to the next transfer at `now`; `None` if none may proceed.
    pub fn next(&mut self, now: Duration, is_wanted: impl Fn(&T) -> bool) -> Option<Granted<T>> {
        self.refill(now);
        loop {
            let (goes_as, place) = self.pop()?;
            let waiting = match place {
                Place::Own(waiting) => Some(waiting),
                Place::Promised(number) => self.promised.remove(&number),
            };
            let Some(Waiting {
                class,
                bytes,
                since,
                item,
            }) = waiting
            else {
                continue;
            };
            if !is_wanted(&item) {
                continue;
            }
            self.charge((class, goes_as), bytes, now);
            self.usage[goes_as as usize].waited(now);
            return Some(Granted {
                item,
                class,
                goes_as,
                bytes,
                waited: now.saturating_sub(since),
            });
        }
    }

    /// The time at which to call [`Meter::next`] again; `None` while no transfer waits for room.
    pub fn next_at(&self) -> Option<Duration> {
        let early = self.total.exceeds_at(0);
        let guaranteed = |bucket: &Bucket| Some(bucket.exceeds_at(0)?.max(early?));
        let times = [
            early.filter(|_| self.queues.may_go_on(Class::Client)),
            guaranteed(&self.reserved)
                .filter(|_| self.queues.may_go_on(Class::Planned) || !self.promised.is_empty()),
            guaranteed(&self.cleaning).filter(|_| self.queues.may_go_on(Class::Cleaning)),
            self.queues
                .first_waiting()
                .and_then(|class| self.total.exceeds_at(self.quantum(class)))
                .map(|at| at.max(self.held_until)),
        ];
        times.into_iter().flatten().min()
    }

    /// Returns permission that a transfer did not use to the class that was charged.
    pub fn give_back(&mut self, class: Class, bytes: u64, now: Duration) {
        self.refill(now);
        self.total.give_back(bytes);
        self.usage[class as usize].moved(-(bytes as f64), now);
    }

    /// Charges bytes that a transfer moved beyond its permission.
    pub fn pay(&mut self, class: Class, bytes: u64, now: Duration) {
        self.refill(now);
        self.take(class, bytes, now);
    }

    /// Records that bytes granted to a transfer of `class` without a waiting client are no longer in flight.
    /// Returns true if another waiting transfer of the class may begin now.
    pub fn arrived(&mut self, class: Class, bytes: u64) -> bool {
        self.queues.arrived(class, bytes)
    }

    /// The number of waiting transfers of a class, including some that were cancelled or granted from the
    /// reservation.
    pub fn waiting(&self, class: Class) -> usize {
        self.queues.len(class)
    }

    /// The recent rate of a class in bytes per second.
    pub fn rate(&self, class: Class, now: Duration) -> u64 {
        self.usage[class as usize].rate(now)
    }

    /// The rates that this direction would use if the link had room. A class that waited recently wants twice
    /// its rate, but at least `fair`.
    pub fn demand(&self, fair: u64, now: Duration) -> Demand {
        let of = |class: Class| self.usage[class as usize].demand(self.queues.len(class) > 0, fair, now);
        Demand::new(Class::ALL.map(of), self.reserved.rate())
    }

    fn refill(&mut self, now: Duration) {
        self.now = self.now.max(now);
        self.may_hold.refill(now);
        self.total.refill(now);
        self.reserved.refill(now);
        self.cleaning.refill(now);
    }

    /// Removes the next transfer that may be granted now from its queue, and returns it with the class to
    /// charge.
    fn pop(&mut self) -> Option<(Class, Place<T>)> {
        if !self.total.exceeds(0) {
            return None;
        }
        let class = if self.reserved.exceeds(0) && self.queues.may_go_on(Class::Planned) {
            Class::Planned
        } else if self.has_room_for_promises() && !self.promised.is_empty() {
            let number = self.promised_order.pop_front();
            let number = number.expect("all that is promised is in order");
            return Some((Class::Planned, Place::Promised(number)));
        } else if self.cleaning.exceeds(0) && self.queues.may_go_on(Class::Cleaning) {
            Class::Cleaning
        } else {
            let class = self.queues.first_waiting()?;
            let may_go = self.now >= self.held_until && self.total.exceeds(self.quantum(class));
            if class != Class::Client && !may_go {
                return None;
            }
            class
        };
        let place = self.queues.pop(class);
        Some((class, place.expect("the class was chosen because it waits")))
    }

    /// Queues promised bytes for the reservation; returns their place in the queue of clients.
    fn promise(&mut self, waiting: Waiting<T>) -> Place<T> {
        while let Some(first) = self.promised_order.front()
            && !self.promised.contains_key(first)
        {
            self.promised_order.pop_front();
        }
        let number = self.promised_number;
        self.promised_number += 1;
        self.promised.insert(number, waiting);
        self.promised_order.push_back(number);
        Place::Promised(number)
    }

    /// Returns true if the reservation has room for promised bytes. Planned transfers come first: if
    /// reservations exceed the link, promised bytes are granted in their clients' turns, as without a plan.
    fn has_room_for_promises(&self) -> bool {
        self.reserved.exceeds(0) && !self.queues.may_go_on(Class::Planned)
    }

    /// Charges the bytes of a transfer of `class` to `goes_as`, and counts them as in flight.
    fn charge(&mut self, (class, goes_as): (Class, Class), bytes: u64, now: Duration) {
        debug_assert!(
            goes_as == class || (class, goes_as) == (Class::Client, Class::Planned),
            "only promised bytes of clients go as planned ones"
        );
        self.take(goes_as, bytes, now);
        if class != Class::Client {
            self.queues.departed(class, bytes);
        } else if goes_as != class {
            self.promised_bytes = self.promised_bytes.saturating_add(bytes);
        }
    }

    /// Charges bytes to a class and the link, going into debt if there is too little room.
    fn take(&mut self, class: Class, bytes: u64, now: Duration) {
        self.total.take(bytes);
        self.usage[class as usize].moved(bytes as f64, now);
        let guarantee = match class {
            Class::Planned => &mut self.reserved,
            Class::Cleaning => &mut self.cleaning,
            Class::Client | Class::Prefetch => return,
        };
        // A transfer within its guarantee may exceed it briefly, which leaves a debt. Bytes beyond the
        // guarantee use up what is left of it, but leave no debt.
        if guarantee.exceeds(0) {
            guarantee.take(bytes);
        } else {
            guarantee.take_at_most(bytes);
        }
    }
}

fn quantum(bandwidth: u64) -> u64 {
    bytes_in(bandwidth, QUANTUM_TIME).clamp(QUANTUM_MIN, QUANTUM_MAX)
}

fn first_quantum(bandwidth: u64) -> u64 {
    bytes_in(bandwidth, FIRST_QUANTUM_TIME).max(FIRST_QUANTUM_MIN)
}

/// The burst of a guarantee: at least what it accumulates while a client uses its quantum.
fn guarantee_burst(bandwidth: u64) -> u64 {
    2 * first_quantum(bandwidth)
}

fn burst(bandwidth: u64) -> u64 {
    bytes_in(bandwidth, BURST_TIME).max(2 * first_quantum(bandwidth))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn bytes_in(bandwidth: u64, time: Duration) -> u64 {
    whole(bandwidth as f64 * time.as_secs_f64())
}

fn part(bandwidth: u64, part: f64) -> u64 {
    whole(bandwidth as f64 * part).max(1)
}

#[cfg(test)]
mod tests;
