//! The objects that operators have pinned, by order.
//!
//! An order pins objects until an end, or some until one end and others until another. Several orders may
//! pin an object. Names only: the ledger knows which blocks that concerns and whether there is room for them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use shoal_policy::ObjectId;
use shoal_policy::admission::Refusal;

/// The maximum number of pinned objects, at about 100 bytes each.
const OBJECTS_MAX: usize = 1 << 19;

/// The ID of an order that pins objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PinOrder(pub u128);

/// The pins of an order that end at the same time, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Group {
    order: PinOrder,
    until_ms: u64,
}

impl Group {
    const fn ends(self) -> (u64, PinOrder) {
        (self.until_ms, self.order)
    }
}

/// The pinned objects of a node.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// The pin that an object got first.
    objects: HashMap<ObjectId, Group>,
    /// The further pins of objects that have several.
    further: HashMap<ObjectId, Vec<Group>>,
    groups: BTreeMap<Group, HashSet<ObjectId>>,
    /// When groups end.
    ends: BTreeSet<(u64, PinOrder)>,
    /// Pairs of an object and a group.
    pairs: usize,
}

impl Pins {
    /// Pins an object until `until_ms`. Pins of the same order with other ends stay. Returns whether anything
    /// has changed.
    ///
    /// # Errors
    ///
    /// Fails if [`OBJECTS_MAX`] objects are pinned.
    pub(crate) fn add(&mut self, order: PinOrder, until_ms: u64, object: ObjectId) -> Result<bool, Refusal> {
        let group = Group { order, until_ms };
        let known = self.groups.get(&group);
        if known.is_some_and(|objects| objects.contains(&object)) {
            return Ok(false);
        }
        if self.pairs >= OBJECTS_MAX {
            return Err(Refusal::PinsFull);
        }
        self.groups.entry(group).or_default().insert(object);
        self.ends.insert(group.ends());
        self.pairs += 1;
        match self.objects.get(&object) {
            None => drop(self.objects.insert(object, group)),
            Some(_) => self.further.entry(object).or_default().push(group),
        }
        Ok(true)
    }

    /// Returns true if an object is pinned.
    pub(crate) fn contains(&self, object: ObjectId) -> bool {
        self.objects.contains_key(&object)
    }

    /// The orders that pin an object, each with its end.
    pub(crate) fn orders_of(&self, object: ObjectId) -> Vec<(PinOrder, u64)> {
        let groups = self.groups_of(object);
        groups.map(|group| (group.order, group.until_ms)).collect()
    }

    /// Removes the pins of an object by orders before `before`. Returns true if the object was pinned and no
    /// longer is.
    pub(crate) fn remove_object(&mut self, object: ObjectId, before: PinOrder) -> bool {
        let was_pinned = self.contains(object);
        let groups: Vec<Group> = self.groups_of(object).copied().collect();
        for group in groups.into_iter().filter(|group| group.order < before) {
            self.remove_pair(group, object);
        }
        was_pinned && !self.contains(object)
    }

    /// Takes up to `most` pins out of an order. Returns the objects that are no longer pinned, and whether
    /// the order is gone.
    pub(crate) fn take(&mut self, order: PinOrder, most: usize) -> (Vec<ObjectId>, bool) {
        let free = match self.first_of(order) {
            Some(group) => self.take_from(group, most),
            None => Vec::new(),
        };
        (free, !self.has_order(order))
    }

    /// Takes up to `most` pins whose end has come. Returns the objects that are no longer pinned, and whether
    /// there are no more such pins.
    pub(crate) fn take_due(&mut self, now_ms: u64, most: usize) -> (Vec<ObjectId>, bool) {
        let free = match self.ends.first() {
            Some((until_ms, order)) if *until_ms <= now_ms => {
                let (order, until_ms) = (*order, *until_ms);
                self.take_from(Group { order, until_ms }, most)
            }
            _ => Vec::new(),
        };
        (free, !self.has_due(now_ms))
    }

    /// Returns true if an order pins any object.
    pub(crate) fn has_order(&self, order: PinOrder) -> bool {
        self.first_of(order).is_some()
    }

    /// Returns true if the end of any pins has come.
    pub(crate) fn has_due(&self, now_ms: u64) -> bool {
        self.ends.first().is_some_and(|(until_ms, _)| *until_ms <= now_ms)
    }

    /// All orders with their ends and their objects, in the order of the former. An order comes once for each
    /// of its ends.
    pub(crate) fn all(&self) -> impl Iterator<Item = (PinOrder, u64, impl Iterator<Item = ObjectId>)> {
        self.groups
            .iter()
            .map(|(group, objects)| (group.order, group.until_ms, objects.iter().copied()))
    }

    /// The number of pinned objects.
    pub(crate) fn objects(&self) -> usize {
        self.objects.len()
    }

    /// The number of pairs of an object and a pin.
    pub(crate) const fn pairs(&self) -> usize {
        self.pairs
    }

    fn groups_of(&self, object: ObjectId) -> impl Iterator<Item = &Group> {
        let first = self.objects.get(&object).into_iter();
        first.chain(self.further.get(&object).into_iter().flatten())
    }

    fn first_of(&self, order: PinOrder) -> Option<Group> {
        let until_ms = 0;
        let mut groups = self.groups.range(Group { order, until_ms }..);
        let (first, _) = groups.next()?;
        (first.order == order).then_some(*first)
    }

    fn take_from(&mut self, group: Group, most: usize) -> Vec<ObjectId> {
        let objects = self.groups.get(&group).into_iter().flatten();
        let objects: Vec<ObjectId> = objects.copied().take(most).collect();
        for object in &objects {
            self.remove_pair(group, *object);
        }
        let free = objects.into_iter().filter(|object| !self.contains(*object));
        free.collect()
    }

