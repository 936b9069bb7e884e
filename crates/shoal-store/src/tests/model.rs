//! The store against a model of it, through any history of use, restarts and damage.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::sample::Index;
use shoal_base::clock;
use shoal_s3::object::Version;
use tokio::runtime::Builder;

use super::layers::{assert_each_block_in_one_layer, cluster, split};
use super::{BLOCK, Lab, data, newest, object, put, version};
use crate::files::location::Location;
use crate::{PinOrder, Store};

const OBJECTS: u8 = 3;
const ETAGS: [&str; 2] = ["a", "b"];
const SIZE: u64 = BLOCK * 3 + 123;

#[derive(Clone, Debug)]
enum Step {
    Put(BlockName),
    Get(BlockName),
    Invalidate(u8, u8),
    /// Room is needed for this many other blocks.
    Crowd(u8),
    /// The node stops and starts.
    Restart,
    /// The node dies and leaves half-written and strange files behind, and some cut blocks.
    Tear(Vec<(BlockName, Index)>),
    /// A bit flips on the disk while the node is down.
    Flip(BlockName, Index),
    /// A bit flips anywhere in a segment while the node is down.
    FlipAnywhere(Index, Index),
    Scrub,
    /// This node is one of this many nodes in L2.
    Place(u64),
    /// L1 gets this many percent.
    Split(u64),
    /// An order pins an object.
    Pin(u8, u8),
    Unpin(u8),
    /// An order ends.
    End(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BlockName {
    object: u8,
    etag: u8,
    index: u32,
}

impl BlockName {
    fn version(self) -> Arc<Version> {
        version(self.object, ETAGS[usize::from(self.etag)], SIZE)
    }
}

fn block_name() -> impl Strategy<Value = BlockName> {
    (0..OBJECTS, 0..ETAGS.len() as u8, 0..4_u32).prop_map(|(object, etag, index)| BlockName {
        object,
        etag,
        index,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => block_name().prop_map(Step::Put),
        6 => block_name().prop_map(Step::Get),
        2 => (0..OBJECTS, 0..ETAGS.len() as u8).prop_map(|(object, etag)| Step::Invalidate(object, etag)),
        2 => (1..6_u8).prop_map(Step::Crowd),
        2 => Just(Step::Restart),
        1 => vec((block_name(), any::<Index>()), 0..3).prop_map(Step::Tear),
        3 => (block_name(), any::<Index>()).prop_map(|(name, position)| Step::Flip(name, position)),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(segment, position)| Step::FlipAnywhere(segment, position)),
        1 => Just(Step::Scrub),
        1 => (1..4_u64).prop_map(Step::Place),
        1 => (1..100_u64).prop_map(Step::Split),
        2 => (0..2_u8, 0..OBJECTS).prop_map(|(order, object)| Step::Pin(order, object)),
        1 => (0..OBJECTS).prop_map(Step::Unpin),
        1 => (0..2_u8).prop_map(Step::End),
    ]
}

/// The expected state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// It is whole on the disk, unless it was evicted.
    Whole,
    /// Its file or its entry is damaged: it must not be served.
    Damaged,
}

/// The store, and the test's knowledge of it.
struct World {
    lab: Lab,
    store: Option<Arc<Store>>,
    /// Blocks that were put and not invalidated; nothing else may be served.
    expected: BTreeMap<BlockName, Expected>,
    crowd: u32,
    /// The number of blocks that make a crowd of one.
    crowd_blocks: u8,
}

impl World {
    fn new(blocks: u64, segment_bytes: fn(u64) -> Option<u64>) -> Self {
        let mut lab = Lab::for_blocks(blocks);
        (lab.layers, lab.segment_bytes) = (2, segment_bytes);
        let (store, _) = lab.open();
        Self {
            lab,
            store: Some(store),
            expected: BTreeMap::new(),
            crowd: 0,
            crowd_blocks: 1,
        }
    }

    fn store(&self) -> &Arc<Store> {
        self.store.as_ref().expect("the node is up between steps")
    }

    async fn down(&mut self) {
        super::close(self.store.take().expect("the node is up between steps")).await;
    }

