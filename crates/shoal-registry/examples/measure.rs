//! How fast the engines are on this machine, and the room that keys take: a table for `bench/results`.
//!
//! `cargo run --release -p shoal-registry --example measure`. Three members of etcd, with TLS and a user, are
//! started on loopback; so client and members share this machine's processors and its disk.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement stops where it cannot go on"
)]

#[path = "../tests/engines/cluster.rs"]
mod cluster;

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use shoal_base::{chance, clock};
use shoal_registry::engine::embedded::Embedded;
use shoal_registry::engine::{Change, Condition, Engine, Outcome, Range, Transaction};

const SECONDS: Duration = Duration::from_secs(4);
const AT_ONCE: [usize; 3] = [1, 16, 128];
const KEYS: usize = 100_000;
/// An entry without inline bytes.
const VALUE_BYTES: usize = 300;

#[tokio::main]
async fn main() {
    println!("| engine | measure | at once | a second | p50 ms | p99 ms |\n|---|---|---|---|---|---|");
    let folder = tempfile::tempdir_in(".").unwrap();
    let embedded = Arc::new(Embedded::open(folder.path()).unwrap());
    measure("embedded", Arc::clone(&embedded) as Arc<dyn Engine>).await;
    drop(embedded);
    let file = std::fs::metadata(folder.path().join("registry.redb")).unwrap();
    let began = clock::instant();
    let embedded = Embedded::open(folder.path()).unwrap();
    let opened = began.elapsed();
    let keys = embedded.count(b"").await.unwrap();
    let (length, taken) = (file.len() / keys, file.blocks() * 512 / keys);
    println!(
        "\nembedded: {keys} keys; {length} bytes of file a key, {taken} of disk; opened in {opened:?}\n"
    );

    let Some(cluster) = cluster::Cluster::start(3, &[]).await else {
        return;
    };
    let etcd = Arc::new(cluster.engine("measure", Duration::from_secs(10)));
    measure("etcd", Arc::clone(&etcd) as Arc<dyn Engine>).await;
    let status = cluster.control("endpoint status -w json");
    let keys = etcd.count(b"").await.unwrap();
    println!(
        "\netcd: {keys} keys; {} bytes of file a key",
        number_after(&status, "\"dbSize\":") / keys
    );
}

async fn measure(name: &str, engine: Arc<dyn Engine>) {
    for writers in AT_ONCE {
        report(name, "commits of one new key", writers, async |writer, number| {
            let key = key("write", writers * 1_000_000 + writer, number);
            let outcome = engine.commit(puts([key])).await.unwrap();
            assert!(matches!(outcome, Outcome::Committed(_)));
        })
        .await;
    }
    let began = clock::instant();
    for hundred in 0..KEYS / 100 {
        let keys = std::array::from_fn::<_, 100, _>(|number| key("fill", 0, hundred * 100 + number));
        engine.commit(puts(keys)).await.unwrap();
    }
    println!(
        "| {name} | {KEYS} keys, 100 a commit | 1 | {:.0} | | |",
        rate(KEYS, began.elapsed())
    );
    for readers in AT_ONCE {
        report(name, "gets", readers, async |_, _| {
            let number = (chance::bits() % KEYS as u64) as usize;
            assert!(engine.get(&key("fill", 0, number)).await.unwrap().is_some());
        })
        .await;
    }
    report(name, "pages of 1,000 keys", 1, async |_, _| {
        let number = (chance::bits() % (KEYS as u64 - 1001)) as usize;
        let after = key("fill", 0, number);
        let range = Range {
            prefix: Bytes::new(),
            after,
            limit: 1000,
        };
        assert_eq!(engine.range(range).await.unwrap().entries.len(), 1000);
    })
    .await;
}

/// Runs `work` in several tasks' turns at once, and prints a row.
async fn report(name: &str, measure: &str, at_once: usize, work: impl AsyncFn(usize, usize)) {
    let began = clock::instant();
    let work = &work;
    let workers = (0..at_once).map(|worker| async move {
        let mut took = Vec::new();
        while began.elapsed() < SECONDS {
            let start = clock::instant();
            work(worker, took.len()).await;
            took.push(start.elapsed());
        }
        took
    });
    let mut took = join_all(workers).await.concat();
    let elapsed = began.elapsed();
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 100].as_secs_f64() * 1e3;
    let rate = rate(took.len(), elapsed);
    println!(
        "| {name} | {measure} | {at_once} | {rate:.0} | {:.2} | {:.2} |",
        at(50),
        at(99)
    );
}

fn rate(count: usize, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}

fn puts<const N: usize>(keys: [Bytes; N]) -> Transaction {
    let conditions = keys
        .iter()
        .map(|key| Condition {
            key: key.clone(),
            revision: None,
        })
        .collect();
    let value = |key: &Bytes| Bytes::from(key.repeat(VALUE_BYTES / key.len() + 1)).slice(..VALUE_BYTES);
    let changes = keys.map(|key| Change::put(key.clone(), value(&key))).into();
    Transaction { conditions, changes }
}

/// Forty bytes, as a bucket and a key may be.
fn key(kind: &str, writer: usize, number: usize) -> Bytes {
    format!("d/bucket/{kind:5}/{writer:012}/{number:012}").into()
}

/// The first number after a mark.
fn number_after(text: &str, mark: &str) -> u64 {
    let rest = text.split_once(mark).unwrap().1;
    rest.chars()
        .take_while(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .unwrap()
}