    fn remove_pair(&mut self, group: Group, object: ObjectId) {
        let pinned = self.groups.get_mut(&group).expect("an object's pins are known");
        pinned.remove(&object);
        self.pairs -= 1;
        if pinned.is_empty() {
            self.groups.remove(&group);
            self.ends.remove(&group.ends());
        }
        let further = self.further.get_mut(&object);
        if self.objects[&object] != group {
            let further = further.expect("an object's pins are known");
            further.retain(|other| *other != group);
        } else if let Some(next) = further.and_then(Vec::pop) {
            self.objects.insert(object, next);
        } else {
            self.objects.remove(&object);
        }
        if self.further.get(&object).is_some_and(Vec::is_empty) {
            self.further.remove(&object);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, proptest};
    use shoal_policy::ObjectId;

    use super::{PinOrder, Pins};

    const fn object(number: u8) -> ObjectId {
        ObjectId([number; 16])
    }

    #[test]
    fn an_object_is_pinned_until_the_last_of_its_orders_ends() {
        let mut pins = Pins::default();
        assert_eq!(pins.add(PinOrder(1), 10, object(1)), Ok(true));
        assert_eq!(pins.add(PinOrder(1), 10, object(1)), Ok(false));
        assert_eq!(pins.add(PinOrder(2), 20, object(1)), Ok(true));
        assert_eq!((pins.has_due(9), pins.has_due(10)), (false, true));
        assert_eq!(pins.take_due(10, 9), (vec![], true));
        assert!(pins.contains(object(1)));
        assert_eq!(pins.orders_of(object(1)), [(PinOrder(2), 20)]);
        assert_eq!(pins.take(PinOrder(2), 9), (vec![object(1)], true));
        assert!(!pins.contains(object(1)));
        assert!(!pins.has_due(u64::MAX));
    }

    #[test]
    fn a_large_order_ends_in_parts() {
        let mut pins = Pins::default();
        for number in 0..10 {
            pins.add(PinOrder(1), 10, object(number)).unwrap();
        }
        let (first, is_gone) = pins.take(PinOrder(1), 4);
        assert_eq!((first.len(), is_gone, pins.objects()), (4, false, 6));
        let (rest, is_gone) = pins.take(PinOrder(1), 100);
        assert_eq!((rest.len(), is_gone, pins.objects()), (6, true, 0));
    }

    #[test]
    fn an_order_pins_objects_until_several_ends() {
        let mut pins = Pins::default();
        for (until_ms, number) in [(10, 1), (10, 2), (30, 2), (20, 3)] {
            assert_eq!(pins.add(PinOrder(1), until_ms, object(number)), Ok(true));
        }
        pins.add(PinOrder(2), 15, object(4)).unwrap();
        assert_eq!(pins.take_due(9, 9), (vec![], true));
        assert_eq!(pins.take_due(10, 9), (vec![object(1)], true));
        assert_eq!(pins.orders_of(object(2)), [(PinOrder(1), 30)]);
        let mut due = [pins.take_due(20, 9), pins.take_due(20, 9)];
        due.sort();
        assert_eq!(due, [(vec![object(3)], true), (vec![object(4)], false)]);
        pins.add(PinOrder(1), 40, object(5)).unwrap();
        assert_eq!(pins.take(PinOrder(1), 9), (vec![object(2)], false));
        assert_eq!(pins.take(PinOrder(1), 9), (vec![object(5)], true));
        assert_eq!((pins.objects(), pins.pairs(), pins.ends.len()), (0, 0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn pins_are_pairs_of_ends_of_orders_and_objects(
            steps in vec((0..5_u8, 0..5_u128, 1..4_u64, 0..8_u8), 0..120),
        ) {
            let (mut pins, mut model) = (Pins::default(), BTreeMap::<(u128, u64), BTreeSet<ObjectId>>::new());
            for (step, order, until_ms, number) in steps {
                match step {
                    0 | 1 => {
                        pins.add(PinOrder(order), until_ms, object(number)).unwrap();
                        model.entry((order, until_ms)).or_default().insert(object(number));
                    }
                    2 => {
                        pins.remove_object(object(number), PinOrder(order));
                        for (_, objects) in model.range_mut(..(order, 0)) {
                            objects.remove(&object(number));
                        }
                    }
                    3 => {
                        while !pins.take_due(until_ms, usize::MAX).1 {}
                        model.retain(|(_, end), _| *end > until_ms);
                    }
                    _ => {
                        while !pins.take(PinOrder(order), usize::MAX).1 {}
                        model.retain(|(other, _), _| *other != order);
                    }
                }
                model.retain(|_, objects| !objects.is_empty());
                let all: BTreeMap<(u128, u64), BTreeSet<ObjectId>> =
                    pins.all().map(|(order, end, objects)| ((order.0, end), objects.collect())).collect();
                assert_eq!(all, model);
                assert_eq!(pins.pairs(), model.values().map(BTreeSet::len).sum::<usize>());
                for number in 0..8 {
                    let orders = pins.orders_of(object(number)).into_iter();
                    let orders: BTreeSet<(u128, u64)> = orders.map(|(order, end)| (order.0, end)).collect();
                    let expected = model.iter().filter(|(_, objects)| objects.contains(&object(number)));
                    assert!(orders.iter().eq(expected.map(|(order, _)| order)));
                    assert_eq!(pins.contains(object(number)), !orders.is_empty());
                }
                assert_eq!(pins.ends.len(), model.len());
            }
        }
    }
}