    fn up(&mut self) {
        self.store = Some(self.lab.open().0);
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Put(name) => self.put(name).await,
            Step::Get(name) => self.get(name).await,
            Step::Invalidate(object, etag) => {
                let name = BlockName {
                    object,
                    etag,
                    index: 0,
                };
                self.store().removal.remove_version(name.version().id);
                self.expected
                    .retain(|other, _| (other.object, other.etag) != (object, etag));
            }
            Step::Crowd(number) => {
                for _ in 0..u32::from(number) * u32::from(self.crowd_blocks) {
                    self.crowd += 1;
                    let other = version(200, &format!("{}", self.crowd), BLOCK);
                    put(self.store(), &other, 0)
                        .await
                        .expect("a block that is not in use makes room");
                }
            }
            Step::Restart => {
                self.down().await;
                self.up();
            }
            Step::Place(nodes) => self
                .store()
                .layers
                .set_hierarchy(cluster(&(0..nodes).collect::<Vec<_>>())),
            Step::Pin(order, number) => {
                let (order, end) = (PinOrder(order.into()), clock::utc_now() + Duration::from_hours(1));
                let pinned = self.store().pinning.pin(order, end, vec![object(number)]).await;
                pinned.expect("blocks make room for a journal");
            }
            Step::Unpin(number) => drop(
                self.store()
                    .pinning
                    .unpin(PinOrder(u128::MAX), vec![object(number)])
                    .await
                    .unwrap(),
            ),
            Step::End(order) => self.store().pinning.end(PinOrder(order.into())).await,
            Step::Split(percent) => split(self.store(), [percent, 100 - percent]),
            Step::Tear(cuts) => self.tear(cuts).await,
            Step::Flip(name, position) => self.flip(name, position).await,
            Step::FlipAnywhere(segment, position) => self.flip_anywhere(segment, position).await,
            Step::Scrub => {
                self.store().loader.scrub();
                let store = Arc::clone(self.store());
                let lost = |name: &BlockName| !store.contains(name.version().block(name.index));
                assert!(
                    self.expected
                        .iter()
                        .all(|(name, state)| *state == Expected::Whole || lost(name))
                );
            }
        }
    }

    async fn put(&mut self, name: BlockName) {
        let version = name.version();
        let stored = put(self.store(), &version, name.index)
            .await
            .expect("a block that is not in use makes room");
        assert!(stored == data(&version, name.index));
        self.expected.insert(name, Expected::Whole);
    }

    async fn get(&mut self, name: BlockName) {
        let (version, store) = (name.version(), Arc::clone(self.store()));
        let block = version.block(name.index);
        let served = match store.resident(block, true) {
            Some(bytes) => Some(bytes),
            None => store.load(block, true).await,
        };
        match (served, self.expected.get(&name)) {
            (Some(bytes), Some(Expected::Whole)) => {
                assert!(bytes == data(&version, name.index), "wrong bytes");
            }
            (Some(_), other) => panic!("{name:?} is served although it is {other:?}"),
            (None, _) => {
                assert!(!store.contains(block), "what is here and whole is served");
                self.expected.remove(&name);
            }
        }
    }

    async fn tear(&mut self, cuts: Vec<(BlockName, Index)>) {
        // Each block once, because a second change could mend it.
        let cuts: BTreeMap<_, _> = cuts.into_iter().collect();
        let cuts = cuts.into_iter();
        let cuts: Vec<_> = cuts
            .filter_map(|(name, position)| Some((name, position, self.bytes_of(name)?)))
            .collect();
        self.down().await;
        let root = self.lab.config.path.clone();
        fs::write(root.join("aside/00000000000000ff"), [1; 3000]).unwrap();
        fs::write(root.join("blocks/7f/strange"), [2; 300]).unwrap();
        fs::write(root.join("segments/strange"), [3; 300]).unwrap();
        for (name, position, (path, bytes)) in cuts {
            let cut = bytes.start + position.index((bytes.end - bytes.start) as usize) as u64;
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            if path.starts_with(root.join("segments")) {
                (cut..bytes.end).for_each(|at| change(&file, at, 0xff));
            } else {
                file.set_len(cut).unwrap();
            }
            self.damaged(name);
        }
        self.up();
    }

    async fn flip(&mut self, name: BlockName, position: Index) {
        let found = self.bytes_of(name);
        self.down().await;
        if let Some((path, bytes)) = found {
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            let bit = bytes.start * 8 + position.index((bytes.end - bytes.start) as usize * 8) as u64;
            change(&file, bit / 8, 1 << (bit % 8));
            self.damaged(name);
        }
        self.up();
    }

