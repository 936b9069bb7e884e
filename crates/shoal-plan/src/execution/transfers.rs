//! The transfers of a plan.

use super::FileState;
use super::transfer::{State, Transfer};

/// Maximum number of concurrent transfers.
const AT_ONCE: usize = 64;

/// The transfers of a plan.
#[derive(Clone, Debug)]
pub(super) struct Transfers {
    /// A transfer keeps its position.
    pub(super) list: Vec<Transfer>,
    /// Their positions in the order of their starts.
    order: Vec<usize>,
    /// All transfers before this place of the order are over.
    first_open: usize,
    pub(super) running: usize,
}

impl Transfers {
    pub(super) fn new(mut list: Vec<Transfer>) -> Self {
        list.sort_by(|one, other| one.start_s.total_cmp(&other.start_s));
        Self {
            order: (0..list.len()).collect(),
            list,
            first_open: 0,
            running: 0,
        }
    }

    /// Adds transfers.
    pub(super) fn add(&mut self, more: Vec<Transfer>) {
        self.list.extend(more);
        self.order = (0..self.list.len()).collect();
        let start_s = |transfer: &usize| self.list[*transfer].start_s;
        self.order
            .sort_by(|one, other| start_s(one).total_cmp(&start_s(other)));
        self.first_open = 0;
    }

    /// Ends the transfers of a file that are not over: others take their place.
    pub(super) fn drop_open(&mut self, file: usize) {
        for number in 0..self.list.len() {
            let transfer = &mut self.list[number];
            if transfer.file == file && transfer.is_open() {
                transfer.bytes = transfer.done_bytes;
                self.leave(number, State::Dropped);
            }
        }
    }

    /// Returns the transfers from the first that is not over on, in the order of their starts.
    pub(super) fn open(&self) -> impl Iterator<Item = &Transfer> {
        self.order[self.first_open..]
            .iter()
            .map(|number| &self.list[*number])
    }

    /// Returns true if a transfer of this file is not over.
    pub(super) fn are_open(&self, file: usize) -> bool {
        self.open()
            .any(|transfer| transfer.file == file && transfer.is_open())
    }

    /// Begins the transfers that are due, and returns their positions. Drops those that are no longer useful.
    pub(super) fn begin(&mut self, now_s: f64) -> Vec<usize> {
        let over = self.open().take_while(|transfer| !transfer.is_open());
        self.first_open += over.count();
        let mut begun = Vec::new();
        for &number in &self.order[self.first_open..] {
            let transfer = &mut self.list[number];
            if transfer.start_s > now_s || self.running >= AT_ONCE {
                break;
            }
            match transfer.state {
                State::Waiting { .. } if transfer.keep_until_s <= now_s => transfer.state = State::Dropped,
                State::Waiting { not_before_s } if not_before_s <= now_s => {
                    transfer.state = State::Running;
                    self.running += 1;
                    begun.push(number);
                }
                _ => {}
            }
        }
        begun
    }

    /// Lets a transfer start again. It then finds the bytes of its file that are cached.
    pub(super) fn retry(&mut self, transfer: usize, not_before_s: f64, files: &mut [FileState]) {
        self.leave(transfer, State::Waiting { not_before_s });
        let transfer = &mut self.list[transfer];
        if transfer.state == State::Dropped {
            return;
        }
        let done_bytes = std::mem::take(&mut transfer.done_bytes);
        let file = &mut files[transfer.file];
        file.have_bytes = file.have_bytes.saturating_sub(done_bytes);
    }

    /// Gives a transfer a state in which it does not run.
    pub(super) fn leave(&mut self, transfer: usize, state: State) {
        if self.list[transfer].state == State::Dropped {
            return;
        }
        let was_running = self.list[transfer].is_running();
        assert!(!was_running || self.running > 0, "transfers that run are counted");
        self.running -= usize::from(was_running);
        self.list[transfer].state = state;
    }
}
