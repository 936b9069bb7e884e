//! Fair queueing: each payer has a line of waiting work, and the payer that has had the least for its share
//! is served next.
//!
//! Start-time fair queueing: each payer has the virtual time at which its next piece of work is due. The
//! queue serves the work with the earliest due time. Each piece of work advances its payer's time by its cost
//! divided by the payer's share. A payer that returns after being idle is due now, ahead of payers that have
//! used their share. Its credit for the idle time is bounded. A small credit preserves the share of a payer
//! that is idle only while its answers travel, because its next request arrives shortly after its turn.

mod concurrency;

pub use concurrency::ConcurrencyLimit;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The party on whose account work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payer {
    /// Identifies the payer.
    pub id: u32,
    /// Its weight relative to other payers with waiting work; at least 1.
    pub share: u32,
}

/// Virtual time of one unit of cost at share 1. Shares up to this value still move the time.
const UNIT: u64 = 1 << 10;

/// Slack before idle lines are forgotten, see [`FairQueue::forget_idle`].
const IDLE_LINES_MAX: usize = 64;

/// Waiting work, of any number of payers.
#[derive(Debug)]
pub struct FairQueue<T> {
    /// Lines by payer. There are few, and each poll of a connection looks one up, for which a tree is faster
    /// than a hash table.
    lines: BTreeMap<u32, Line<T>>,
    /// Payers with waiting work by due time, earliest first.
    due: BTreeSet<(u64, u32)>,
    /// The virtual time: the latest due time of any work served so far.
    now: u64,
    /// The maximum cost that a payer may catch up on after being idle.
    credit: u64,
    waiting: usize,
}

#[derive(Debug)]
struct Line<T> {
    due: u64,
    begun: VecDeque<Work<T>>,
    new: VecDeque<Work<T>>,
    /// True if `new` is served before `begun` when both have work.
    new_is_next: bool,
}

/// The payer, the cost and the item of a piece of work.
type Work<T> = (Payer, u64, T);

impl<T> Line<T> {
    fn due_at(due: u64) -> Self {
        Self {
            due,
            begun: VecDeque::new(),
            new: VecDeque::new(),
            new_is_next: false,
        }
    }

    fn len(&self) -> usize {
        self.begun.len() + self.new.len()
    }

    fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.new.is_empty()
    }

    fn is_new_next(&self) -> bool {
        self.begun.is_empty() || self.new_is_next && !self.new.is_empty()
    }

    fn front(&self) -> Option<&Work<T>> {
        if self.is_new_next() {
            &self.new
        } else {
            &self.begun
        }
        .front()
    }

    fn pop(&mut self) -> Option<Work<T>> {
        let is_new = self.is_new_next();
        self.new_is_next = !is_new;
        if is_new { &mut self.new } else { &mut self.begun }.pop_front()
    }
}

impl<T> FairQueue<T> {
    /// Creates a queue in which a payer may catch up on work of cost `credit` after being idle.
    pub fn with_credit(credit: u64) -> Self {
        Self {
            lines: BTreeMap::new(),
            due: BTreeSet::new(),
            now: 0,
            credit,
            waiting: 0,
        }
    }

    /// Adds work that will cost its payer `cost` when it is served.
    pub fn push(&mut self, payer: Payer, cost: u64, item: T) {
        self.line_for_more(payer).new.push_back((payer, cost, item));
    }

    /// Adds work that was served before and still holds a resource for which other work waits. At least every
    /// other piece served for its payer is begun work; relative to other payers it counts like any work.
    pub fn push_begun(&mut self, payer: Payer, cost: u64, item: T) {
        self.line_for_more(payer).begun.push_back((payer, cost, item));
    }

    fn line_for_more(&mut self, payer: Payer) -> &mut Line<T> {
        let now = self.now;
        let line = self.lines.entry(payer.id).or_insert_with(|| Line::due_at(now));
        if line.is_empty() {
            line.due = line.due.max(now.saturating_sub(virtual_time(payer, self.credit)));
            self.due.insert((line.due, payer.id));
        }
        self.waiting += 1;
        line
    }

