//! Bodies on a metered link, in virtual time.

mod quotas;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use shoal_policy::fair::Payer;
use shoal_policy::link::{Ask, Class, Direction};
use tokio::sync::Semaphore;

use super::{Bandwidth, BandwidthScope, Flow, JobId, JobRate, JobRates, Link, PlannedRate, Purpose};
use crate::time::clock;

const MB: u64 = 1_000_000;
const SOMEONE: Payer = Payer { id: 1, share: 1 };

fn link(bytes_per_second: u64) -> Arc<Link> {
    Link::new(Bandwidth {
        bytes_per_second,
        scope: BandwidthScope::Node,
    })
}

fn job_rate(link: Option<&Arc<Link>>, floor: u64, ceiling: Option<u64>) -> Arc<JobRate> {
    let rates = JobRates { floor, ceiling };
    JobRate::new(JobId { plan: 1, job: 2 }, link, rates, Arc::default())
}

/// Moves a whole body in frames as large as a read from a socket.
async fn moves(flow: Flow, bytes: u64) {
    moves_in_pieces(flow, bytes, 64 << 10).await;
}

async fn moves_in_pieces(mut flow: Flow, bytes: u64, piece: u64) {
    flow.begins(Some(bytes)).await;
    let mut left = bytes;
    while left > 0 {
        poll_fn(|cx| flow.poll_permitted(cx, Some(left))).await;
        let piece = left.min(piece);
        flow.moved(piece as usize);
        left -= piece;
    }
}

/// Returns the time that a future takes.
async fn time_of(work: impl Future<Output = ()>) -> Duration {
    let began = clock::runtime_instant();
    work.await;
    clock::runtime_instant() - began
}

fn figures(link: &Link, direction: Direction, class: Class) -> super::ClassFigures {
    let figures = link.figures();
    let lane = match direction {
        Direction::Down => figures.down,
        Direction::Up => figures.up,
    };
    lane.classes[class.as_str()]
}

