//! The objects that operators have pinned, by order.
//!
//! An order pins objects until an end, or some until one end and others until another. Several orders may
//! pin an object. Names only: the ledger knows which blocks that concerns and whether there is room for them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use shoal_policy::ObjectId;
use shoal_policy::admission::Refusal;

use super::counts::Counts;

/// The maximum number of pinned objects, at about 100 bytes each.
const OBJECTS_MAX: usize = 1 << 19;

/// The ID of an order that pins objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PinOrder(pub u128);

/// The pins of an order that end at the same time, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub(crate) order: PinOrder,
    pub(crate) until_ms: u64,
}

/// The pinned objects of a node.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// The number of groups of each object.
    objects: Counts<ObjectId>,
    groups: BTreeMap<Group, HashSet<ObjectId>>,
    /// When groups end.
    ends: BTreeSet<(u64, PinOrder)>,
    /// Pairs of an object and a group.
    pairs: usize,
}

impl Pins {
    /// Adds a pin of an object. Its other pins stay. Returns true if anything has changed.
    ///
    /// # Errors
    ///
    /// Fails if [`OBJECTS_MAX`] objects are pinned.
    pub(crate) fn add(&mut self, group: Group, object: ObjectId) -> Result<bool, Refusal> {
        if self.has(group, object) {
            return Ok(false);
        }
        if self.pairs >= OBJECTS_MAX {
            return Err(Refusal::PinsFull);
        }
        self.groups.entry(group).or_default().insert(object);
        self.ends.insert((group.until_ms, group.order));
        self.objects.enter(object);
        self.pairs += 1;
        Ok(true)
    }

    /// Returns true if an object is pinned.
    pub(crate) fn contains(&self, object: ObjectId) -> bool {
        self.objects.has(object)
    }

    /// Returns true if a group pins an object.
    pub(crate) fn has(&self, group: Group, object: ObjectId) -> bool {
        let objects = self.groups.get(&group);
        objects.is_some_and(|objects| objects.contains(&object))
    }

    /// Returns the groups that pin an object, ordered by order and then by end. The search ends at the last
    /// of them, and does not begin for an object that is not pinned.
    pub(crate) fn groups_of(&self, object: ObjectId) -> impl Iterator<Item = Group> {
        let groups = self.groups.iter();
        let pinning = groups.filter_map(move |(group, objects)| objects.contains(&object).then_some(*group));
        pinning.take(self.objects.of(object) as usize)
    }

    /// Removes the pins of an object by orders before `before`. Returns true if the object was pinned and no
    /// longer is.
    pub(crate) fn remove_object(&mut self, object: ObjectId, before: PinOrder) -> bool {
        let groups = self.groups_of(object).take_while(|group| group.order < before);
        let groups: Vec<Group> = groups.collect();
        for group in &groups {
            self.remove_pair(*group, object);
        }
        !groups.is_empty() && !self.contains(object)
    }

    /// Removes up to `most` pins of a group. Returns the objects that are no longer pinned.
    pub(crate) fn take(&mut self, group: Group, most: usize) -> Vec<ObjectId> {
        let objects = self.groups.get(&group).into_iter().flatten();
        let objects: Vec<ObjectId> = objects.copied().take(most).collect();
        for object in &objects {
            self.remove_pair(group, *object);
        }
        let free = objects.into_iter().filter(|object| !self.contains(*object));
        free.collect()
    }

    /// Returns the group of an order that ends first; `None` if the order pins nothing.
    pub(crate) fn first_of(&self, order: PinOrder) -> Option<Group> {
        let until_ms = 0;
        let mut groups = self.groups.range(Group { order, until_ms }..);
        let (first, _) = groups.next()?;
        (first.order == order).then_some(*first)
    }

    /// Returns a group whose end has come.
    pub(crate) fn first_due(&self, now_ms: u64) -> Option<Group> {
        let (until_ms, order) = *self.ends.first()?;
        (until_ms <= now_ms).then_some(Group { order, until_ms })
    }

    /// Returns all groups with their objects, ordered by order and then by end.
    pub(crate) const fn groups(&self) -> &BTreeMap<Group, HashSet<ObjectId>> {
        &self.groups
    }

    /// Returns the number of pinned objects.
    pub(crate) fn objects(&self) -> usize {
        self.objects.len()
    }

    /// Returns the number of pairs of an object and a pin.
    pub(crate) const fn pairs(&self) -> usize {
        self.pairs
    }

    fn remove_pair(&mut self, group: Group, object: ObjectId) {
        let pinned = self.groups.get_mut(&group).expect("an object's pins are known");
        let was_pinned = pinned.remove(&object);
        assert!(was_pinned, "a pair of an object and a pin ends once");
        if pinned.is_empty() {
            self.groups.remove(&group);
            let had_end = self.ends.remove(&(group.until_ms, group.order));
            assert!(had_end, "each group of pins has an end");
        }
        self.objects.leave(object);
        self.pairs -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, proptest};
    use shoal_policy::ObjectId;

    use super::{Group, PinOrder, Pins};

    const fn object(number: u8) -> ObjectId {
        ObjectId([number; 16])
    }