    /// Removes and returns the work with the earliest due time.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_where(|_, _| true)
    }

    /// As [`FairQueue::pop`], but skips payers for whose next piece `may` returns false.
    pub fn pop_where(&mut self, mut may: impl FnMut(Payer, &T) -> bool) -> Option<T> {
        let lines = &self.lines;
        let may_go = |(_, id): &&(u64, u32)| {
            let next = lines.get(id).and_then(Line::front);
            next.is_some_and(|(payer, _, item)| may(*payer, item))
        };
        let (due, id) = *self.due.iter().find(may_go)?;
        self.due.remove(&(due, id));
        let line = self.lines.get_mut(&id).expect("what is due has a line");
        let (payer, cost, item) = line.pop().expect("a line that is due has work");
        self.now = self.now.max(due);
        line.due = due + virtual_time(payer, cost);
        if !line.is_empty() {
            self.due.insert((line.due, id));
        }
        self.waiting -= 1;
        debug_assert!(self.waiting >= self.due.len(), "each payer that is due has work");
        self.forget_idle();
        Some(item)
    }

    /// Charges a payer for cost that was unknown when the work was served.
    pub fn charge(&mut self, payer: Payer, cost: u64) {
        // A payer without a line has no waiting work and was not served recently, so no other payer waited
        // for it.
        let Some(line) = self.lines.get_mut(&payer.id) else {
            return;
        };
        let before = line.due;
        line.due = before + virtual_time(payer, cost);
        if !line.is_empty() {
            self.due.remove(&(before, payer.id));
            self.due.insert((line.due, payer.id));
        }
    }

    /// The number of waiting pieces of work.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Returns true if no work waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The number of waiting pieces of work of one payer.
    pub fn len_of(&self, id: u32) -> usize {
        self.lines.get(&id).map_or(0, Line::len)
    }

    /// Drops the waiting work of one payer for which `wanted` returns false.
    pub fn retain(&mut self, id: u32, mut wanted: impl FnMut(&T) -> bool) {
        let Some(line) = self.lines.get_mut(&id) else {
            return;
        };
        let before = line.len();
        line.begun.retain(|(_, _, item)| wanted(item));
        line.new.retain(|(_, _, item)| wanted(item));
        self.waiting -= before - line.len();
        if line.is_empty() {
            self.due.remove(&(line.due, id));
        }
    }

    /// Forgets idle lines once they are the majority. An idle line is kept only while its payer is ahead of
    /// its share and others wait.
    fn forget_idle(&mut self) {
        if self.lines.len() > self.due.len() * 2 + IDLE_LINES_MAX {
            let (now, contended) = (self.now, !self.due.is_empty());
            self.lines
                .retain(|_, line| !line.is_empty() || (contended && line.due > now));
        }
    }
}

