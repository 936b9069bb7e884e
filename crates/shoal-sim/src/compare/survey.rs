//! A first pass over a trace: the blocks that it touches.

use super::WorkingSet;
use crate::block::{Block, Granularity};
use crate::trace::{Access, Operation, TraceError};
use shoal_policy::hash::KeyMap;

/// The maximum number of different blocks that a trace may read: their state takes a few gigabytes.
const BLOCKS_MAX: usize = 1 << 27;

/// The state of the pass over a trace.
pub(crate) struct Survey {
    granularity: Granularity,
    working_set: WorkingSet,
    objects: Seen,
    clients: Seen,
    longest: Longest,
    /// Every block that is read, in order, if a contender needs the future.
    future: Vec<Block>,
    foretells: bool,
    blocks_max: usize,
}

/// The greatest size that each block has had.
enum Longest {
    /// By object, one more than its bytes, if each object is one block. Avoids hashing.
    OfObjects(Vec<u64>),
    OfBlocks(KeyMap<Block, u64>),
}

/// The numbers that were seen. They are dense, since readers assign them.
#[derive(Default)]
struct Seen(Vec<bool>);

impl Survey {
    pub(crate) fn new(granularity: Granularity, foretells: bool) -> Self {
        Self {
            granularity,
            working_set: WorkingSet::default(),
            objects: Seen::default(),
            clients: Seen::default(),
            longest: match granularity {
                Granularity::Objects => Longest::OfObjects(Vec::new()),
                Granularity::Blocks(_) => Longest::OfBlocks(KeyMap::default()),
            },
            future: Vec::new(),
            foretells,
            blocks_max: BLOCKS_MAX,
        }
    }

    /// Surveys some requests.
    pub(crate) fn take(&mut self, accesses: &[Access]) -> Result<(), TraceError> {
        let reads = accesses
            .iter()
            .filter(|access| access.operation == Operation::Read);
        for access in reads {
            let set = &mut self.working_set;
            set.objects += u64::from(self.objects.is_new(access.object));
            set.clients += u64::from(self.clients.is_new(access.client));
            for (block, bytes) in self.granularity.blocks_of(access) {
                set.requests += 1;
                set.request_bytes += bytes;
                set.block_bytes_max = set.block_bytes_max.max(bytes);
                // A block that has grown counts with its new size.
                let before = self.longest.grow(block, bytes);
                set.blocks += u64::from(before.is_none());
                set.bytes += bytes.saturating_sub(before.unwrap_or(0));
                if set.blocks > self.blocks_max as u64 {
                    return Err(TraceError::TooManyBlocks(self.blocks_max));
                }
                if self.foretells {
                    self.future.push(block);
                }
            }
        }
        Ok(())
    }

    /// The blocks that the trace touches.
    pub(crate) const fn working_set(&self) -> Result<WorkingSet, TraceError> {
        match self.working_set.requests {
            0 => Err(TraceError::Unread),
            _ => Ok(self.working_set),
        }
    }

    pub(super) fn future(&self) -> &[Block] {
        &self.future
    }
}

impl Longest {
    /// Records the present `bytes` of `block`. Returns its greatest previous size, if it was seen.
    fn grow(&mut self, block: Block, bytes: u64) -> Option<u64> {
        match self {
            Self::OfObjects(longest) => {
                let longest = at(longest, block.object);
                let before = longest.checked_sub(1);
                *longest = (bytes + 1).max(*longest);
                before
            }
            Self::OfBlocks(longest) => {
                let before = longest.get_mut(&block);
                match before {
                    Some(longest) => Some(std::mem::replace(longest, bytes.max(*longest))),
                    None => longest.insert(block, bytes),
                }
            }
        }
    }
}

impl Seen {
    /// Returns true if `number` appears for the first time.
    fn is_new(&mut self, number: u32) -> bool {
        !std::mem::replace(at(&mut self.0, number), true)
    }
}

/// The entry of `number`, created if it is missing.
fn at<T: Clone + Default>(entries: &mut Vec<T>, number: u32) -> &mut T {
    let number = number as usize;
    if number >= entries.len() {
        entries.resize(number + 1, T::default());
    }
    &mut entries[number]
}

#[cfg(test)]
mod tests {
    use super::Survey;
    use crate::block::Granularity;
    use crate::clock::Time;
    use crate::trace::{Access, Operation};

    fn access(object: u32, bytes: u64) -> Access {
        Access {
            at: Time::ZERO,
            client: object % 2,
            object,
            object_bytes: bytes,
            offset_bytes: 0,
            bytes,
            operation: Operation::Read,
        }
    }

    #[test]
    fn an_object_takes_as_much_of_the_working_set_as_it_was_ever_long() {
        for granularity in [Granularity::Objects, Granularity::blocks(100)] {
            let mut survey = Survey::new(granularity, false);
            let reads = [(0, 5), (0, 10), (0, 7), (0, 10), (3, 0), (3, 0)];
            survey
                .take(&reads.map(|(object, bytes)| access(object, bytes)))
                .unwrap();
            let set = survey.working_set().unwrap();
            assert_eq!((set.bytes, set.request_bytes), (10, 32));
            assert_eq!((set.objects, set.blocks, set.clients), (2, 2, 2));
        }
    }

    #[test]
    fn more_blocks_than_memory_holds_are_refused() {
        let mut survey = Survey::new(Granularity::blocks(10), false);
        survey.blocks_max = 5;
        survey.take(&[access(0, 50), access(0, 50)]).unwrap();
        let told = survey.take(&[access(1, 10)]).unwrap_err().to_string();
        assert!(
            told.starts_with("the trace reads more than 5 different blocks\nhint:"),
            "{told}"
        );
    }
}