    const fn group(order: u128, until_ms: u64) -> Group {
        let order = PinOrder(order);
        Group { order, until_ms }
    }

    #[test]
    fn an_object_is_pinned_until_the_last_of_its_orders_ends() {
        let mut pins = Pins::default();
        assert_eq!(pins.add(group(1, 10), object(1)), Ok(true));
        assert_eq!(pins.add(group(1, 10), object(1)), Ok(false));
        assert_eq!(pins.add(group(2, 20), object(1)), Ok(true));
        assert_eq!(pins.first_due(9), None);
        assert_eq!(pins.first_due(10), Some(group(1, 10)));
        assert_eq!(pins.take(group(1, 10), 9), []);
        assert_eq!(pins.first_due(10), None);
        assert!(pins.contains(object(1)));
        assert!(pins.groups_of(object(1)).eq([group(2, 20)]));
        assert_eq!(pins.take(group(2, 20), 9), [object(1)]);
        assert!(!pins.contains(object(1)));
        assert_eq!(
            (pins.first_of(PinOrder(2)), pins.first_due(u64::MAX)),
            (None, None)
        );
    }

    #[test]
    fn a_large_order_ends_in_parts() {
        let mut pins = Pins::default();
        for number in 0..10 {
            pins.add(group(1, 10), object(number)).unwrap();
        }
        assert_eq!(pins.take(group(1, 10), 4).len(), 4);
        assert_eq!(
            (pins.first_of(PinOrder(1)), pins.objects()),
            (Some(group(1, 10)), 6)
        );
        assert_eq!(pins.take(group(1, 10), 100).len(), 6);
        assert_eq!((pins.first_of(PinOrder(1)), pins.objects()), (None, 0));
    }

    #[test]
    fn an_order_pins_objects_until_several_ends() {
        let mut pins = Pins::default();
        for (until_ms, number) in [(10, 1), (10, 2), (30, 2), (20, 3)] {
            assert_eq!(pins.add(group(1, until_ms), object(number)), Ok(true));
        }
        pins.add(group(2, 15), object(4)).unwrap();
        assert_eq!(pins.first_due(9), None);
        assert_eq!(pins.first_due(10), Some(group(1, 10)));
        assert_eq!(pins.take(group(1, 10), 9), [object(1)]);
        assert!(pins.groups_of(object(2)).eq([group(1, 30)]));
        assert_eq!(pins.first_due(20), Some(group(2, 15)));
        assert_eq!(pins.take(group(2, 15), 9), [object(4)]);
        assert_eq!(pins.first_due(20), Some(group(1, 20)));
        assert_eq!(pins.take(group(1, 20), 9), [object(3)]);
        pins.add(group(1, 40), object(5)).unwrap();
        assert_eq!(pins.first_of(PinOrder(1)), Some(group(1, 30)));
        assert_eq!(pins.take(group(1, 30), 9), [object(2)]);
        assert_eq!(pins.first_of(PinOrder(1)), Some(group(1, 40)));
        assert_eq!(pins.take(group(1, 40), 9), [object(5)]);
        assert_eq!((pins.objects(), pins.pairs(), pins.ends.len()), (0, 0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn pins_are_pairs_of_ends_of_orders_and_objects(
            steps in vec((0..5_u8, 0..5_u128, 1..4_u64, 0..8_u8), 0..120),
        ) {
            let (mut pins, mut model) = (Pins::default(), BTreeMap::<Group, BTreeSet<ObjectId>>::new());
            for (step, order, until_ms, number) in steps {
                match step {
                    0 | 1 => {
                        pins.add(group(order, until_ms), object(number)).unwrap();
                        model.entry(group(order, until_ms)).or_default().insert(object(number));
                    }
                    2 => {
                        pins.remove_object(object(number), PinOrder(order));
                        for (_, objects) in model.range_mut(..group(order, 0)) {
                            objects.remove(&object(number));
                        }
                    }
                    3 => {
                        while let Some(due) = pins.first_due(until_ms) {
                            pins.take(due, usize::MAX);
                        }
                        model.retain(|group, _| group.until_ms > until_ms);
                    }
                    _ => {
                        while let Some(first) = pins.first_of(PinOrder(order)) {
                            pins.take(first, usize::MAX);
                        }
                        model.retain(|group, _| group.order != PinOrder(order));
                    }
                }
                model.retain(|_, objects| !objects.is_empty());
                let all: BTreeMap<Group, BTreeSet<ObjectId>> =
                    pins.groups().iter().map(|(group, objects)| (*group, objects.iter().copied().collect())).collect();
                assert_eq!(all, model);
                assert_eq!(pins.pairs(), model.values().map(BTreeSet::len).sum::<usize>());
                for number in 0..8 {
                    let groups: Vec<Group> = pins.groups_of(object(number)).collect();
                    let expected = model.iter().filter(|(_, objects)| objects.contains(&object(number)));
                    assert!(groups.iter().eq(expected.map(|(group, _)| group)));
                    assert_eq!(pins.contains(object(number)), !groups.is_empty());
                }
                assert_eq!(pins.ends.len(), model.len());
            }
        }
    }
}
