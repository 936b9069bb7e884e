//! Whose turn it is: work waits in one line a payer, and payers are served by what they have had.
//!
//! Start-time fair queueing: each payer has the virtual time at which its next piece of work is due. What is due first
//! is served first, and a piece moves its payer's time on by its cost over the payer's share. A payer that comes back
//! after a rest is due now: it gets no credit for the rest, and goes ahead of those that have had their part.

mod level;

pub use level::Level;

use std::collections::{BTreeSet, HashMap, VecDeque};

/// A payer: work is done in its name, and counted against its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payer {
    /// Tells payers apart.
    pub id: u32,
    /// How much of what is scarce it gets, compared with others that want it too; at least 1.
    pub share: u32,
}

/// Virtual time of one unit of cost at share 1. Shares up to this still move it.
const UNIT: u64 = 1 << 10;

/// Lines without work are forgotten when there are this many more of them than lines with work.
const IDLE_LINES_MAX: usize = 64;

/// Work that waits, of any number of payers.
#[derive(Debug)]
pub struct FairQueue<T> {
    lines: HashMap<u32, Line<T>>,
    /// Payers with waiting work, the one that is due first in front.
    due: BTreeSet<(u64, u32)>,
    /// When the work that was served last was due.
    now: u64,
    waiting: usize,
}

#[derive(Debug)]
struct Line<T> {
    due: u64,
    work: VecDeque<(Payer, u64, T)>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            lines: HashMap::new(),
            due: BTreeSet::new(),
            now: 0,
            waiting: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// Adds work that will cost its payer so much when it is served.
    pub fn push(&mut self, payer: Payer, cost: u64, item: T) {
        let now = self.now;
        let line = self.lines.entry(payer.id).or_insert_with(|| Line {
            due: now,
            work: VecDeque::new(),
        });
        if line.work.is_empty() {
            line.due = line.due.max(now);
            self.due.insert((line.due, payer.id));
        }
        line.work.push_back((payer, cost, item));
        self.waiting += 1;
    }

    /// The work whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let (due, id) = self.due.pop_first()?;
        let line = self.lines.get_mut(&id).expect("what is due has a line");
        let (payer, cost, item) = line.work.pop_front().expect("a line that is due has work");
        self.now = due;
        line.due = due + virtual_time(payer, cost);
        if !line.work.is_empty() {
            self.due.insert((line.due, id));
        }
        self.waiting -= 1;
        self.forget_idle();
        Some(item)
    }

    /// Counts a cost that was not known when the work was served.
    pub fn charge(&mut self, payer: Payer, cost: u64) {
        // A payer without a line has work neither here nor served lately: nobody waited for it.
        let Some(line) = self.lines.get_mut(&payer.id) else {
            return;
        };
        let before = line.due;
        line.due = before + virtual_time(payer, cost);
        if !line.work.is_empty() {
            self.due.remove(&(before, payer.id));
            self.due.insert((line.due, payer.id));
        }
    }

    /// How much work waits.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether no work waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// How much work of one payer waits.
    pub fn len_of(&self, id: u32) -> usize {
        self.lines.get(&id).map_or(0, |line| line.work.len())
    }

    /// Drops the work of one payer that is no longer wanted.
    pub fn retain(&mut self, id: u32, mut wanted: impl FnMut(&T) -> bool) {
        let Some(line) = self.lines.get_mut(&id) else {
            return;
        };
        let before = line.work.len();
        line.work.retain(|(_, _, item)| wanted(item));
        self.waiting -= before - line.work.len();
        if line.work.is_empty() {
            self.due.remove(&(line.due, id));
        }
    }

    /// A line without work is worth keeping only while it says that its payer has had more than others.
    fn forget_idle(&mut self) {
        if self.lines.len() > self.due.len() * 2 + IDLE_LINES_MAX {
            let (now, contended) = (self.now, !self.due.is_empty());
            self.lines
                .retain(|_, line| !line.work.is_empty() || (contended && line.due > now));
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
        let mut queue = FairQueue::default();
        for _ in 0..1000 {
            queue.push(HOG, 1, "hog");
        }
        popped(&mut queue, 300);
        queue.push(LIGHT, 1, "light");
        assert_eq!(queue.pop(), Some("light"));
        // Rest earns nothing: the next ones alternate.
        queue.push(LIGHT, 1, "light");
        queue.push(LIGHT, 1, "light");
        assert_eq!(popped(&mut queue, 4), ["hog", "light", "hog", "light"]);
    }

    #[test]
    fn a_share_of_three_gets_three_turns_of_four() {
        let mut queue = FairQueue::default();
        for _ in 0..400 {
            queue.push(HOG, 1, "one");
            queue.push(Payer { id: 2, share: 3 }, 1, "three");
        }
        let first = popped(&mut queue, 400);
        let of_three = first.iter().filter(|name| **name == "three").count();
        assert!((299..=301).contains(&of_three), "{of_three}");
    }

    #[test]
    fn work_that_turned_out_dear_is_paid_for_later() {
        let mut queue = FairQueue::default();
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
    fn what_nobody_wants_any_more_leaves_the_line() {
        let mut queue = FairQueue::default();
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
        let mut queue = FairQueue::default();
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
        /// Two payers that both always have work get service in proportion to their shares, within one piece each.
        #[test]
        fn nobody_gets_more_than_its_share_and_one_piece(
            costs in prop::collection::vec((1_u64..50, 1_u64..50), 50..200),
            shares in (1_u32..10, 1_u32..10),
        ) {
            let payers = [Payer { id: 1, share: shares.0 }, Payer { id: 2, share: shares.1 }];
            let mut queue = FairQueue::default();
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

        /// Whatever comes and goes: all work is served, each payer's in its order, and none waits while turns are free.
        #[test]
        fn all_work_is_served_in_its_payers_order(pushes in prop::collection::vec((0_u32..6, 1_u64..9, 0_usize..3), 0..200)) {
            let mut queue = FairQueue::default();
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
