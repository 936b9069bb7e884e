//! The objects that operators have pinned, by order.
//!
//! An order pins objects until it expires; an object may be pinned by several orders. This module tracks only
//! names; the ledger knows the blocks and their room.

use std::collections::{BTreeSet, HashMap, HashSet};

use shoal_policy::ObjectId;
use shoal_policy::admission::Refusal;

/// The maximum number of pinned objects, at about 100 bytes each.
const OBJECTS_MAX: usize = 1 << 19;

/// The ID of an order that pins objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PinOrder(pub u128);

/// The pinned objects of a node.
#[derive(Debug, Default)]
pub(super) struct Pins {
    /// The first order that pinned each object.
    objects: HashMap<ObjectId, PinOrder>,
    /// Further orders of objects with several.
    further: HashMap<ObjectId, Vec<PinOrder>>,
    orders: HashMap<PinOrder, Pinned>,
    /// The expiry of each order in milliseconds since 1970, earliest first.
    ends: BTreeSet<(u64, PinOrder)>,
    /// The number of pairs of object and order.
    pairs: usize,
}

#[derive(Debug)]
struct Pinned {
    until_ms: u64,
    objects: HashSet<ObjectId>,
}

impl Pins {
    /// Pins an object, and sets the expiry of the whole order to `until_ms`. Returns true if anything
    /// changed.
    ///
    /// # Errors
    ///
    /// Fails if [`OBJECTS_MAX`] objects are pinned.
    pub(super) fn add(&mut self, order: PinOrder, until_ms: u64, object: ObjectId) -> Result<bool, Refusal> {
        let is_known = self
            .orders
            .get(&order)
            .is_some_and(|pinned| pinned.objects.contains(&object));
        if !is_known && self.pairs >= OBJECTS_MAX {
            return Err(Refusal::PinsFull);
        }
        let is_later = self.set_end(order, until_ms);
        if is_known {
            return Ok(is_later);
        }
        let pinned = self.orders.get_mut(&order).expect("its end was set");
        pinned.objects.insert(object);
        self.pairs += 1;
        match self.objects.get(&object) {
            None => drop(self.objects.insert(object, order)),
            Some(_) => self.further.entry(object).or_default().push(order),
        }
        Ok(true)
    }

    /// Returns true if an object is pinned.
    pub(super) fn contains(&self, object: ObjectId) -> bool {
        self.objects.contains_key(&object)
    }

    /// The orders that pin an object, each with its end.
    pub(super) fn orders_of(&self, object: ObjectId) -> Vec<(PinOrder, u64)> {
        let first = self.objects.get(&object).into_iter();
        let orders = first.chain(self.further.get(&object).into_iter().flatten());
        orders
            .map(|order| (*order, self.orders[order].until_ms))
            .collect()
    }

    /// Removes the pins of an object by orders before `before`. Returns true if the object was pinned and no
    /// longer is.
    pub(super) fn remove_object(&mut self, object: ObjectId, before: PinOrder) -> bool {
        let was_pinned = self.contains(object);
        for (order, _) in self.orders_of(object) {
            if order < before {
                self.remove_pair(order, object);
            }
        }
        was_pinned && !self.contains(object)
    }

    /// Removes up to `most` objects from an order. Returns those that are no longer pinned, and true if the
    /// order is now empty.
    pub(super) fn take(&mut self, order: PinOrder, most: usize) -> (Vec<ObjectId>, bool) {
        let pinned = self.orders.get(&order).map(|pinned| &pinned.objects);
        let objects: Vec<ObjectId> = pinned.into_iter().flatten().copied().take(most).collect();
        for object in &objects {
            self.remove_pair(order, *object);
        }
        let free = objects.into_iter().filter(|object| !self.contains(*object));
        (free.collect(), !self.orders.contains_key(&order))
    }

    /// Returns true if an order pins any object.
    pub(super) fn has_order(&self, order: PinOrder) -> bool {
        self.orders.contains_key(&order)
    }

    /// An expired order, if there is one.
    pub(super) fn due(&self, now_ms: u64) -> Option<PinOrder> {
        self.ends
            .first()
            .filter(|(until_ms, _)| *until_ms <= now_ms)
            .map(|(_, order)| *order)
    }

