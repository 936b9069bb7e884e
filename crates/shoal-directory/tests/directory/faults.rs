//! Servers of Redis that die, freeze, forget, hold garbage, and are replaced.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use shoal_base::clock;
use shoal_base::secret::Secret;
use shoal_directory::config::DirectoryConfig;
use shoal_directory::guard::{Guard, Kind};
use shoal_directory::names::{Change, SETTLING, Token};
use shoal_directory::redis::Redis;
use shoal_directory::{Directory, Group, Located, Silent};
use shoal_policy::{BlockId, NodeId, VersionId};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::names::{name, token};
use crate::servers::{PASSWORD, Servers, answers, connected};

const TIMEOUT: Duration = Duration::from_millis(500);
/// The delay that other work of the machine may add.
const SLACK: Duration = Duration::from_secs(2);

fn block(number: u32) -> BlockId {
    BlockId {
        version: VersionId(u128::from(number).to_be_bytes()),
        index: 0,
    }
}

async fn holds(directory: &dyn Directory, number: u32) -> bool {
    let group = Group::containing(block(number));
    directory.held(NodeId(1), group, &[0]).await.is_ok()
}

async fn is_held(directory: &dyn Directory, number: u32) -> bool {
    located(directory, number).await == Ok(Located::Held(vec![NodeId(1)]))
}

async fn located(directory: &dyn Directory, number: u32) -> Result<Located, Silent> {
    let group = Group::containing(block(number));
    let located = directory.locate(NodeId(2), group, &[0], &[]).await?;
    let [located] = located.each.try_into().expect("one answer");
    Ok(located)
}

fn guarded(redis: Redis) -> Guard {
    Guard::new(Arc::new(redis), TIMEOUT)
}

