//! The transfers of a plan.

use super::FileState;
use super::transfer::{State, Transfer};

/// Maximum number of concurrent transfers.
const AT_ONCE: usize = 64;

/// Transfers in the order of their starts.
#[derive(Clone, Debug)]
pub(super) struct Transfers {
    pub(super) list: Vec<Transfer>,
    /// All transfers before this one are over.
    first_open: usize,
    pub(super) running: usize,
}

impl Transfers {
    pub(super) fn new(mut list: Vec<Transfer>) -> Self {
        list.sort_by(|one, other| one.start_s.total_cmp(&other.start_s));
        Self {
            list,
            first_open: 0,
            running: 0,
        }
    }

    /// Returns the transfers from the first that is not over on.
    pub(super) fn open(&self) -> &[Transfer] {
        &self.list[self.first_open..]
    }

    /// Returns true if a transfer of this file is not over.
    pub(super) fn are_open(&self, file: usize) -> bool {
        let mut open = self.open().iter();
        open.any(|transfer| transfer.file == file && transfer.is_open())
    }

    /// Begins the transfers that are due, and returns their positions. Drops those that are no longer useful.
    pub(super) fn begin(&mut self, now_s: f64) -> Vec<usize> {
        let over = self.open().iter().take_while(|transfer| !transfer.is_open());
        self.first_open += over.count();
        let mut begun = Vec::new();
        for number in self.first_open..self.list.len() {
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
        let done_bytes = std::mem::take(&mut transfer.done_bytes);
        let file = &mut files[transfer.file];
        file.have_bytes = file.have_bytes.saturating_sub(done_bytes);
    }

    /// Gives a transfer a state in which it does not run.
    pub(super) fn leave(&mut self, transfer: usize, state: State) {
        let was_running = self.list[transfer].is_running();
        assert!(!was_running || self.running > 0, "transfers that run are counted");
        self.running -= usize::from(was_running);
        self.list[transfer].state = state;
    }
}
