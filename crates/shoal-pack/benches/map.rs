//! The cost of the map of packs: room, memory, and processor time, to which other work on the machine does
//! not add.

#[path = "../../shoal-policy/tests/counting/mod.rs"]
mod counting;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use shoal_pack::table::{Listed, Map, Names, Packed, Place, Row, Table, TableBuilder, Tombstones, merge};
use shoal_pack::{Description, PackBuilder};
use ulid::Ulid;

use counting::counted;

const NAMES: u64 = 1_000_000;
/// The names of a commit.
const ROUND: u64 = 8192;
const PACK_MEMBERS: u64 = 512;
const LOOK_UPS: u64 = 200_000;

fn main() {
    let rows: Vec<Row> = (0..NAMES)
        .step_by(PACK_MEMBERS as usize)
        .flat_map(packed)
        .collect();
    rounds(&rows);

    let (table, built) = timed(|| build(1, 0..NAMES, &rows));
    let size_bytes = table.len() as u64;
    let (opened, memory, _) = counted(|| Table::open(table.clone()).expect("it is a table"));
    println!(
        "one table: {:.1} bytes a name, {:.2} s to build, {:.2} MiB of memory beside its bytes",
        size_bytes as f64 / NAMES as f64,
        built,
        memory as f64 / f64::from(1 << 20),
    );
    let ((), opening) = timed(|| {
        for _ in 0..100 {
            black_box(Table::open(table.clone())).expect("it is a table");
        }
    });
    println!("opening it: {:.2} ms", opening * 10.0);
    look_ups(&map(vec![opened]), "one table");

    let eighth = |number: u64| {
        let names = (0..NAMES).filter(move |name| random(*name) % 8 == number);
        Table::open(build(number + 1, names, &rows)).expect("it is a table")
    };
    let eight = map((0..8).rev().map(eighth).collect());
    look_ups(&eight, "eight tables");
    let (merged, merging) = timed(|| {
        let mut builder = TableBuilder::default();
        for entry in merge(eight.tables(), Names::default(), Tombstones::Drop) {
            let entry = entry.expect("nothing is damaged");
            builder
                .add(&entry.key, &entry.row)
                .expect("rows come in their order");
        }
        builder.finish(&Place::default()).expect("a map of one table")
    });
    assert_eq!(merged.listed.size_bytes, size_bytes);
    let (_, live) = timed(|| eight.live());
    println!("eight tables: {merging:.2} s to merge, {live:.2} s to count the live bytes of packs");
}

/// Commits of some thousand names at a time, as nodes make them.
fn rounds(rows: &[Row]) {
    let (size_bytes, built) = timed(|| {
        let rounds = (0..NAMES).step_by(ROUND as usize);
        let tables = rounds.map(|start| build(1, start..NAMES.min(start + ROUND), rows).len());
        tables.sum::<usize>()
    });
    println!(
        "tables of {ROUND} names: {:.1} bytes a name, {built:.2} s to build all",
        size_bytes as f64 / NAMES as f64,
    );
}

fn look_ups(map: &Map, of: &str) {
    let order: Vec<u64> = (0..LOOK_UPS).map(|time| random(time) % NAMES).collect();
    let found: Vec<Vec<u8>> = order.iter().map(|&number| name(number)).collect();
    let absent: Vec<Vec<u8>> = found.iter().map(|name| [name, &b"~"[..]].concat()).collect();
    let microseconds = |names: &[Vec<u8>], is_there: bool| {
        let ((), seconds) = timed(|| {
            for name in names {
                let row = map.get(black_box(name)).expect("nothing is damaged");
                assert_eq!(black_box(row).is_some(), is_there);
            }
        });
        seconds * 1e6 / names.len() as f64
    };
    let (found, absent) = (microseconds(&found, true), microseconds(&absent, false));
    let from: Vec<Vec<u8>> = order[..200].iter().map(|&number| name(number)).collect();
    let page = |look: fn(&Packed)| {
        let ((), seconds) = timed(|| {
            for from in &from {
                let names = Names {
                    from,
                    ..Names::default()
                };
                for object in map.objects(names).take(1000) {
                    look(&object.expect("nothing is damaged").row);
                }
            }
        });
        seconds * 1e3 / from.len() as f64
    };
    let page_ms = page(|packed| {
        black_box(&packed.range);
    });
    let described_ms = page(|packed| drop(black_box(packed.description())));
    println!(
        "{of}: {found:.2} µs a look-up, {absent:.2} µs if absent; \
         {page_ms:.2} ms a page of 1,000 names, {described_ms:.2} ms with headers"
    );
}

fn build(number: u64, names: impl Iterator<Item = u64>, rows: &[Row]) -> Bytes {
    let mut builder = TableBuilder::default();
    for number in names {
        builder
            .add(&name(number), &rows[number as usize])
            .expect("names ascend");
    }
    let place = Place {
        number,
        ..Place::default()
    };
    builder.finish(&place).expect("a map of one table").bytes
}

/// A map of these tables, newest first.
fn map(tables: Vec<Table>) -> Map {
    let tables: Vec<_> = tables.into_iter().map(Arc::new).collect();
    let listed: Vec<Listed> = tables.iter().map(|table| table.listed()).collect();
    Map::new(&listed, tables).expect("these are the tables")
}

/// A name of 60 bytes, of which neighbours share 33.
fn name(number: u64) -> Vec<u8> {
    let step = u64::MAX / NAMES;
    let unique = number * step + random(number) % step;
    format!("warehouse/events/2026-11-28/{unique:016x}.zstd.parquet.gz").into_bytes()
}

/// Rows of the members of a pack, of one writer.
fn packed(first: u64) -> Vec<Row> {
    let content_type = HeaderValue::from_static("application/octet-stream");
    let headers: HeaderMap = [(CONTENT_TYPE, content_type)].into_iter().collect();
    let mut builder = PackBuilder::default();
    let bytes = Bytes::from(vec![0; 64]);
    for number in first..NAMES.min(first + PACK_MEMBERS) {
        let (high, low) = (random(number), random(number + NAMES));
        let description = Description {
            sequence: 1_000_000 + number / ROUND,
            id: Ulid(u128::from(high) << 64 | u128::from(low)),
            writer: "AKIAIOSFODNN7EXAMPLE".into(),
            modified: SystemTime::UNIX_EPOCH + Duration::from_micros(1_800_000_000_000_000 + number * 997),
            etag: format!("\"{high:016x}{low:016x}\""),
            headers: headers.clone(),
            of_reads: HeaderMap::new(),
            parts: Vec::new(),
        };
        builder
            .add(&name(number), &description, bytes.clone())
            .expect("a pack has room");
    }
    let pack = Ulid(u128::from(random(first)) << 64 | u128::from(first));
    let members = builder.finish().members;
    members
        .iter()
        .map(|member| Row::Packed(Packed::new(pack, member)))
        .collect()
}

fn random(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

/// Returns the result of `work` and the processor time of the main thread that it takes, in seconds, as Linux
/// accounts for it.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let before = processor_nanoseconds();
    let done = work();
    (done, (processor_nanoseconds() - before) as f64 / 1e9)
}

fn processor_nanoseconds() -> u64 {
    let account = std::fs::read_to_string("/proc/self/schedstat").expect("Linux accounts for processor time");
    let nanoseconds = account.split(' ').next().and_then(|number| number.parse().ok());
    nanoseconds.expect("the first number is the time on a processor")
}