fn virtual_time(payer: Payer, cost: u64) -> u64 {
    cost.saturating_mul(UNIT) / u64::from(payer.share.max(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{FairQueue, Payer};

    const HOG: Payer = Payer { id: 1, share: 1 };
    const LIGHT: Payer = Payer { id: 2, share: 1 };

    fn popped(queue: &mut FairQueue<&'static str>, count: usize) -> Vec<&'static str> {
        (0..count).map_while(|_| queue.pop()).collect()
    }

    #[test]
    fn a_newcomer_goes_ahead_of_a_thousand_that_wait() {
        let mut queue = FairQueue::with_credit(0);
        for _ in 0..1000 {
            queue.push(HOG, 1, "hog");
        }
        popped(&mut queue, 300);
        queue.push(LIGHT, 1, "light");
        assert_eq!(queue.pop(), Some("light"));
        // A rest earns nothing: the next ones alternate.
        queue.push(LIGHT, 1, "light");
        queue.push(LIGHT, 1, "light");
        assert_eq!(popped(&mut queue, 4), ["hog", "light", "hog", "light"]);
    }

    #[test]
    fn a_payer_makes_up_for_a_rest_as_far_as_the_credit_goes() {
        let mut queue = FairQueue::with_credit(2);
        queue.push(LIGHT, 1, "light");
        for _ in 0..100 {
            queue.push(HOG, 1, "hog");
        }
        popped(&mut queue, 50);
        for _ in 0..10 {
            queue.push(LIGHT, 1, "light");
        }
        assert_eq!(popped(&mut queue, 5), ["light", "light", "light", "hog", "light"]);
    }

    #[test]
    fn a_share_of_three_gets_three_turns_of_four() {
        let mut queue = FairQueue::with_credit(0);
        for _ in 0..400 {
            queue.push(HOG, 1, "one");
            queue.push(Payer { id: 2, share: 3 }, 1, "three");
        }
        let first = popped(&mut queue, 400);
        let of_three = first.iter().filter(|name| **name == "three").count();
        assert!((299..=301).contains(&of_three), "{of_three}");
    }

    #[test]
    fn work_that_has_begun_alternates_with_new_work_of_its_payer() {
        let mut queue = FairQueue::with_credit(0);
        for name in ["new", "newer"] {
            queue.push(HOG, 1, name);
        }
        for name in ["begun", "begun later", "begun last"] {
            queue.push_begun(HOG, 1, name);
        }
        let expected = ["begun", "new", "begun later", "newer", "begun last"];
        assert_eq!(popped(&mut queue, 9), expected);
        queue.push_begun(HOG, 1, "begun");
        queue.push(LIGHT, 1, "light");
        assert_eq!(popped(&mut queue, 2), ["light", "begun"]);
    }

    #[test]
    fn a_payer_that_may_not_be_served_keeps_its_place() {
        let mut queue = FairQueue::with_credit(0);
        queue.push(HOG, 1, "hog");
        queue.push(LIGHT, 1, "light");
        assert_eq!(queue.pop_where(|payer, _| payer != HOG), Some("light"));
        assert_eq!(queue.pop_where(|payer, _| payer != HOG), None);
        assert_eq!(popped(&mut queue, 2), ["hog"]);
    }

    #[test]
    fn work_that_turned_out_dear_is_paid_for_later() {
        let mut queue = FairQueue::with_credit(0);
        for _ in 0..10 {
            queue.push(HOG, 0, "hog");
            queue.push(LIGHT, 0, "light");
        }
        assert_eq!(queue.pop(), Some("hog"));
        queue.charge(HOG, 5);
        for _ in 0..5 {
            assert_eq!(queue.pop(), Some("light"));
            queue.charge(LIGHT, 1);
        }
    }

    #[test]
    fn work_that_is_given_up_leaves_the_line() {
        let mut queue = FairQueue::with_credit(0);
        for number in 0..10 {
            queue.push(HOG, 1, number);
        }
        queue.retain(HOG.id, |number| number % 5 == 0);
        assert_eq!((queue.len(), queue.len_of(HOG.id)), (2, 2));
        queue.retain(HOG.id, |_| false);
        assert!(queue.is_empty() && queue.pop().is_none());
    }

    #[test]
    fn payers_that_left_are_forgotten() {
        let mut queue = FairQueue::with_credit(0);
        for id in 0..10_000 {
            queue.push(Payer { id, share: 1 }, 1, ());
            queue.pop();
        }
        assert!(
            queue.lines.len() <= 2 * super::IDLE_LINES_MAX,
            "{}",
            queue.lines.len()
        );
    }

    proptest! {
        /// Two payers that both always have work get service in proportion to their shares, within one piece
        /// each.
        #[test]
        fn no_payer_gets_more_than_its_share_and_one_piece(
            costs in prop::collection::vec((1_u64..50, 1_u64..50), 50..200),
            shares in (1_u32..10, 1_u32..10),
        ) {
            let payers = [Payer { id: 1, share: shares.0 }, Payer { id: 2, share: shares.1 }];
            let mut queue = FairQueue::with_credit(0);
            for (one, two) in &costs {
                queue.push(payers[0], *one, (0_usize, *one));
                queue.push(payers[1], *two, (1, *two));
            }
            let mut served = [0.0_f64; 2];
            while queue.len_of(1) > 0 && queue.len_of(2) > 0 {
                let (index, cost) = queue.pop().expect("work waits");
                served[index] += cost as f64 / f64::from(payers[index].share);
                let one_piece = 50.0 / f64::from(shares.0) + 50.0 / f64::from(shares.1);
                prop_assert!((served[0] - served[1]).abs() <= one_piece, "{served:?}");
            }
        }

        /// In any order of pushes and pops, all work is served, each payer's in its order, and none waits
        /// while turns are free.
        #[test]
        fn all_work_is_served_in_its_payers_order(pushes in prop::collection::vec((0_u32..6, 1_u64..9, 0_usize..3), 0..200)) {
            let mut queue = FairQueue::with_credit(0);
            let mut next = [0_usize; 6];
            let mut seen = [0_usize; 6];
            let mut serve = |queue: &mut FairQueue<(u32, usize)>| {
                let (id, number) = queue.pop().expect("a queue with work serves");
                assert_eq!(number, seen[id as usize], "out of order");
                seen[id as usize] += 1;
            };
            for (id, cost, pops) in pushes {
                queue.push(Payer { id, share: id + 1 }, cost, (id, next[id as usize]));
                next[id as usize] += 1;
                for _ in 0..pops.min(queue.len()) {
                    serve(&mut queue);
                }
            }
            while !queue.is_empty() {
                serve(&mut queue);
            }
            prop_assert_eq!(next, seen);
        }
    }
}