    async fn flip_anywhere(&mut self, segment: Index, position: Index) {
        self.down().await;
        let paths = fs::read_dir(self.lab.config.path.join("segments")).unwrap();
        let mut paths: Vec<_> = paths.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        if !paths.is_empty() {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(segment.get(&paths))
                .unwrap();
            let bit = position.index(file.metadata().unwrap().len() as usize * 8) as u64;
            change(&file, bit / 8, 1 << (bit % 8));
        }
        self.up();
    }

    /// The file and the range of it in which a block lies.
    fn bytes_of(&self, name: BlockName) -> Option<(PathBuf, Range<u64>)> {
        let version = name.version();
        let location = self
            .store()
            .ground
            .ledger
            .lock()
            .locate(version.block(name.index))?;
        Some(match location {
            Location::File => {
                let path = self.lab.path(&version, name.index);
                let length = fs::metadata(&path).unwrap().len();
                (path, 0..length)
            }
            Location::Entry(entry) => {
                let path = self.store().ground.disk.segment_path(entry.segment.number);
                (path, entry.offset..entry.offset + entry.bytes)
            }
        })
    }

    /// Marks a block as damaged. Flipping the same bit twice would mend the block, so damage is checked
    /// before that can happen: the block is never served from then on.
    fn damaged(&mut self, name: BlockName) {
        self.expected.insert(name, Expected::Damaged);
    }

    async fn check(&mut self) {
        let store = Arc::clone(self.store());
        let counters = store.counters();
        assert!(counters.taken_bytes <= self.lab.config.capacity_bytes);
        assert!(
            self.lab.disk_bytes() <= self.lab.config.capacity_bytes,
            "the disk holds more than it may"
        );
        assert_eq!(counters.io_errors, 0);
        assert!(counters.pins.bytes <= counters.pins.bytes_max);
        super::assert_consistent(&store);
        assert_each_block_in_one_layer(&store);
        for number in 0..OBJECTS {
            for etag in 0..ETAGS.len() as u8 {
                let version = BlockName {
                    object: number,
                    etag,
                    index: 0,
                }
                .version();
                for index in store.blocks_of(version.id) {
                    let name = BlockName {
                        object: number,
                        etag,
                        index,
                    };
                    assert!(
                        self.expected.contains_key(&name),
                        "{name:?} was never put, or was invalidated"
                    );
                    assert!(store.contains(version.block(index)));
                }
            }
            match newest(&store, object(number)) {
                Some(recalled) => assert!(!store.blocks_of(recalled).is_empty()),
                None => assert!(
                    ETAGS
                        .iter()
                        .all(|etag| store.blocks_of(version(number, etag, SIZE).id).is_empty())
                ),
            }
        }
        // The test reads damaged blocks at once, while each of them is damaged in one place.
        let is_damaged =
            |(name, state): (&BlockName, &Expected)| (*state == Expected::Damaged).then_some(*name);
        let damaged: Vec<_> = self.expected.iter().filter_map(is_damaged).collect();
        for name in damaged {
            self.get(name).await;
        }
    }
}

/// Changes bits of a byte.
fn change(file: &File, position: u64, bits: u8) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[byte[0] ^ bits], position).unwrap();
}

fn run(mut world: World, steps: Vec<Step>) {
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        for step in steps {
            world.take(step).await;
            world.check().await;
        }
        world.down().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_history_serves_wrong_bytes_exceeds_the_capacity_or_forgets_an_invalidation(
        steps in vec(step(), 1..50)
    ) {
        run(World::new(12, |_| None), steps);
    }

    #[test]
    fn no_history_of_blocks_in_segments_does_either(steps in vec(step(), 1..50)) {
        // Segments of 12 blocks. No more than 12 blocks are pinned, and each may hold a segment of its own.
        // There is room for these, the one that is filled, and the spare, as a node's store has for 64 at
        // least.
        let world = World::new(200, |_| Some(128 << 10));
        run(World { crowd_blocks: 40, ..world }, steps);
    }

    /// The last blocks of versions are in segments, the others are files.
    #[test]
    fn no_history_of_both_kinds_of_blocks_does_either(steps in vec(step(), 1..50)) {
        run(World::new(16, |_| Some(8 << 10)), steps);
    }
}
