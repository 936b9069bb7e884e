//! A registry in etcd, whose members die, freeze and refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use shoal_registry::engine::etcd::{Etcd, Settings};
use shoal_registry::engine::{Engine, EngineError, Outcome};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::cluster::{Cluster, user};
use crate::conformance::{Shared, commit, counter, increment, value};
use crate::transactions::{Building, delete, put};

/// A registry in the cluster that the tests without faults share.
pub(crate) struct Fixture {
    engine: Shared,
}

impl Fixture {
    pub(crate) fn engine(&self) -> Shared {
        Arc::clone(&self.engine)
    }
}

pub(crate) async fn start() -> Option<Fixture> {
    static CLUSTER: OnceCell<Option<Cluster>> = OnceCell::const_new();
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let cluster = CLUSTER.get_or_init(|| Cluster::start(3, &[])).await.as_ref()?;
    let prefix = format!("test-{}", STARTED.fetch_add(1, Ordering::Relaxed));
    Some(Fixture {
        engine: Arc::new(cluster.engine(&prefix, Duration::from_secs(30))),
    })
}

const PATIENCE: Duration = Duration::from_secs(3);
/// The delay that other work of the machine may add.
const SLACK: Duration = Duration::from_secs(2);

/// The outcomes of the requests of a writer.
#[derive(Default)]
struct Written {
    /// Keys that etcd has confirmed.
    acknowledged: Vec<Vec<u8>>,
    /// Increments of the counter that happened, and those that may have.
    counted: u64,
    perhaps: u64,
}

