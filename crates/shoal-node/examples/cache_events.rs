//! Measures what C2P's events cost: `cache_events ADDRESS NAME SENDER SECRET EVENTS_A_SECOND SECONDS`.
//!
//! Blocks of objects of five come and go in a policy. With events, each of them is sent to the node NAME at
//! ADDRESS, in the name of its member SENDER, in batches as a node makes them. With 0 events a second, the
//! same blocks come and go 2,500 times a second under the ranking alone. Prints the processor time of this
//! process in percent of one processor, and the bytes; `bench.cache_events` adds that of the other node.
//!
//! The standard input has lines of VERSION: objects of which the other node holds blocks. Half of the events
//! are about them, half about objects that it does not know.

use std::env;
use std::fs;
use std::io::{BufRead as _, stdin};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shoal_base::clock::utc_now;
use shoal_cache::Peer;
use shoal_net::{Channel, node_id};
use shoal_policy::eviction::c2p::{C2p, Completeness, Event};
use shoal_policy::eviction::{Eviction, Lru};
use shoal_policy::outbox::{Limits, Outbox, Outgoing};
use shoal_policy::{BlockId, NodeId, VersionId};
use tokio::time::{MissedTickBehavior, interval};

/// Events come in steps of this time.
const STEP: Duration = Duration::from_millis(10);

/// The blocks that are held, and those of an object.
const HELD: u32 = 10_000;
const IN_OBJECT: u32 = 5;

/// As nodes have them.
const LIMITS: Limits = Limits {
    batch_bytes: 12 << 10,
    waiting_bytes: 64 << 10,
};

/// The pairs of a departure and an arrival in a second when no event is sent.
const PAIRS_ALONE: u64 = 2_500;

/// A message on its way.
struct Message {
    importance: usize,
    bytes: Vec<u8>,
}

impl Outgoing for Message {
    fn bytes(&self) -> usize {
        self.bytes.len() + 2
    }

    fn importance(&self) -> usize {
        self.importance
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let [address, name, sender, secret, numbers @ ..] = &words[..] else {
        return usage();
    };
    let numbers: Vec<u64> = numbers.iter().filter_map(|word| word.parse().ok()).collect();
    let (&[events, seconds], Ok(address)) = (&numbers[..], address.parse()) else {
        return usage();
    };
    let known: Vec<VersionId> = stdin()
        .lock()
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| version(&line))
        .collect();
    let sent = if events == 0 {
        alone(seconds).await;
        Sent::default()
    } else {
        let peer = peer(address, name, sender, secret);
        with_events(&peer, node_id(sender), &known, events, seconds).await
    };
    println!(
        "{:.2} % of a processor, {} events, {} batches, {} bytes, {} failed",
        processor_ticks() as f64 / TICKS_A_SECOND / seconds as f64 * 100.0,
        sent.events,
        sent.batches,
        sent.bytes,
        sent.failed
    );
    ExitCode::SUCCESS
}

#[derive(Default)]
struct Sent {
    events: u64,
    batches: u64,
    bytes: u64,
    failed: u64,
}

/// Blocks come and go under the ranking alone.
async fn alone(seconds: u64) {
    let mut policy = Lru::default();
    let mut blocks = blocks(&[]);
    for block in blocks.by_ref().take(HELD as usize) {
        policy.insert(block, 1);
    }
    let mut pause = pause();
    for _ in 0..steps(seconds) {
        pause.tick().await;
        for block in blocks
            .by_ref()
            .take((PAIRS_ALONE * STEP.as_millis() as u64 / 1000) as usize)
        {
            policy.evict(&mut |_| true);
            policy.insert(block, 1);
        }
    }
}