    /// All orders with their expiry and their objects.
    pub(super) fn all(&self) -> impl Iterator<Item = (PinOrder, u64, impl Iterator<Item = ObjectId>)> {
        self.orders
            .iter()
            .map(|(order, pinned)| (*order, pinned.until_ms, pinned.objects.iter().copied()))
    }

    /// The number of pinned objects.
    pub(super) fn objects(&self) -> usize {
        self.objects.len()
    }

    /// The number of pairs of object and order.
    pub(super) const fn pairs(&self) -> usize {
        self.pairs
    }

    /// Sets the expiry of an order. Returns true if it changed.
    fn set_end(&mut self, order: PinOrder, until_ms: u64) -> bool {
        let pinned = self.orders.entry(order).or_insert_with(|| Pinned {
            until_ms: 0,
            objects: HashSet::new(),
        });
        let before = std::mem::replace(&mut pinned.until_ms, until_ms);
        self.ends.remove(&(before, order));
        self.ends.insert((until_ms, order));
        before != until_ms
    }

    fn remove_pair(&mut self, order: PinOrder, object: ObjectId) {
        let pinned = self.orders.get_mut(&order).expect("an object's orders are known");
        pinned.objects.remove(&object);
        self.pairs -= 1;
        if pinned.objects.is_empty() {
            let until_ms = pinned.until_ms;
            self.orders.remove(&order);
            self.ends.remove(&(until_ms, order));
        }
        let further = self.further.get_mut(&object);
        if self.objects[&object] != order {
            let further = further.expect("an object's orders are known");
            further.retain(|other| *other != order);
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
        assert_eq!((pins.due(9), pins.due(10)), (None, Some(PinOrder(1))));
        assert_eq!(pins.take(PinOrder(1), 9), (vec![], true));
        assert!(pins.contains(object(1)));
        assert_eq!(pins.orders_of(object(1)), [(PinOrder(2), 20)]);
        assert_eq!(pins.take(PinOrder(2), 9), (vec![object(1)], true));
        assert!(!pins.contains(object(1)));
        assert_eq!(pins.due(u64::MAX), None);
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
    fn an_order_may_end_later_than_it_was_to() {
        let mut pins = Pins::default();
        pins.add(PinOrder(1), 10, object(1)).unwrap();
        assert_eq!(pins.add(PinOrder(1), 30, object(1)), Ok(true));
        assert_eq!((pins.due(29), pins.due(30)), (None, Some(PinOrder(1))));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn pins_are_pairs_of_orders_and_objects(steps in vec((0..4_u8, 0..5_u128, 0..8_u8), 0..120)) {
            let (mut pins, mut model) = (Pins::default(), BTreeMap::<u128, BTreeSet<ObjectId>>::new());
            for (step, order, number) in steps {
                match step {
                    0 | 1 => {
                        pins.add(PinOrder(order), 10, object(number)).unwrap();
                        model.entry(order).or_default().insert(object(number));
                    }
                    2 => {
                        pins.remove_object(object(number), PinOrder(order));
                        for (_, objects) in model.range_mut(..order) {
                            objects.remove(&object(number));
                        }
                    }
                    _ => {
                        pins.take(PinOrder(order), usize::MAX);
                        model.remove(&order);
                    }
                }
                model.retain(|_, objects| !objects.is_empty());
                let all: BTreeMap<u128, BTreeSet<ObjectId>> =
                    pins.all().map(|(order, _, objects)| (order.0, objects.collect())).collect();
                assert_eq!(all, model);
                assert_eq!(pins.pairs(), model.values().map(BTreeSet::len).sum::<usize>());
                for number in 0..8 {
                    let orders: BTreeSet<u128> = pins.orders_of(object(number)).into_iter().map(|(order, _)| order.0).collect();
                    let expected = model.iter().filter(|(_, objects)| objects.contains(&object(number)));
                    assert!(orders.iter().eq(expected.map(|(order, _)| order)));
                    assert_eq!(pins.contains(object(number)), !orders.is_empty());
                }
                assert_eq!(pins.ends.len(), model.len());
            }
        }
    }
}