#[tokio::test(start_paused = true)]
async fn many_bodies_together_keep_the_bandwidth() {
    let link = link(100 * MB);
    for class in [Purpose::Client, Purpose::Prefetch, Purpose::Cleaning] {
        let bodies = (0..16).map(|_| moves(link.down(class.transfer(), SOMEONE), 10 * MB));
        let took = time_of(join_all(bodies).map(drop)).await;
        let expected = Duration::from_millis(1_600);
        assert!(
            took > expected.mul_f64(0.97) && took < expected.mul_f64(1.05),
            "{class:?}: {took:?}"
        );
    }
    let client = figures(&link, Direction::Down, Class::Client);
    assert_eq!((client.bytes, client.waiting), (160 * MB, 0));
    assert!(client.waits > 100 && client.waited_ms > 1_000, "{client:?}");
    assert_eq!(figures(&link, Direction::Up, Class::Client).bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn each_direction_has_the_whole_bandwidth() {
    let link = link(100 * MB);
    let both = async {
        tokio::join!(
            moves(link.down(None, SOMEONE), 50 * MB),
            moves(link.up(None, SOMEONE), 50 * MB)
        );
    };
    let took = time_of(both).await;
    assert!(took < Duration::from_millis(520), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_is_as_fast_beside_prefetch_as_alone() {
    let link = link(100 * MB);
    let alone = time_of(moves(link.down(None, SOMEONE), 20 * MB)).await;
    let background: Vec<_> = (0..8)
        .map(|_| {
            tokio::spawn(moves(
                link.down(Purpose::Prefetch.transfer(), SOMEONE),
                1_000 * MB,
            ))
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let beside = time_of(moves(link.down(None, SOMEONE), 20 * MB)).await;
    // Alone, the client also used the burst that the link had saved.
    assert!(
        beside < alone + Duration::from_millis(10),
        "{beside:?} instead of {alone:?}"
    );
    background.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_read_has_the_rate_that_a_plan_promises_it_beside_other_clients() {
    let link = link(100 * MB);
    // Reads of one identity over many connections.
    let others: Vec<_> = (0..15)
        .map(|_| tokio::spawn(moves(link.down(None, SOMEONE), 1_000 * MB)))
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let turn = time_of(moves(link.down(None, SOMEONE), 5 * MB)).await;
    assert!(turn > Duration::from_millis(700), "{turn:?}");
    let rate = job_rate(Some(&link), 40 * MB, None);
    // Both bodies of a job share the rate.
    let read = |link: &Arc<Link>| {
        moves(
            link.down(None, SOMEONE).promised(vec![Arc::clone(&rate)]),
            20 * MB,
        )
    };
    let took = time_of(async {
        tokio::join!(read(&link), read(&link));
    })
    .await;
    let expected = Duration::from_secs(1);
    assert!(
        took > expected.mul_f64(0.9) && took < expected.mul_f64(1.1),
        "{took:?}"
    );
    let down = link.figures().down;
    assert!(down.promised_bytes > 36 * MB, "{}", down.promised_bytes);
    let bytes = rate.bytes();
    assert_eq!((bytes.named, bytes.unnamed), (0, 40 * MB));
    drop(rate);
    let turn = time_of(moves(link.down(None, SOMEONE), 5 * MB)).await;
    assert!(turn > Duration::from_millis(700), "{turn:?}");
    others.iter().for_each(tokio::task::JoinHandle::abort);
    tokio::task::yield_now().await;
    let client = figures(&link, Direction::Down, Class::Client);
    assert_eq!(
        client.bytes,
        link.figures()
            .down
            .classes
            .values()
            .map(|figures| figures.bytes)
            .sum::<u64>()
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_reads_no_faster_than_it_needs_and_others_have_the_rest() {
    let expected = Duration::from_secs(2);
    let is_near = |took: Duration| took > expected.mul_f64(0.93) && took < expected.mul_f64(1.07);
    for link in [Some(link(100 * MB)), None] {
        let rate = job_rate(link.as_ref(), 10 * MB, Some(20 * MB));
        let purpose = Purpose::Job(Arc::clone(&rate));
        let body = || {
            let transfer = purpose.transfer();
            let unmetered = || Flow::unmetered(transfer.as_ref(), SOMEONE).expect("it keeps a rate");
            link.as_ref()
                .map_or_else(unmetered, |link| link.down(transfer.clone(), SOMEONE))
        };
        let others = link.as_ref().map(|link| {
            let other = moves(link.down(None, SOMEONE), 1_000 * MB);
            tokio::spawn(other)
        });
        let took = time_of(join_all((0..4).map(|_| moves(body(), 10 * MB))).map(drop)).await;
        assert!(is_near(took), "{took:?}");
        if let (Some(link), Some(others)) = (&link, others) {
            let client = figures(link, Direction::Down, Class::Client);
            // The job's bytes are those of a client, too.
            assert!(client.bytes - 40 * MB > 150 * MB, "{client:?}");
            assert!(link.figures().down.promised_bytes < 40 * MB);
            others.abort();
        }
        assert_eq!((rate.bytes().named, rate.bytes().unnamed), (40 * MB, 0));
        // The coordinator changes the rate, and in the end lifts it.
        let rates = |floor, ceiling| JobRates { floor, ceiling };
        rate.set(rates(5 * MB, Some(5 * MB)));
        let took = time_of(moves(body(), 10 * MB)).await;
        assert!(is_near(took), "{took:?}");
        rate.set(rates(5 * MB, None));
        let took = time_of(moves(body(), 10 * MB)).await;
        assert!(took < Duration::from_millis(150), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_who_is_not_the_job_does_not_wait_for_its_rate() {
    let link = link(100 * MB);
    let rate = job_rate(Some(&link), 2 * MB, Some(2 * MB));
    let job = Purpose::Job(rate);
    let transfer = job.transfer().unwrap();
    let mut body = tokio::spawn(moves(link.down(Some(transfer.clone()), SOMEONE), 10 * MB));
    transfer.hurry_for(&job, &[]);
    transfer.hurry_for(&Purpose::Prefetch, &[]);
    let slow = tokio::time::timeout(Duration::from_secs(1), &mut body).await;
    assert!(slow.is_err(), "it keeps the rate of the job");
    transfer.hurry_for(&Purpose::Client, &[]);
    let took = time_of(async { body.await.unwrap() }).await;
    assert!(took < Duration::from_millis(150), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_a_client_waits_for_goes_on_as_the_clients() {
    let link = link(100 * MB);
    let clients: Vec<_> = (0..4)
        .map(|_| tokio::spawn(moves(link.down(None, SOMEONE), 1_000 * MB)))
        .collect();
    tokio::task::yield_now().await;
    let transfer = Purpose::Prefetch.transfer().unwrap();
    let mut body = tokio::spawn(moves(link.down(Some(transfer.clone()), SOMEONE), 4 * MB));
    let starved = tokio::time::timeout(Duration::from_secs(2), &mut body).await;
    assert!(starved.is_err(), "clients use all of the link");
    transfer.hurry();
    let took = time_of(async { body.await.unwrap() }).await;
    assert!(took < Duration::from_millis(250), "{took:?}");
    assert_eq!(transfer.class(), Class::Client);
    clients.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn few_transfers_that_no_client_waits_for_are_on_their_way_at_a_time() {
    let link = link(25 * MB);
    let begun = Arc::new(Semaphore::new(0));
    let waiting: Vec<_> = (0..64)
        .map(|_| {
            let (link, begun) = (Arc::clone(&link), Arc::clone(&begun));
            tokio::spawn(async move {
                let mut flow = link.down(Purpose::Prefetch.transfer(), SOMEONE);
                flow.begins(Some(4 * MB)).await;
                begun.add_permits(1);
                // The lake does not answer.
                std::future::pending::<()>().await;
            })
        })
        .collect();
    let client = moves(link.down(None, SOMEONE), MB);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let few = begun.available_permits();
    assert!((2..=4).contains(&few), "{few}, and the link has room for all");
    let took = time_of(client).await;
    assert!(took < Duration::from_millis(45), "{took:?}");
    // If one is cancelled, another may begin.
    let [first, ..] = &waiting[..] else { unreachable!() };
    first.abort();
    begun.acquire_many(few as u32 + 1).await.unwrap().forget();
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn bodies_that_were_given_up_give_back_what_they_took() {
    let link = link(10 * MB);
    for _ in 0..1_000 {
        let mut flow = link.down(Purpose::Prefetch.transfer(), SOMEONE);
        assert!(flow.begins(None).now_or_never().is_none() || flow.permitted(1) > 0);
    }
    let took = time_of(moves(link.down(None, SOMEONE), 10 * MB)).await;
    assert!(took < Duration::from_millis(1_050), "{took:?}");
    assert_eq!(figures(&link, Direction::Down, Class::Prefetch).bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn transfers_of_one_plan_keep_its_rate_together() {
    let link = link(100 * MB);
    let plan = PlannedRate::new(Some(&link), 10 * MB, 0);
    let purpose = Purpose::Planned(Arc::clone(&plan));
    let bodies = (0..4).map(|_| moves(link.down(purpose.transfer(), SOMEONE), 5 * MB));
    let took = time_of(join_all(bodies).map(drop)).await;
    let expected = Duration::from_secs(2);
    assert!(
        took > expected.mul_f64(0.95) && took < expected.mul_f64(1.05),
        "{took:?}"
    );
    // Without a link, too.
    let bodies = (0..4).map(|_| {
        let transfer = purpose.transfer();
        let flow = Flow::unmetered(transfer.as_ref(), SOMEONE).expect("the purpose has a rate");
        moves(flow, 5 * MB)
    });
    let took = time_of(join_all(bodies).map(drop)).await;
    assert!(
        took > expected.mul_f64(0.95) && took < expected.mul_f64(1.05),
        "{took:?}"
    );
    assert!(Flow::unmetered(Purpose::Prefetch.transfer().as_ref(), SOMEONE).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_reservation_lasts_as_long_as_its_plan() {
    let link = link(100 * MB);
    let clients: Vec<_> = (0..4)
        .map(|_| tokio::spawn(moves(link.down(None, SOMEONE), 10_000 * MB)))
        .collect();
    tokio::task::yield_now().await;
    let plan = PlannedRate::new(Some(&link), 40 * MB, 40 * MB);
    let purpose = Purpose::Planned(plan);
    let took = time_of(moves(link.down(purpose.transfer(), SOMEONE), 20 * MB)).await;
    assert!(took < Duration::from_millis(600), "{took:?}");
    drop(purpose);
    let unreserved = Purpose::Planned(PlannedRate::new(Some(&link), 40 * MB, 0));
    let rest = moves(link.down(unreserved.transfer(), SOMEONE), 20 * MB);
    assert!(tokio::time::timeout(Duration::from_secs(2), rest).await.is_err());
    clients.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_keeps_its_rate_lets_others_begin() {
    let link = link(25 * MB);
    let slow: Vec<_> = (0..4)
        .map(|_| {
            let purpose = Purpose::Planned(PlannedRate::new(Some(&link), 10_000, 0));
            let flow = link.down(purpose.transfer(), SOMEONE);
            tokio::spawn(moves_in_pieces(flow, MB, 16 << 10))
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let slow_bytes = figures(&link, Direction::Down, Class::Planned).bytes;
    assert_eq!(slow_bytes, 4 * 3 * (16 << 10), "all have begun, and sleep");
    let quick = Purpose::Planned(PlannedRate::new(Some(&link), 10 * MB, 10 * MB));
    let took = time_of(moves(link.down(quick.transfer(), SOMEONE), MB)).await;
    assert!(took < Duration::from_millis(120), "{took:?}");
    slow.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn the_last_bytes_of_a_clients_body_are_paid_for() {
    const PIECE: u64 = 48 << 10;
    let link = link(10 * MB);
    let reader = async || {
        for _ in 0..20 {
            moves_in_pieces(link.down(None, SOMEONE), 2 * PIECE, PIECE).await;
        }
    };
    let took = time_of(join_all((0..8).map(|_| reader())).map(drop)).await;
    let bytes = 8 * 20 * 2 * PIECE;
    assert_eq!(figures(&link, Direction::Down, Class::Client).bytes, bytes);
    let expected = Duration::from_secs_f64(bytes as f64 / (10 * MB) as f64);
    assert!(took > expected.mul_f64(0.97), "{took:?} instead of {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn bytes_are_given_back_to_the_class_that_they_went_as() {
    let link = link(100 * MB);
    let rate = job_rate(Some(&link), 40 * MB, None);
    let rates = || {
        [Class::Client, Class::Planned]
            .map(|class| figures(&link, Direction::Down, class).rate_bytes_per_second)
    };
    moves(link.down(None, SOMEONE), 200_000).await;
    assert_eq!(rates(), [200_000, 0]);
    let mut promised = link.down(None, SOMEONE).promised(vec![rate]);
    poll_fn(|cx| promised.poll_permitted(cx, None)).await;
    assert_eq!(rates(), [200_000, 300_000]);
    drop(promised);
    assert_eq!(rates(), [200_000, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_client_does_not_wait_until_it_is_the_turn_of_others() {
    let link = link(MB);
    let lane = link.lane(Direction::Down);
    let ask = |class, bytes| {
        lane.take(Ask {
            class,
            payer: SOMEONE,
            bytes,
            begins: false,
            is_promised: false,
        })
    };
    let burst = 128 << 10;
    assert!(ask(Class::Client, burst + 5_000).is_ok(), "the link has rested");
    let prefetch = ask(Class::Prefetch, 16 << 10);
    assert!(prefetch.is_err(), "it waits for 21 ms");
    tokio::time::sleep(Duration::from_millis(1)).await;
    let client = ask(Class::Client, 1).expect_err("it waits for 4 ms");
    let took = time_of(client.map(|granted| assert!(granted.is_ok(), "it is granted"))).await;
    assert!(took < Duration::from_millis(6), "{took:?}");
}
