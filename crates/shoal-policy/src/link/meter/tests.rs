//! Simulated transfers on one direction of a link.

use std::time::Duration;

use proptest::prelude::*;

use super::{Ask, Class, Granted, Meter};
use crate::fair::Payer;

const START: Duration = Duration::ZERO;
const GBIT: u64 = 125_000_000;
const SOMEONE: Payer = Payer { id: 1, share: 1 };

/// A transfer that goes on.
const fn ask_of((class, payer): (Class, Payer), bytes: u64) -> Ask {
    Ask {
        class,
        payer,
        bytes,
        begins: false,
        is_promised: false,
    }
}

/// A transfer without bytes in flight.
const fn beginning(class: Class, bytes: u64) -> Ask {
    Ask {
        begins: true,
        ..ask_of((class, SOMEONE), bytes)
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Transfers that request more at once after each grant.
struct Busy {
    meter: Meter<usize>,
    sources: Vec<(Class, Payer)>,
    /// The bytes of the sources from this one on are promised.
    promised_from: usize,
    now: Duration,
    moved: Vec<u64>,
    grants: Vec<(Duration, u64)>,
}

impl Busy {
    fn new(mut meter: Meter<usize>, sources: &[(Class, Payer)]) -> Self {
        for (index, source) in sources.iter().enumerate() {
            let quantum = meter.quantum(source.0);
            meter.ask(ask_of(*source, quantum), index, START, |_| true);
        }
        Self {
            meter,
            sources: sources.to_vec(),
            promised_from: usize::MAX,
            now: START,
            moved: vec![0; sources.len()],
            grants: Vec::new(),
        }
    }

    fn with_classes(meter: Meter<usize>, classes: &[Class]) -> Self {
        let sources: Vec<_> = classes.iter().map(|class| (*class, SOMEONE)).collect();
        Self::new(meter, &sources)
    }

    /// Grants every transfer that may go until `end`, at the earliest moments.
    fn run(&mut self, end: Duration) -> &[u64] {
        while self.now <= end {
            while let Some(Granted { item, bytes, .. }) = self.meter.next(self.now, |_| true) {
                self.moved[item] += bytes;
                self.grants.push((self.now, bytes));
                let quantum = self.meter.quantum(self.sources[item].0);
                let ask = Ask {
                    is_promised: item >= self.promised_from,
                    ..ask_of(self.sources[item], quantum)
                };
                self.meter.ask(ask, item, self.now, |_| true);
            }
            self.now = self.meter.next_at().expect("sources always wait").max(self.now);
        }
        &self.moved
    }
}

#[test]
fn clients_go_first_and_prefetch_gets_all_that_they_leave() {
    let mut both = Busy::with_classes(Meter::new(GBIT, START), &[Class::Prefetch, Class::Client]);
    let moved = both.run(ms(1_000)).to_vec();
    // Room that the meter had saved before there was a client goes to any class.
    assert!(moved[0] <= 1 << 20, "prefetch moved {}", moved[0]);
    assert!(moved[1] > GBIT * 99 / 100, "the client moved {}", moved[1]);
    let mut alone = Busy::with_classes(Meter::new(GBIT, START), &[Class::Prefetch]);
    assert!(alone.run(ms(1_000))[0] > GBIT * 99 / 100);
}

#[test]
fn a_client_does_not_wait_for_classes_below_it_without_a_guarantee() {
    let low = [Class::Planned, Class::Prefetch];
    let mut busy = Busy::with_classes(Meter::new(GBIT, START), &low);
    for step in 1..500 {
        busy.run(ms(step));
        let (quantum, now) = (busy.meter.quantum(Class::Client), busy.now);
        if step % 7 == 0 {
            assert!(
                busy.meter
                    .try_take(ask_of((Class::Client, SOMEONE), quantum), now)
                    .is_some(),
                "a client waits after {step} ms"
            );
        }
    }
}

/// A transfer receives its grant, moves its bytes and requests more only after the dispatcher is done, and
/// the dispatcher is late.
#[test]
fn a_client_has_the_link_although_it_asks_a_moment_after_each_grant() {
    for bandwidth in [GBIT / 10, GBIT, 10 * GBIT] {
        let mut meter = Meter::new(bandwidth, START);
        let (client, prefetch) = ((Class::Client, SOMEONE), (Class::Prefetch, SOMEONE));
        let ask = |meter: &mut Meter<Class>, of: (Class, Payer), now| {
            let quantum = meter.quantum(of.0);
            meter.ask(ask_of(of, quantum), of.0, now, |_| true);
        };
        for _ in 0..8 {
            ask(&mut meter, prefetch, START);
        }
        ask(&mut meter, client, START);
        let (mut now, mut moved) = (START, 0);
        while now < ms(1_000) {
            now = meter.next_at().unwrap().max(now) + Duration::from_micros(1_500);
            let mut granted = Vec::new();
            while let Some(one) = meter.next(now, |_| true) {
                granted.push(one);
            }
            for one in granted {
                moved += if one.class == Class::Client { one.bytes } else { 0 };
                ask(&mut meter, (one.class, SOMEONE), now + Duration::from_micros(100));
            }
        }
        assert!(moved > bandwidth * 95 / 100, "{moved} of {bandwidth}");
    }
}

#[test]
fn classes_below_the_clients_go_in_their_order() {
    let classes = [Class::Cleaning, Class::Prefetch, Class::Planned];
    let mut busy = Busy::with_classes(Meter::new(GBIT, START), &classes);
    let [cleaning, prefetch, planned] = *busy.run(ms(2_000)) else {
        unreachable!()
    };
    assert_eq!(prefetch, 0, "plans use what there is");
    let (all, floor) = (2 * GBIT, 2 * GBIT / 20);
    assert!(
        (floor * 9 / 10..floor * 12 / 10).contains(&cleaning),
        "{cleaning}"
    );
    assert!(planned > all * 93 / 100, "{planned}");
}

#[test]
fn cleaning_gets_its_part_whatever_clients_do() {
    let mut busy = Busy::with_classes(Meter::new(GBIT, START), &[Class::Client, Class::Cleaning]);
    let cleaning = busy.run(ms(4_000))[1];
    let floor = 4 * GBIT / 20;
    assert!(
        (floor * 9 / 10..floor * 11 / 10).contains(&cleaning),
        "{cleaning}"
    );
}

#[test]
fn plans_have_the_rate_that_they_reserve_before_clients_and_no_more() {
    for (reserved, expected) in [(0, 0), (GBIT / 4, GBIT / 4), (10 * GBIT, GBIT * 4 / 5)] {
        let mut meter = Meter::new(GBIT, START);
        meter.set_reserved(reserved, START);
        let mut busy = Busy::with_classes(meter, &[Class::Client, Class::Planned]);
        let planned = busy.run(ms(4_000))[1];
        let slack = 2 << 20;
        assert!(
            planned.abs_diff(4 * expected) <= slack,
            "{planned} for a reservation of {reserved}"
        );
    }
}

#[test]
fn a_client_has_what_a_plan_promises_it_before_other_clients_and_its_turn_beside() {
    let mut meter = Meter::new(GBIT, START);
    meter.set_reserved(GBIT / 4, START);
    let mut busy = Busy::with_classes(meter, &[Class::Client; 12]);
    busy.promised_from = 10;
    let moved = busy.run(ms(4_000)).to_vec();
    let slack = 4 << 20;
    // They have no more: bytes that went by the promise used up their turns.
    let (promised, others) = (moved[10] + moved[11], moved[..10].iter().sum::<u64>());
    assert!(promised.abs_diff(GBIT) <= slack, "{promised}");
    assert!(others.abs_diff(3 * GBIT) <= slack, "{others}");
    let counted = busy.meter.promised_bytes;
    assert!(counted.abs_diff(GBIT) <= slack, "{counted}");
    assert_eq!(busy.meter.queues.ahead, [0; 4], "a client waits for it");
}

#[test]
fn a_promise_that_the_reservation_cannot_keep_is_a_turn_among_clients() {
    for reserved in [0, GBIT / 100] {
        let mut meter = Meter::new(GBIT, START);
        meter.set_reserved(reserved, START);
        // Planned transfers, which want more than is reserved, wait all the time.
        let mut busy = Busy::with_classes(meter, &[Class::Planned, Class::Client, Class::Client]);
        busy.promised_from = 2;
        let moved = busy.run(ms(1_000)).to_vec();
        assert!(moved[2].abs_diff(moved[1]) <= 2 << 20, "{moved:?}");
    }
}

#[test]
fn promised_bytes_go_once_and_not_after_they_were_given_up() {
    let mut meter = Meter::new(GBIT, START);
    meter.set_reserved(GBIT / 4, START);
    let quantum = meter.quantum(Class::Client);
    let ask = |is_promised| Ask {
        is_promised,
        ..ask_of((Class::Client, SOMEONE), quantum)
    };
    let mut taken = 0;
    while meter.try_take(ask(true), START).is_some() {
        taken += 1;
    }
    assert!(taken > 0);
    for (item, is_promised) in [("client", false), ("given up", true), ("promised", true)] {
        meter.ask(ask(is_promised), item, START, |_| true);
    }
    let mut order = Vec::new();
    let mut now = START;
    while let Some(at) = meter.next_at() {
        now = now.max(at);
        order.extend(
            meter
                .next(now, |item| *item != "given up")
                .map(|granted| granted.item),
        );
        assert!(now < ms(1_000), "nothing is left to wait for");
    }
    order.sort_unstable();
    assert_eq!(order, ["client", "promised"]);
    assert!(Class::ALL.iter().all(|class| meter.waiting(*class) == 0));
    assert!(meter.promised.is_empty());
}

#[test]
fn payers_of_a_class_take_turns_by_their_shares() {
    let one = (Class::Client, Payer { id: 1, share: 1 });
    let three = (Class::Client, Payer { id: 2, share: 3 });
    let mut busy = Busy::new(
        Meter::new(GBIT, START),
        &[one, one, one, one, three, three, three, three],
    );
    let moved = busy.run(ms(1_000));
    let (one, three): (u64, u64) = (moved[..4].iter().sum(), moved[4..].iter().sum());
    let ratio = three as f64 / one as f64;
    assert!((2.9..3.1).contains(&ratio), "{ratio}");
}

#[test]
fn transfers_that_were_given_up_cost_neither_bandwidth_nor_memory() {
    let mut meter = Meter::new(GBIT, START);
    meter.total.take(GBIT);
    for number in 0..10_000 {
        meter.ask(ask_of((Class::Prefetch, SOMEONE), 1), number, START, |_| false);
    }
    assert!(meter.waiting(Class::Prefetch) <= 256);
    meter.ask(ask_of((Class::Prefetch, SOMEONE), 7), 77_777, START, |_| true);
    let granted = meter.next(ms(2_000), |number| *number == 77_777).unwrap();
    assert_eq!((granted.item, granted.bytes), (77_777, 7));
    assert_eq!(meter.rate(Class::Prefetch, ms(2_000)), 7);
    assert_eq!(meter.next_at(), None);
}

#[test]
fn a_meter_with_another_bandwidth_goes_on_at_that() {
    let mut busy = Busy::with_classes(Meter::new(GBIT, START), &[Class::Client]);
    busy.run(ms(1_000));
    let before = busy.moved[0];
    busy.meter.set_bandwidth(GBIT / 10, busy.now);
    busy.run(ms(2_000));
    let after = busy.moved[0] - before;
    assert!(after.abs_diff(GBIT / 10) < 1 << 20, "{after}");
}

#[test]
fn permission_that_is_given_back_is_anothers() {
    let mut meter = Meter::<()>::new(GBIT, START);
    let quantum = meter.quantum(Class::Prefetch);
    let mut taken = 0;
    let ask = ask_of((Class::Prefetch, SOMEONE), quantum);
    while meter.try_take(ask, START).is_some() {
        taken += 1;
    }
    assert!(taken >= 2);
    meter.give_back(Class::Prefetch, quantum * 2, START);
    assert!(meter.try_take(ask, START).is_some());
}

#[test]
fn bytes_that_moved_without_permission_are_paid_for() {
    let mut meter = Meter::<()>::new(GBIT, START);
    meter.pay(Class::Client, GBIT, START);
    assert_eq!(meter.rate(Class::Client, START), GBIT);
    let late = meter.try_take(ask_of((Class::Client, SOMEONE), 1), ms(990));
    assert_eq!(late, None);
    let paid = meter.try_take(ask_of((Class::Client, SOMEONE), 1), ms(1_000));
    assert_eq!(paid, Some(Class::Client));
    assert_eq!(meter.queues.ahead, [0; 4]);
}

#[test]
fn few_bytes_are_on_their_way_before_another_transfer_begins() {
    let mut meter = Meter::new(GBIT, START);
    let quantum = meter.quantum(Class::Prefetch);
    meter.set_ahead_max(2 * quantum);
    let going_on = ask_of((Class::Prefetch, SOMEONE), quantum);
    let beginning = beginning(Class::Prefetch, quantum);
    let taken = [(); 3].map(|()| meter.try_take(beginning, START).is_some());
    assert_eq!(taken, [true, true, false], "enough is on its way");
    let taken = meter.try_take(going_on, START);
    assert!(taken.is_some(), "one that has begun goes on");
    meter.ask(beginning, "third", START, |_| true);
    assert_eq!(meter.next_at(), None, "it does not wait for time");
    assert_eq!(meter.next(ms(100), |_| true), None);
    assert!(!meter.arrived(Class::Prefetch, quantum));
    assert!(!meter.arrived(Class::Cleaning, quantum));
    assert!(meter.arrived(Class::Prefetch, 1));
    assert_eq!(meter.next(ms(100), |_| true).unwrap().item, "third");
    // A client begins at any time.
    let client = Ask {
        class: Class::Client,
        ..beginning
    };
    meter.ask(client, "client", ms(100), |_| true);
    assert_eq!(meter.next(ms(100), |_| true).unwrap().item, "client");
}

#[test]
fn a_class_begins_whatever_is_on_its_way_to_another() {
    const BACKGROUND: [Class; 3] = [Class::Planned, Class::Prefetch, Class::Cleaning];
    for busy in BACKGROUND {
        let mut meter = Meter::new(GBIT, START);
        let bytes = meter.quantum(Class::Prefetch);
        meter.set_ahead_max(bytes);
        assert!(meter.try_take(beginning(busy, bytes), START).is_some());
        for class in BACKGROUND {
            meter.ask(beginning(class, bytes), class, START, |_| true);
        }
        let mut begun: Vec<Class> = std::iter::from_fn(|| meter.next(ms(100), |_| true))
            .map(|granted| granted.item)
            .collect();
        begun.sort_unstable();
        let others: Vec<Class> = BACKGROUND.into_iter().filter(|class| *class != busy).collect();
        assert_eq!(begun, others, "bytes of {busy:?} are on their way");
    }
}

#[test]
fn a_guarantee_that_may_not_begin_is_left_to_others() {
    let mut meter = Meter::new(GBIT, START);
    meter.set_reserved(GBIT / 4, START);
    let bytes = meter.quantum(Class::Prefetch);
    meter.set_ahead_max(bytes);
    for class in [Class::Planned, Class::Cleaning] {
        assert!(meter.try_take(beginning(class, bytes), START).is_some());
        meter.ask(beginning(class, bytes), (), START, |()| true);
    }
    let client = ask_of((Class::Client, SOMEONE), bytes);
    let went_as = meter.try_take(client, START);
    assert_eq!(went_as, Some(Class::Client), "neither guarantee is used");
    let promised = Ask {
        is_promised: true,
        ..client
    };
    let went_as = meter.try_take(promised, START);
    assert_eq!(went_as, Some(Class::Planned), "the plan's rate is not used");
    let going_on = meter.try_take(ask_of((Class::Planned, SOMEONE), bytes), START);
    assert!(going_on.is_some(), "only the other one may not begin");
}

#[test]
fn others_hold_back_for_clients_that_are_expected_but_not_for_long() {
    let mut busy = Busy::with_classes(Meter::new(GBIT, START), &[Class::Prefetch]);
    busy.run(ms(1_000));
    let before = busy.moved[0];
    busy.meter.expect_client(ms(5), ms(1_001));
    busy.run(ms(1_005));
    assert!(busy.moved[0] - before <= GBIT / 500, "{}", busy.moved[0] - before);
    // Room that was not used is usable at once.
    busy.run(ms(1_020));
    assert!(busy.moved[0] - before > GBIT * 15 / 1_000);
    // Clients that ask a thousand times a second.
    let before = busy.moved[0];
    for step in 1_020..2_020 {
        busy.meter.expect_client(ms(5), ms(step));
        busy.run(ms(step));
    }
    let moved = busy.moved[0] - before;
    assert!(moved > GBIT * 90 / 100, "{moved}");
}

fn class() -> impl Strategy<Value = Class> {
    prop::sample::select(&Class::ALL[..])
}

proptest! {
    /// In any time, all classes together get no more than the bandwidth, one burst and one quantum.
    #[test]
    fn the_sum_never_exceeds_the_bandwidth(
        bandwidth in 100_000_u64..2_000_000_000,
        asks in prop::collection::vec((class(), 1_u64..=100, 0_u64..20_000, any::<bool>()), 1..300),
        reserved in 0_u64..3_000_000_000,
    ) {
        let mut meter = Meter::new(bandwidth, START);
        meter.set_reserved(reserved, START);
        let (quantum, burst) = (meter.quantum(Class::Client), super::burst(bandwidth));
        let mut now = START;
        let mut grants = Vec::new();
        let end = asks.len();
        for (number, (class, percent, pause_us, is_promised)) in asks.into_iter().enumerate() {
            now += Duration::from_micros(pause_us);
            let bytes = (meter.quantum(class) * percent / 100).max(1);
            let payer = Payer { id: number as u32 % 3, share: 1 };
            let ask = Ask { is_promised, ..ask_of((class, payer), bytes) };
            if number % 2 == 0 && meter.try_take(ask, now).is_some() {
                grants.push((now, bytes));
            } else {
                meter.ask(ask, (), now, |()| true);
            }
            let is_last = number + 1 == end;
            loop {
                while let Some(granted) = meter.next(now, |()| true) {
                    grants.push((now, granted.bytes));
                }
                match meter.next_at() {
                    Some(at) if is_last => now = at.max(now),
                    _ => break,
                }
            }
        }
        prop_assert_eq!(grants.len(), end, "every transfer goes at last");
        for first in 0..grants.len() {
            let mut sum = 0;
            for (at, bytes) in &grants[first..] {
                sum += bytes;
                let time = at.saturating_sub(grants[first].0).as_secs_f64();
                let most = time * bandwidth as f64 + (burst + quantum) as f64;
                prop_assert!(sum as f64 <= most + 1.0, "{sum} > {most} in {time} s");
            }
        }
    }

    /// While any transfer waits, the link is used.
    #[test]
    fn whatever_class_waits_the_link_is_full(
        bandwidth in 1_000_000_u64..2_000_000_000,
        classes in prop::collection::vec(class(), 1..6),
        reserved in 0_u64..3_000_000_000,
    ) {
        let mut meter = Meter::new(bandwidth, START);
        meter.set_reserved(reserved, START);
        let quantum = meter.quantum(Class::Client);
        let mut busy = Busy::with_classes(meter, &classes);
        let all: u64 = busy.run(ms(500)).iter().sum();
        prop_assert!(all + 2 * quantum >= bandwidth / 2, "{all} of {}", bandwidth / 2);
    }

    /// Cleaning, and plans within their reservation, never starve beside other transfers.
    #[test]
    fn guarantees_hold(
        others in prop::collection::vec(class(), 0..5),
        reserved_percent in 0_u64..200,
    ) {
        let mut meter = Meter::new(GBIT, START);
        let reserved = GBIT * reserved_percent / 100;
        meter.set_reserved(reserved, START);
        let slack = 4 * meter.quantum(Class::Client);
        let mut classes = vec![Class::Planned, Class::Cleaning];
        classes.extend(others);
        let mut busy = Busy::with_classes(meter, &classes);
        let moved = busy.run(ms(2_000)).to_vec();
        let of = |class| moved.iter().zip(&classes).filter(|(_, of)| **of == class).map(|(moved, _)| moved).sum::<u64>();
        prop_assert!(of(Class::Cleaning) + slack >= 2 * GBIT / 20);
        prop_assert!(of(Class::Planned) + slack >= 2 * reserved.min(GBIT * 4 / 5));
    }
}
