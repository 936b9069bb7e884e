//! The fuzz targets on any compiler: their corpus, and some thousand inputs made of it by the same dice each
//! time.

#[path = "../../../../fuzz/checks/aws_chunked.rs"]
mod aws_chunked;
#[path = "../../../../fuzz/checks/block_request.rs"]
mod block_request;
#[path = "../../../../fuzz/checks/classify.rs"]
pub(crate) mod classify;
#[path = "../../../../fuzz/checks/crc64.rs"]
mod crc64;
#[path = "../../../../fuzz/checks/dirty_listing.rs"]
mod dirty_listing;
#[path = "../../../../fuzz/checks/pack.rs"]
mod pack;
#[path = "../../../../fuzz/checks/pack_table.rs"]
mod pack_table;
#[path = "../../../../fuzz/checks/sigv4_canonical.rs"]
mod sigv4_canonical;
#[path = "../../../../fuzz/checks/table.rs"]
mod table;
#[path = "../../../../fuzz/checks/xml.rs"]
mod xml;

use std::fs;
use std::path::Path;

use shoal_cache::BlockRequest;

const MUTATIONS_PER_SEED: usize = 300;

/// Pieces that parsers stumble over.
const TOKENS: [&[u8]; 22] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"0\r\n\r\n",
    b"0",
    b"%",
    b"%2F",
    b"%25",
    b"+",
    b"&",
    b"=",
    b";chunk-signature=",
    b":",
    b"\0",
    b"<",
    b"/>",
    b"<!--",
    b"-->",
    b"<![CDATA[",
    b"]]>",
    b"&#",
    b"<Key>",
];

#[test]
fn aws_chunked_bodies_hold_what_the_fuzzer_checks() {
    replay("aws_chunked", aws_chunked::check);
}

#[test]
fn canonical_requests_hold_what_the_fuzzer_checks() {
    replay("sigv4_canonical", sigv4_canonical::check);
}

#[test]
fn classified_requests_hold_what_the_fuzzer_checks() {
    replay("classify", classify::check);
}

#[test]
fn requests_for_blocks_hold_what_the_fuzzer_checks() {
    replay("block_request", block_request::check);
}

/// Seeds that are refused at the door would lead nowhere. An earlier build wrote them.
#[test]
fn seeds_of_messages_between_nodes_are_understood_and_written_in_the_same_way() {
    for (number, seed) in seeds("block_request").iter().enumerate() {
        let request = BlockRequest::of_bytes(seed).unwrap();
        assert_eq!(request.to_bytes().as_ref(), Some(seed), "block_request {number}");
    }
}

#[test]
fn listings_hold_what_the_fuzzer_checks() {
    replay("dirty_listing", dirty_listing::check);
}

#[test]
fn packs_hold_what_the_fuzzer_checks() {
    replay("pack", pack::check);
}

#[test]
fn tables_of_packs_hold_what_the_fuzzer_checks() {
    replay("pack_table", pack_table::check);
}

#[test]
fn logs_of_tables_hold_what_the_fuzzer_checks() {
    replay("table", table::check);
}

#[test]
fn documents_hold_what_the_fuzzer_checks() {
    replay("xml", xml::check);
}

fn replay(target: &str, check: fn(&[u8])) {
    let mut dice = Dice(0x5EED);
    for seed in seeds(target) {
        check(&seed);
        let mut input = seed.clone();
        for round in 0..MUTATIONS_PER_SEED {
            if round % 4 == 0 {
                input.clone_from(&seed);
            }
            mutate(&mut input, &mut dice);
            check(&input);
        }
    }
}

/// The corpus of a target, in the order of its names.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let files = fs::read_dir(&folder).unwrap();
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5, "{} has a corpus", folder.display());
    files.into_iter().map(|file| fs::read(file).unwrap()).collect()
}

/// xorshift64
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

/// Changes, removes, repeats or inserts a few bytes.
fn mutate(input: &mut Vec<u8>, dice: &mut Dice) {
    let at = dice.below(input.len());
    let end = (at + 1 + dice.below(8)).min(input.len());
    match dice.below(5) {
        0 if at < input.len() => input[at] ^= 1 << dice.below(8),
        1 if at < input.len() => input[at] = dice.below(256) as u8,
        2 => drop(input.drain(at..end)),
        3 => {
            let piece = input[at..end].to_vec();
            let to = dice.below(input.len() + 1);
            input.splice(to..to, piece);
        }
        _ => {
            let token = TOKENS[dice.below(TOKENS.len())];
            input.splice(at..at, token.iter().copied());
        }
    }
}
