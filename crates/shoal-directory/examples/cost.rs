//! Measures what the directory costs a node: `cost REDIS_URL EVENTS_A_SECOND BLOCKS_AN_OBJECT SECONDS`.
//!
//! Half of the events are blocks that arrive, every second one from another node's cache; half are blocks
//! that leave, with the requests that a node sends when it makes room. Prints the processor time of this
//! process, in percent of one processor.

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use shoal_directory::config::DirectoryConfig;
use shoal_directory::guard::{Guard, Kind};
use shoal_directory::redis::Redis;
use shoal_directory::reporter::{Change, Reporter};
use shoal_directory::{Group, NodeState};
use shoal_policy::{BlockId, NodeId, VersionId};
use tokio::time::{MissedTickBehavior, interval};

const ME: NodeId = NodeId(7);

/// Events come in steps of this time.
const STEP: Duration = Duration::from_millis(10);

/// The number of leaving blocks per request to the directory.
const BATCH: usize = 64;

/// The blocks that the node holds before any of them leaves.
const HELD: usize = 10_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let [url, numbers @ ..] = &words[..] else {
        return usage();
    };
    let numbers: Vec<u64> = numbers.iter().filter_map(|word| word.parse().ok()).collect();
    let [events, in_object, seconds] = numbers[..] else {
        return usage();
    };
    let settings = DirectoryConfig {
        url: url.clone(),
        prefix: "shoal-cost".into(),
        ..DirectoryConfig::default()
    };
    let directory = match Redis::new(&settings) {
        Ok(directory) => directory,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let guard = Arc::new(Guard::new(Arc::new(directory), Duration::from_secs(1)));
    let (reporter, reporting) = Reporter::new(ME, &guard);
    let nothing = || std::future::ready(Vec::new());
    let running = tokio::spawn(reporting.run(Vec::new, nothing, std::future::pending()));
    let mut number = 0_u64;
    let mut blocks = std::iter::repeat_with(|| {
        let mut version = [0; 16];
        version[..8].copy_from_slice(&(number / in_object).to_be_bytes());
        let index = (number % in_object) as u32;
        number += 1;
        BlockId {
            version: VersionId(version),
            index,
        }
    });
    let mut held: VecDeque<BlockId> = blocks.by_ref().take(HELD).collect();
    let each_step = events / 2 * STEP.as_millis() as u64 / 1000;
    let mut pause = interval(STEP);
    pause.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let steps = seconds * 1000 / STEP.as_millis() as u64;
    let before = processor_ticks();
    let began = shoal_base::clock::instant();
    let mut leaving = Vec::new();
    for step in 0..steps {
        pause.tick().await;
        for _ in 0..each_step {
            let Some(block) = blocks.next() else { break };
            reporter.report(block, Change::Held);
            if block.index % 2 == 1 {
                reporter.used(block, 1);
            }
            held.push_back(block);
            leaving.extend(held.pop_front());
        }
        while leaving.len() >= BATCH {
            leave(&guard, &reporter, leaving.drain(..BATCH)).await;
        }
        if step % 100 == 0 {
            let state = NodeState {
                node: ME,
                age: step,
                average_rank: step,
                takes_pushes: true,
            };
            let _ = guard
                .ask(Kind::Exchange, |directory| directory.exchange(state))
                .await;
        }
    }
    let taken = (processor_ticks() - before) as f64 / TICKS_A_SECOND;
    let took = began.elapsed().as_secs_f64();
    running.abort();
    let silent: u64 = guard
        .requests
        .counts()
        .iter()
        .map(|(_, counts)| counts.silent)
        .sum();
    println!(
        "{:.2} % of a processor at {:.0} events a second, {silent} requests without an answer",
        taken / took * 100.0,
        (steps * each_step * 2) as f64 / took
    );
    ExitCode::SUCCESS
}

/// Announces and drops blocks, as a node does that makes room.
async fn leave(guard: &Guard, reporter: &Reporter, blocks: impl Iterator<Item = BlockId>) {
    let mut groups = std::collections::BTreeMap::<Group, Vec<(u32, u64)>>::new();
    for block in blocks {
        groups
            .entry(Group::containing(block))
            .or_default()
            .push((block.index, 1));
    }
    join_all(
        groups
            .iter()
            .map(|(group, copies)| guard.leave(ME, *group, copies)),
    )
    .await;
    for (group, copies) in groups {
        for (index, _) in copies {
            let version = group.version;
            reporter.report(BlockId { version, index }, Change::Dropped);
        }
    }
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
    eprintln!("usage: cost REDIS_URL EVENTS_A_SECOND BLOCKS_AN_OBJECT SECONDS");
    ExitCode::FAILURE
}
