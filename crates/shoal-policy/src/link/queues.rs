//! The transfers that wait at a meter, and the bytes in flight that others of their class wait for.

use super::Class;
use crate::fair::FairQueue;

/// Two queues for each class. A transfer begins only while the bytes in flight of its class are below a
/// bound.
#[derive(Debug)]
pub(super) struct Queues<T> {
    /// Transfers that have bytes in flight already, or a waiting client.
    begun: [FairQueue<T>; Class::ALL.len()],
    /// Transfers that wait to begin until fewer bytes of their class are in flight.
    beginning: [FairQueue<T>; Class::ALL.len()],
    /// Bytes in flight by class, for transfers without a waiting client: granted, but not yet arrived. Each
    /// class has its own bound, because the bytes of one may be stuck until another has moved its own.
    pub(super) ahead: [u64; Class::ALL.len()],
    /// The bound of the bytes in flight of a class.
    pub(super) ahead_max: u64,
}

impl<T> Queues<T> {
    /// Creates empty queues, without a bound of the bytes in flight.
    pub(super) fn new() -> Self {
        Self {
            begun: std::array::from_fn(|_| FairQueue::with_credit(0)),
            beginning: std::array::from_fn(|_| FairQueue::with_credit(0)),
            ahead: [0; Class::ALL.len()],
            ahead_max: u64::MAX,
        }
    }

    /// The queue for a transfer of the class, which `begins` or has bytes in flight. A client's transfer may
    /// begin at any time.
    pub(super) fn for_more(&mut self, class: Class, begins: bool) -> &mut FairQueue<T> {
        let queues = if begins && class != Class::Client {
            &mut self.beginning
        } else {
            &mut self.begun
        };
        &mut queues[class as usize]
    }

    /// Removes the next transfer of the class; those that have begun come first.
    pub(super) fn pop(&mut self, class: Class) -> Option<T> {
        self.begun[class as usize]
            .pop()
            .or_else(|| self.beginning[class as usize].pop())
    }

    /// The number of waiting transfers of the class.
    pub(super) fn len(&self, class: Class) -> usize {
        self.begun[class as usize].len() + self.beginning[class as usize].len()
    }

    /// The highest class with a transfer that waits only for room.
    pub(super) fn first_waiting(&self) -> Option<Class> {
        Class::ALL.into_iter().find(|class| self.may_go_on(*class))
    }

    /// Returns true if a transfer of the class waits only for room.
    pub(super) fn may_go_on(&self, class: Class) -> bool {
        let begins = self.may_begin(class) && !self.beginning[class as usize].is_empty();
        begins || !self.begun[class as usize].is_empty()
    }

    /// Returns true if a transfer of the class may begin.
    pub(super) fn may_begin(&self, class: Class) -> bool {
        self.ahead[class as usize] < self.ahead_max
    }

    /// Records that bytes of the class are in flight.
    pub(super) fn departed(&mut self, class: Class, bytes: u64) {
        let ahead = &mut self.ahead[class as usize];
        *ahead = ahead.saturating_add(bytes);
    }

    /// Records that bytes of the class have arrived. Returns true if a waiting transfer of the class may now
    /// begin.
    pub(super) fn arrived(&mut self, class: Class, bytes: u64) -> bool {
        let ahead = &mut self.ahead[class as usize];
        *ahead = ahead.saturating_sub(bytes);
        self.may_begin(class) && !self.beginning[class as usize].is_empty()
    }
}
