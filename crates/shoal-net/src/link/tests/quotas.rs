//! Transfers that are charged to quotas, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use shoal_policy::link::{Class, Direction};

use super::{MB, SOMEONE, figures, job_rate, link, moves, time_of};
use crate::link::{Flow, PlannedRate, Purpose, QuotaRate, Transfer};

fn charged(purpose: &Purpose, quotas: &[&Arc<QuotaRate>]) -> Option<Transfer> {
    purpose.transfer_within(quotas.iter().map(|rate| Arc::clone(rate)).collect())
}

fn is_near(took: Duration, expected: Duration) {
    let range = expected.mul_f64(0.9)..expected.mul_f64(1.1);
    assert!(range.contains(&took), "{took:?} instead of {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn all_reads_of_a_quota_share_its_rate_with_a_metered_link_and_without() {
    for link in [Some(link(100 * MB)), None] {
        let rate = QuotaRate::new(4 * MB);
        let bodies = (0..4).map(|_| {
            let transfer = charged(&Purpose::Client, &[&rate]);
            let flow = match &link {
                Some(link) => link.down(transfer, SOMEONE),
                None => Flow::unmetered(transfer.as_ref(), SOMEONE).expect("the quota has a rate"),
            };
            moves(flow, 5 * MB)
        });
        is_near(time_of(join_all(bodies).map(drop)).await, Duration::from_secs(5));
        assert_eq!(rate.bytes(), 20 * MB);
        assert!(rate.waits() > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_under_a_quota_leaves_the_rest_of_the_link_to_others() {
    let link = link(100 * MB);
    let rate = QuotaRate::new(10 * MB);
    let transfer = charged(&Purpose::Client, &[&rate]);
    let slow = tokio::spawn(moves(link.down(transfer, SOMEONE), 1_000 * MB));
    tokio::task::yield_now().await;
    let took = time_of(moves(link.down(None, SOMEONE), 90 * MB)).await;
    assert!(took < Duration::from_millis(1_050), "{took:?}");
    assert!(rate.bytes() < 12 * MB, "{}", rate.bytes());
    slow.abort();
}

#[tokio::test(start_paused = true)]
async fn the_smaller_of_two_quotas_holds_and_both_count() {
    let (identity, prefix) = (QuotaRate::new(50 * MB), QuotaRate::new(5 * MB));
    let transfer = charged(&Purpose::Client, &[&identity, &prefix]);
    let flow = Flow::unmetered(transfer.as_ref(), SOMEONE).unwrap();
    is_near(time_of(moves(flow, 10 * MB)).await, Duration::from_secs(2));
    assert_eq!((identity.bytes(), prefix.bytes()), (10 * MB, 10 * MB));
}

#[tokio::test(start_paused = true)]
async fn a_reader_outside_of_a_quota_does_not_wait_for_its_rate_and_one_within_does() {
    let link = link(100 * MB);
    let (identity, prefix) = (QuotaRate::new(MB), QuotaRate::new(20 * MB));
    let transfer = charged(&Purpose::Client, &[&identity, &prefix]).unwrap();
    let mut body = tokio::spawn(moves(link.down(Some(transfer.clone()), SOMEONE), 10 * MB));
    transfer.hurry_for(&Purpose::Client, &[Arc::clone(&prefix), Arc::clone(&identity)]);
    transfer.hurry_for(&Purpose::Prefetch, &[]);
    let slow = tokio::time::timeout(Duration::from_secs(1), &mut body).await;
    assert!(slow.is_err(), "it keeps the rate of the identity");
    assert!(transfer.may_wait());
    let counted = identity.bytes();
    // Another identity wants the object, which lies below the same prefix.
    transfer.hurry_for(&Purpose::Client, &[Arc::clone(&prefix)]);
    let took = time_of(async { body.await.unwrap() }).await;
    // While it was slow, the quota of the prefix has filled up to its burst.
    is_near(took, Duration::from_millis(330));
    assert_eq!(identity.bytes(), counted, "others pay for the rest");
    assert_eq!(prefix.bytes(), 10 * MB);
    // A reader under no quota ends that, too.
    assert!(transfer.may_wait());
    transfer.hurry_for(&Purpose::Client, &[]);
    assert!(!transfer.may_wait());
    transfer.hurried().await;
}

#[tokio::test(start_paused = true)]
async fn a_prefetch_under_a_quota_keeps_its_rate_when_a_client_of_the_quota_waits_for_it() {
    let link = link(100 * MB);
    let rate = QuotaRate::new(5 * MB);
    let transfer = charged(&Purpose::Prefetch, &[&rate]).unwrap();
    let body = tokio::spawn(moves(link.down(Some(transfer.clone()), SOMEONE), 10 * MB));
    tokio::time::sleep(Duration::from_secs(1)).await;
    transfer.hurry_for(&Purpose::Client, &[Arc::clone(&rate)]);
    assert_eq!(transfer.class(), Class::Client);
    is_near(
        time_of(async { body.await.unwrap() }).await,
        Duration::from_secs(1),
    );
    assert!(figures(&link, Direction::Down, Class::Client).bytes > 4 * MB);
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_changes_holds_for_transfers_in_flight() {
    let rate = QuotaRate::new(MB);
    let transfer = charged(&Purpose::Client, &[&rate]);
    let flow = Flow::unmetered(transfer.as_ref(), SOMEONE).unwrap();
    let body = tokio::spawn(moves(flow, 11 * MB));
    tokio::time::sleep(Duration::from_secs(1)).await;
    rate.set(20 * MB);
    is_near(
        time_of(async { body.await.unwrap() }).await,
        Duration::from_millis(500),
    );
}

#[tokio::test(start_paused = true)]
async fn bytes_from_other_nodes_are_charged_to_no_quota() {
    let rate = QuotaRate::new(MB);
    assert!(
        charged(&Purpose::Client, &[&rate])
            .unwrap()
            .beside_quotas()
            .is_none()
    );
    let purpose = Purpose::Planned(PlannedRate::new(None, 10 * MB, 0));
    let transfer = charged(&purpose, &[&rate]).unwrap().beside_quotas();
    let flow = Flow::unmetered(transfer.as_ref(), SOMEONE).unwrap();
    is_near(time_of(moves(flow, 10 * MB)).await, Duration::from_secs(1));
    assert_eq!(rate.bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_keeps_the_smaller_of_its_ceiling_and_its_quota() {
    let rate = QuotaRate::new(2 * MB);
    let job = Purpose::Job(job_rate(None, MB, Some(8 * MB)));
    let transfer = charged(&job, &[&rate]).unwrap();
    let body = tokio::spawn(moves(Flow::unmetered(Some(&transfer), SOMEONE).unwrap(), 12 * MB));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!((3 * MB..5 * MB).contains(&rate.bytes()), "{}", rate.bytes());
    // A reader of the same job that falls under no quota keeps the rate of the job.
    transfer.hurry_for(&job, &[]);
    is_near(
        time_of(async { body.await.unwrap() }).await,
        Duration::from_millis(875),
    );
    assert!(charged(&Purpose::Client, &[]).is_none());
}