/// Puts new keys and increments the counter, until `stop`.
async fn write_until(stop: Arc<AtomicBool>, engine: Shared, writer: usize) -> Written {
    let mut written = Written::default();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("writer-{writer}/{number:06}").into_bytes();
        match engine.commit(put(&key, &key).if_absent(&key)).await {
            Ok(Outcome::Committed(_)) => written.acknowledged.push(key),
            Ok(Outcome::Conflict) => panic!("no other writer puts this key"),
            Err(EngineError::Unknown(_) | EngineError::Unavailable(_)) => {}
            Err(other) => panic!("{other}"),
        }
        match increment(&engine).await {
            Ok(true) => written.counted += 1,
            Ok(false) | Err(EngineError::Unavailable(_)) => {}
            Err(EngineError::Unknown(_)) => written.perhaps += 1,
            Err(other) => panic!("{other}"),
        }
    }
    written
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_when_leaders_are_killed() {
    let Some(cluster) = Cluster::start(3, &[]).await else {
        return;
    };
    let engine: Shared = Arc::new(cluster.engine("kill", PATIENCE));
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| tokio::spawn(write_until(stop.clone(), engine.clone(), writer)))
        .collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let leader = cluster.wait().await;
        cluster.kill(leader);
        tokio::time::sleep(Duration::from_secs(2)).await;
        cluster.restart(leader);
        cluster.wait().await;
    }
    stop.store(true, Ordering::Relaxed);
    let (mut counted, mut perhaps, mut acknowledged) = (0, 0, 0);
    for writer in writers {
        let written = writer.await.unwrap();
        for key in &written.acknowledged {
            assert_eq!(value(&engine, key).await.as_deref(), Some(&key[..]));
        }
        counted += written.counted;
        perhaps += written.perhaps;
        acknowledged += written.acknowledged.len();
    }
    let count = counter(&engine).await;
    assert!(
        (counted..=counted + perhaps).contains(&count),
        "{counted} and perhaps {perhaps}, but {count}"
    );
    assert!(acknowledged > 50, "the test wrote {acknowledged} keys only");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_every_request_ends_in_time_and_with_one_all_is_well() {
    let Some(cluster) = Cluster::start(3, &[]).await else {
        return;
    };
    let engine: Shared = Arc::new(cluster.engine("majority", PATIENCE));
    commit(&engine, put(b"before", b"1")).await;
    cluster.kill(0);
    cluster.kill(1);
    let began = Instant::now();
    let lost = engine.commit(put(b"during", b"1")).await;
    assert!(
        matches!(lost, Err(EngineError::Unknown(_) | EngineError::Unavailable(_))),
        "{lost:?}"
    );
    assert!(began.elapsed() < PATIENCE + SLACK, "{:?}", began.elapsed());
    let began = Instant::now();
    let unread = engine.get(b"before").await;
    assert!(
        matches!(unread, Err(EngineError::Unavailable(_))),
        "an answer of a minority: {unread:?}"
    );
    assert!(began.elapsed() < PATIENCE + SLACK, "{:?}", began.elapsed());

    cluster.kill(2);
    let began = Instant::now();
    let lost = engine.commit(put(b"during", b"2")).await;
    assert!(
        matches!(lost, Err(EngineError::Unavailable(_))),
        "no member was reached: {lost:?}"
    );
    assert!(began.elapsed() < PATIENCE + SLACK, "{:?}", began.elapsed());

    (0..3).for_each(|member| cluster.restart(member));
    cluster.wait().await;
    // An election may restart on a busy machine; the write has no condition, so it may be tried again.
    let began = Instant::now();
    while let Err(error) = engine.commit(put(b"after", b"1")).await {
        assert!(began.elapsed() < 6 * PATIENCE, "{error}");
    }
    assert_eq!(value(&engine, b"before").await.as_deref(), Some(&b"1"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_member_costs_one_request_and_no_write() {
    let Some(cluster) = Cluster::start(3, &[]).await else {
        return;
    };
    // A frozen leader takes an election, which on a busy machine may restart.
    let patience = PATIENCE * 2;
    let engine: Shared = Arc::new(cluster.engine("frozen", patience));
    for member in 0..3 {
        let key = [member as u8];
        // Connections to the member that answers now are open and idle.
        commit(&engine, put(&key, b"1")).await;
        cluster.freeze(member);
        let mut unanswered = 0;
        for _ in 0..5 {
            let began = Instant::now();
            match engine.get(&key).await {
                Ok(found) => assert_eq!(found.unwrap().value, &b"1"[..]),
                Err(EngineError::Unavailable(_)) => unanswered += 1,
                Err(other) => panic!("{other}"),
            }
            assert!(began.elapsed() < patience + SLACK, "{:?}", began.elapsed());
        }
        for _ in 0..5 {
            match engine.commit(put(&key, b"2")).await {
                Ok(_) => {}
                Err(EngineError::Unknown(_) | EngineError::Unavailable(_)) => unanswered += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(unanswered <= 2, "{unanswered} of 10 requests were not answered");
        cluster.thaw(member);
        cluster.wait().await;
        assert_eq!(value(&engine, &key).await.as_deref(), Some(&b"2"[..]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_etcd_no_longer_takes_is_replaced() {
    let Some(cluster) = Cluster::start(1, &[]).await else {
        return;
    };
    let engine: Shared = Arc::new(cluster.engine("token", Duration::from_secs(10)));
    commit(&engine, put(b"a", b"1")).await;
    // Every change of users makes older tokens invalid.
    cluster.control("user add another:secret");
    commit(&engine, put(b"a", b"2")).await;
    // Tokens are in a member's memory.
    cluster.kill(0);
    cluster.restart(0);
    cluster.wait().await;
    assert_eq!(value(&engine, b"a").await.as_deref(), Some(&b"2"[..]));
    cluster.control("user delete shoal");
    let refused = engine.get(b"a").await;
    assert!(matches!(refused, Err(EngineError::Refused(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_permission_is_refused_at_once() {
    let Some(cluster) = Cluster::start(1, &[]).await else {
        return;
    };
    let right = cluster.settings();
    let ca = right.ca_file.as_ref().unwrap().with_file_name("other.pem");
    let cases = [
        (
            "wrong password",
            Settings {
                user: Some(user("shoal", "wrong-password")),
                ..right.clone()
            },
        ),
        (
            "wrong user",
            Settings {
                user: Some(user("unknown", "wrong-password")),
                ..right.clone()
            },
        ),
        (
            "no user",
            Settings {
                user: None,
                ..right.clone()
            },
        ),
        (
            "not its keys",
            Settings {
                prefix: "other/".into(),
                ..right.clone()
            },
        ),
        (
            "wrong CA",
            Settings {
                ca_file: Some(ca),
                ..right.clone()
            },
        ),
    ];
    for (case, settings) in cases {
        let engine = Etcd::new(&settings).unwrap();
        let began = Instant::now();
        for refused in [
            engine.get(b"a").await.map(drop),
            engine.commit(put(b"a", b"")).await.map(drop),
        ] {
            let Err(EngineError::Refused(told)) = refused else {
                panic!("{case}: {refused:?}")
            };
            assert!(!told.contains("wrong-password"), "{case}: {told}");
        }
        assert!(
            began.elapsed() < settings.timeout,
            "{case}: {:?}",
            began.elapsed()
        );
    }
    assert!(!format!("{right:?}").contains("horse"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_asks_for_a_certificate_gets_it_or_refuses() {
    let Some(cluster) = Cluster::start(1, &["--client-cert-auth"]).await else {
        return;
    };
    let with = cluster.settings();
    let engine: Shared = Arc::new(Etcd::new(&with).unwrap());
    commit(&engine, put(b"a", b"1")).await;
    let without = Etcd::new(&Settings {
        client_certificate: None,
        ..with
    })
    .unwrap();
    let refused = without.commit(put(b"a", b"2")).await;
    assert!(matches!(refused, Err(EngineError::Refused(_))), "{refused:?}");
    assert_eq!(value(&engine, b"a").await.as_deref(), Some(&b"1"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_etcd_says_so_and_still_deletes() {
    let Some(cluster) = Cluster::start(1, &["--quota-backend-bytes=4194304"]).await else {
        return;
    };
    let quota_bytes = Some(4 << 20);
    let settings = Settings {
        quota_bytes,
        ..cluster.settings()
    };
    let engine: Shared = Arc::new(Etcd::new(&settings).unwrap());
    let mut written = 0_u8;
    let full = loop {
        let large = put(&[written], &vec![written; 1 << 20]).if_absent(&[written]);
        match engine.commit(large).await {
            Ok(_) => written += 1,
            // A member that finds itself full while it carries a transaction out completes it.
            Err(EngineError::Unknown(told)) => {
                let there = value(&engine, &[written]).await.map(|value| value.len());
                assert_eq!(there, Some(1 << 20), "{told}");
                written += 1;
            }
            Err(error) => break error,
        }
        assert!(written < 16, "the quota is 4 MiB");
    };
    assert!(matches!(full, EngineError::Full(_)), "{full}");
    let room = engine.room().await.unwrap();
    assert!(room.quota_bytes == 4 << 20 && room.is_scarce(), "{room:?}");
    assert_eq!(engine.get(&[written]).await, Ok(None));
    assert_eq!(value(&engine, &[0]).await.map(|value| value.len()), Some(1 << 20));
    commit(&engine, delete(&[0])).await;
}

/// Puts new keys until etcd is full. Returns the key that it had no room for, if etcd is sure.
async fn write_until_full(engine: Shared, writer: usize) -> Option<Vec<u8>> {
    for number in 0..1000 {
        let key = format!("writer-{writer}/{number:04}").into_bytes();
        match engine.commit(put(&key, &vec![1; 20_000]).if_absent(&key)).await {
            Ok(Outcome::Committed(_)) => {}
            Ok(Outcome::Conflict) => panic!("no other writer puts this key"),
            Err(EngineError::Full(_)) => return Some(key),
            Err(EngineError::Unknown(_)) => return None,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the quota is 4 MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_etcd_has_no_room_for_is_not_there() {
    let Some(cluster) = Cluster::start(3, &["--quota-backend-bytes=4194304"]).await else {
        return;
    };
    let engine: Shared = Arc::new(cluster.engine("crowd", Duration::from_secs(10)));
    let writers: Vec<_> = (0..64)
        .map(|writer| tokio::spawn(write_until_full(engine.clone(), writer)))
        .collect();
    let mut refused = 0;
    for writer in writers {
        if let Some(key) = writer.await.unwrap() {
            let name = String::from_utf8_lossy(&key);
            assert_eq!(value(&engine, &key).await, None, "{name} happened");
            refused += 1;
        }
    }
    assert!(refused > 0, "etcd was never full");
}