async fn mark(guard: &Guard) -> Result<bool, Silent> {
    guard
        .ask(Kind::Mark, |directory| directory.mark(NodeId(1), 0))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_trusts_its_own_authority() {
    let (Some(first), Some(second)) = (Servers::secured(), Servers::secured()) else {
        return;
    };
    let clients = [&first, &second].map(|servers| Redis::new(&servers.settings).unwrap());
    for client in &clients {
        answers(client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_dies_is_silent_at_once_and_answers_when_it_is_back() {
    let Some(mut servers) = Servers::single() else {
        return;
    };
    let redis = connected(&servers.settings).await;
    assert!(holds(&redis, 1).await && is_held(&redis, 1).await);
    servers.all[0].kill();
    let began = clock::instant();
    assert!(redis.mark(NodeId(1), 0).await.is_err());
    assert!(began.elapsed() < SLACK, "{:?}", began.elapsed());
    servers.all[0].start_again();
    answers(&redis).await;
    assert_eq!(
        redis.mark(NodeId(1), 0).await,
        Ok(false),
        "it has forgotten everything"
    );
    assert!(!is_held(&redis, 1).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_request_waits_for_the_connection() {
    let Some(servers) = Servers::single() else { return };
    let redis = Redis::new(&servers.settings).unwrap();
    assert_eq!(redis.mark(NodeId(1), 0).await, Ok(false));
    servers.all[0].kill();
    let redis = Redis::new(&servers.settings).unwrap();
    assert!(
        redis.mark(NodeId(1), 0).await.is_err(),
        "it is told that there is none"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_flushed_has_lost_its_markers() {
    let Some(servers) = Servers::single() else { return };
    let redis = connected(&servers.settings).await;
    assert_eq!(redis.mark(NodeId(1), 0).await, Ok(false));
    assert_eq!(redis.mark(NodeId(1), 0).await, Ok(true));
    assert!(holds(&redis, 1).await);
    servers.all[0].ask(&["flushall"]);
    assert_eq!(redis.mark(NodeId(1), 0).await, Ok(false));
    assert!(!is_held(&redis, 1).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_stands_still_is_given_up_in_time_and_asked_again() {
    let Some(servers) = Servers::single() else { return };
    let guard = guarded(connected(&servers.settings).await);
    servers.all[0].freeze();
    for _ in 0..3 {
        let began = clock::instant();
        assert!(mark(&guard).await.is_err());
        assert!(began.elapsed() < TIMEOUT + SLACK, "{:?}", began.elapsed());
    }
    assert!(!guard.requests.answers());
    servers.all[0].thaw();
    let began = clock::instant();
    while mark(&guard).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "it is not asked again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(guard.requests.answers());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_silence_that_does_not_tell_it() {
    let Some(servers) = Servers::secured() else { return };
    let mut settings = servers.settings.clone();
    settings.password = Some(Secret::new("wrong-battery"));
    let redis = Redis::new(&settings).unwrap();
    let began = clock::instant();
    let mut told = String::new();
    let says_why = |told: &str| told.to_lowercase().contains("authentication");
    // The first message only reports that it is connecting.
    while !says_why(&told) && began.elapsed() < Duration::from_secs(10) {
        told = redis.mark(NodeId(1), 0).await.unwrap_err().to_string();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(says_why(&told), "{told}");
    assert!(
        !told.contains("wrong-battery") && !told.contains(PASSWORD),
        "{told}"
    );
    let mut untrusting = servers.settings.clone();
    untrusting.ca_file = None;
    let redis = Redis::new(&untrusting).unwrap();
    for _ in 0..20 {
        assert!(
            redis.mark(NodeId(1), 0).await.is_err(),
            "its certificate is of another authority"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_in_an_entry_counts_as_nothing() {
    let Some(servers) = Servers::single() else { return };
    let redis = connected(&servers.settings).await;
    let key = |number: u32| format!("shoal:b:{}:0", block(number).version);
    let server = &servers.all[0];
    for garbage in [
        "x",
        "123456789",
        "12345678junk",
        "12345678999999999999999999999999",
    ] {
        server.ask(&["flushall"]);
        server.ask(&["hset", &key(1), "h0", "123", "c0", garbage]);
        assert_eq!(located(&redis, 1).await, Ok(Located::Yours), "{garbage}");
        assert!(holds(&redis, 1).await && is_held(&redis, 1).await, "{garbage}");
    }
    server.ask(&["set", &key(2), "no hash"]);
    located(&redis, 2).await.unwrap_err();
    answers(&redis).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_loses_a_master_answers_from_its_replica() {
    let Some(servers) = Servers::cluster() else { return };
    let redis = connected(&servers.settings).await;
    for number in 0..60 {
        assert!(holds(&redis, number).await, "{number}");
    }
    servers.all[0].kill();
    let began = clock::instant();
    let mut left: Vec<u32> = (0..60).collect();
    while !left.is_empty() {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{left:?} are not answered"
        );
        let mut silent = Vec::new();
        for number in left {
            if !holds(&redis, number).await || !is_held(&redis, number).await {
                silent.push(number);
            }
        }
        left = silent;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_replica_that_sentinel_promotes_is_asked_from_then_on() {
    let Some(servers) = Servers::sentinel() else {
        return;
    };
    let redis = connected(&servers.settings).await;
    assert!(holds(&redis, 1).await);
    assert_eq!(redis.mark(NodeId(1), 0).await, Ok(false));
    while servers.all[1].ask(&["dbsize"]).trim() != servers.all[0].ask(&["dbsize"]).trim() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(redis.mark(NodeId(1), 0).await, Ok(true));
    servers.all[0].kill();
    let began = clock::instant();
    while !(holds(&redis, 2).await && is_held(&redis, 2).await) {
        assert!(began.elapsed() < Duration::from_secs(30), "no answer");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(
        servers.all[1].ask(&["info", "replication"]).lines().nth(1),
        Some("role:master")
    );
    assert_ne!(
        servers.all[1]
            .ask(&["exists", "shoal:m:0000000000000001:0"])
            .trim(),
        "0"
    );
    assert_eq!(
        redis.mark(NodeId(1), 0).await,
        Ok(false),
        "the marker is there, and newer entries may not be"
    );
    assert_eq!(redis.mark(NodeId(1), 0).await, Ok(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_unsettled_again_when_its_server_has_forgotten_it_or_was_replaced() {
    let Some(mut servers) = Servers::single() else {
        return;
    };
    let redis = connected(&servers.settings).await;
    for number in [1, 2] {
        assert_eq!(token(&redis, number, 1).await, None);
    }
    tokio::time::sleep(SETTLING).await;
    assert_eq!(token(&redis, 1, 2).await, Some(Token(1)));
    servers.all[0].ask(&["flushall"]);
    assert_eq!(token(&redis, 1, 3).await, None);
    tokio::time::sleep(SETTLING).await;
    assert_eq!(token(&redis, 1, 4).await, Some(Token(3)));

    // It keeps its keys on disk, and has another replication id when it is back.
    servers.all[0].ask(&["save"]);
    servers.all[0].kill();
    servers.all[0].start_again();
    answers(&redis).await;
    assert_ne!(servers.all[0].ask(&["dbsize"]).trim(), "0");
    assert_eq!(token(&redis, 1, 5).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_sentinel_may_replace_must_refuse_writes_without_replicas() {
    let Some(servers) = Servers::sentinel() else {
        return;
    };
    let redis = connected(&servers.settings).await;
    let silent = redis.token(name(1), Token(1)).await.unwrap_err().to_string();
    assert!(silent.contains("min-replicas-to-write"), "{silent}");
    for server in &servers.all[..2] {
        server.ask(&["config", "set", "min-replicas-to-write", "1"]);
    }
    assert_eq!(token(&redis, 1, 1).await, None);
    let begun = redis.begin(name(1), Change(1), Token(2)).await.unwrap();
    assert_eq!(begun, None);

    servers.all[1].kill();
    let began = clock::instant();
    while redis.token(name(1), Token(3)).await.is_ok() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "it answers without its replica"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_server_is_told_apart() {
    let Some(servers) = Servers::cluster() else { return };
    let redis = connected(&servers.settings).await;
    let begun = async |number| redis.begin(name(number), Change(1), Token(1)).await;
    for number in 0..40 {
        assert_eq!(begun(number).await, Ok(None), "{number}");
    }
    servers.all[0].kill();
    let began = clock::instant();
    let mut promoted = Vec::new();
    while promoted.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(30), "no server is promoted");
        tokio::time::sleep(Duration::from_millis(200)).await;
        for number in 0..40 {
            promoted.extend(begun(number).await.into_iter().flatten());
        }
    }
    promoted.dedup();
    assert_eq!(promoted.len(), 1);
}

/// A server that answers with these bytes, again and again. Returns the bytes that each connection took.
async fn endless(bytes: &'static [u8]) -> (SocketAddr, mpsc::UnboundedReceiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (taken, all) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let taken = taken.clone();
            tokio::spawn(async move {
                let mut sent = 0;
                while stream.write_all(bytes).await.is_ok() {
                    sent += bytes.len();
                }
                let _ = taken.send(sent);
            });
        }
    });
    (address, all)
}

#[tokio::test]
async fn an_answer_without_an_end_is_given_up_before_it_takes_memory() {
    static LINE: [u8; 64 << 10] = [b'+'; 64 << 10];
    for (scheme, rest) in [("redis", ""), ("redis-cluster", ""), ("redis-sentinel", "/main")] {
        let (address, mut taken) = endless(&LINE).await;
        let settings = DirectoryConfig {
            url: format!("{scheme}://{address}{rest}"),
            ..DirectoryConfig::default()
        };
        let directory = Redis::new(&settings).unwrap();
        assert!(located(&directory, 1).await.is_err(), "{scheme}");
        let sent = taken.recv().await.unwrap();
        // The system buffers some of it on both sides.
        assert!(sent < 32 << 20, "{scheme}: {sent} bytes were taken");
    }
}