/// Blocks come and go under C2P above that ranking, and the other node hears of it.
async fn with_events(peer: &Peer, me: NodeId, known: &[VersionId], events: u64, seconds: u64) -> Sent {
    let mut policy = C2p::above(Box::new(Lru::default()), Completeness::Read);
    let mut outbox = Outbox::new(LIMITS);
    let mut blocks = blocks(known);
    for block in blocks.by_ref().take(HELD as usize) {
        policy.insert(block, 1);
    }
    let _ = policy.take_events();
    let (mut sent, mut pause) = (Sent::default(), pause());
    let pairs = (events / 2 * STEP.as_millis() as u64 / 1000) as usize;
    for _ in 0..steps(seconds) {
        pause.tick().await;
        let now = utc_now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        policy.advance(now);
        for block in blocks.by_ref().take(pairs) {
            policy.evict(&mut |_| true);
            policy.insert(block, 1);
            policy.observe(&block, IN_OBJECT);
        }
        for event in policy.take_events() {
            sent.events += 1;
            let message = Message {
                importance: event.kind as usize,
                bytes: encoded(&event),
            };
            sent.failed += outbox.push(message, me, now).dropped.len() as u64;
        }
        for (_, messages) in outbox.take_due(now, |_| true) {
            let body = batch(me, &messages);
            sent.batches += 1;
            sent.bytes += body.len() as u64;
            if peer.send_messages(body.into()).await.is_err() {
                sent.failed += messages.len() as u64;
            }
        }
    }
    sent
}

/// Blocks of object after object; every other object is one of the known.
fn blocks(known: &[VersionId]) -> impl Iterator<Item = BlockId> + use<> {
    let known = known.to_vec();
    (0_u64..).flat_map(move |number| {
        let mut version = VersionId([0; 16]);
        version.0[..8].copy_from_slice(&number.to_be_bytes());
        if number % 2 == 0 && !known.is_empty() {
            version = known[(number / 2) as usize % known.len()];
        }
        (0..IN_OBJECT).map(move |index| BlockId { version, index })
    })
}

fn peer(address: SocketAddr, name: &str, sender: &str, secret: &str) -> Arc<Peer> {
    let channel = Arc::new(Channel::new(sender, [secret], 10));
    Arc::new(Peer::new(name, address, &channel))
}

/// As `CacheEventMessage` stands on the wire: an event in L2.
fn encoded(event: &Event<BlockId>) -> Vec<u8> {
    let mut bytes = vec![event.kind as u8, 2];
    bytes.extend(event.key.version.0);
    let at_ms = event.at.as_millis() as u64;
    for value in [u64::from(event.key.index), at_ms, event.held, event.read] {
        number(&mut bytes, value);
    }
    bytes
}

/// As a batch stands on the wire.
fn batch(sender: NodeId, messages: &[Message]) -> Vec<u8> {
    let mut bytes = Vec::new();
    number(&mut bytes, sender.0);
    number(&mut bytes, 1);
    bytes.push(KIND);
    number(&mut bytes, messages.len() as u64);
    for message in messages {
        number(&mut bytes, message.bytes.len() as u64);
        bytes.extend(&message.bytes);
    }
    bytes
}

/// The number of events of caches among the kinds of messages.
const KIND: u8 = 1;

fn number(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn version(line: &str) -> Option<VersionId> {
    let number = u128::from_str_radix(line.trim(), 16).ok()?;
    Some(VersionId(number.to_be_bytes()))
}

fn steps(seconds: u64) -> u64 {
    seconds * 1000 / STEP.as_millis() as u64
}

fn pause() -> tokio::time::Interval {
    let mut pause = interval(STEP);
    pause.set_missed_tick_behavior(MissedTickBehavior::Burst);
    pause
}

/// The kernel counts processor time in these.
const TICKS_A_SECOND: f64 = 100.0;

/// The processor time of this process.
fn processor_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux has /proc");
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    // The 14th and the 15th field of the file: in user space, and in the kernel.
    fields
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum()
}

fn usage() -> ExitCode {
    eprintln!("usage: cache_events ADDRESS NAME SENDER SECRET EVENTS_A_SECOND SECONDS");
    ExitCode::FAILURE
}
