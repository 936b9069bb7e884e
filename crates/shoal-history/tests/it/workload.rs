//! A recurring workload with jitter, misses and files with new names every time.

use shoal_history::read::Reader;
use shoal_history::{History, Input, Moment, Run};

pub const MINUTE_MS: i64 = 60_000;
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
pub const DAY_MS: i64 = 24 * HOUR_MS;

/// 2026-10-05T00:00:00Z, a Monday.
pub const START: i64 = 1_791_158_400_000;

/// Pseudo-random numbers from a seed.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// From 0 to below `end`.
    pub fn below(&mut self, end: i64) -> i64 {
        (self.next() >> 1).cast_signed() % end.max(1)
    }

    pub fn is(&mut self, share: f64) -> bool {
        ((self.next() >> 11) as f64 / (1_u64 << 53) as f64) < share
    }

    fn letter(&mut self) -> char {
        char::from(b'a' + (self.next() % 26) as u8)
    }

    fn uuid(&mut self) -> String {
        let (a, b) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            a >> 32,
            a >> 16 & 0xffff,
            a & 0xffff,
            b >> 48,
            b & 0xffff_ffff_ffff
        )
    }
}

/// Regularity of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    pub days: i64,
    /// Maximum delay of a submission.
    pub jitter_ms: i64,
    /// Fraction of runs that do not happen. The last three days are complete, because a job that is silent
    /// for three periods has ended.
    pub missed: f64,
    /// Runs per day with names that never recur.
    pub ad_hoc_a_day: i64,
    pub seed: u64,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            days: 30,
            jitter_ms: 3 * MINUTE_MS,
            missed: 0.05,
            ad_hoc_a_day: 2,
            seed: 1,
        }
    }
}

/// `s3://lake/TABLE/dt=2026-10-05/`, of the day with this number.
pub fn day_of(table: &str, day: i64) -> String {
    let date = Moment::from_ms(START + day * DAY_MS).to_string();
    format!("s3://lake/{table}/dt={}/", &date[..10])
}

/// `s3://lake/TABLE/dt=2026-10-05/hour=07/`, of the hour with this number.
pub fn hour_of(table: &str, hour: i64) -> String {
    format!(
        "{}hour={:02}/",
        day_of(table, hour.div_euclid(24)),
        hour.rem_euclid(24)
    )
}

fn input(path: String, bytes: i64) -> Input {
    Input {
        path,
        bytes: u64::try_from(bytes).ok(),
        bytes_per_s: None,
    }
}

/// Four part files of a writer below a prefix.
fn parts(prefix: &str, bytes: i64, chance: &mut Chance) -> Vec<Input> {
    let id = chance.uuid();
    (0..4)
        .map(|part| {
            input(
                format!("{prefix}part-{part:05}-{id}-c000.snappy.parquet"),
                bytes / 4,
            )
        })
        .collect()
}

/// A month of runs: hourly, daily, on Mondays, every 15 minutes, and ad hoc.
pub fn history(manners: Manners) -> History {
    let mut chance = Chance::new(manners.seed);
    let mut reader = Reader::default();
    let mut add = |name: &str, due_ms: i64, inputs: Vec<Input>, chance: &mut Chance| {
        let submitted = Moment::from_ms(START + due_ms + chance.below(manners.jitter_ms));
        let run = Run {
            name: name.to_owned(),
            submitted,
            ended: Some(submitted.plus_ms(4 * MINUTE_MS + chance.below(MINUTE_MS))),
            inputs,
            ..Run::default()
        };
        if due_ms >= (manners.days - 3) * DAY_MS || !chance.is(manners.missed) {
            reader
                .run("generated", &run)
                .expect("a month is no large history");
        }
    };
    for quarter in 0..manners.days * 96 {
        add(
            "refresh",
            quarter * 15 * MINUTE_MS,
            vec![input("s3://lake/state/latest.json".to_owned(), 1 << 20)],
            &mut chance,
        );
    }
    for hour in 0..manners.days * 24 {
        let mut inputs = parts(&hour_of("clicks", hour - 1), 4 << 30, &mut chance);
        inputs.push(input("s3://lake/dim/countries.csv".to_owned(), 10 << 20));
        add(
            "clicks_hourly",
            hour * HOUR_MS + 5 * MINUTE_MS,
            inputs,
            &mut chance,
        );
    }
    for day in 0..manners.days {
        let date = Moment::from_ms(START + day * DAY_MS).to_string();
        let inputs = parts(
            &day_of("orders", day - 1),
            (20 << 30) + day * (100 << 20),
            &mut chance,
        );
        add(
            &format!("orders_daily_{}", &date[..10]),
            day * DAY_MS + 2 * HOUR_MS,
            inputs,
            &mut chance,
        );
        if day % 7 == 0 {
            let inputs = (day - 7..day)
                .flat_map(|day| parts(&day_of("orders", day), 20 << 30, &mut chance))
                .collect();
            add("orders_weekly", day * DAY_MS + 6 * HOUR_MS, inputs, &mut chance);
        }
        for _ in 0..manners.ad_hoc_a_day {
            let word: String = (0..12).map(|_| chance.letter()).collect();
            let at_ms = day * DAY_MS + chance.below(DAY_MS);
            add(
                &format!("adhoc {word}"),
                at_ms,
                vec![input(format!("s3://lake/scratch/{word}/x"), 1 << 30)],
                &mut chance,
            );
        }
    }
    reader.finish().expect("a month is no large history")
}
