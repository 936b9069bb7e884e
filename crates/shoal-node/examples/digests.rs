//! The time of the digests that a byte of a tier passes, of chunks of 256 KiB:
//! `cargo run --release --package shoal-node --example digests`.

use std::hint::black_box;

use crc_fast::{CrcAlgorithm, checksum};
use md5::{Digest as _, Md5};
use sha2::Sha256;
use shoal_base::clock::instant;

const CHUNK_BYTES: usize = 256 << 10;
const CHUNKS: usize = 256;
const ROUNDS: usize = 5;

fn main() {
    let bytes: Vec<u8> = (0..CHUNK_BYTES * CHUNKS)
        .map(|at| (at ^ at >> 8 ^ at >> 16) as u8)
        .collect();
    measure("CRC-64/NVME", &bytes, |chunk| {
        black_box(checksum(CrcAlgorithm::Crc64Nvme, chunk));
    });
    measure("SHA-256", &bytes, |chunk| {
        black_box(Sha256::digest(chunk));
    });
    measure("MD5", &bytes, |chunk| {
        black_box(Md5::digest(chunk));
    });
}

/// Prints the least time of some rounds.
fn measure(name: &str, bytes: &[u8], digest: impl Fn(&[u8])) {
    let seconds = (0..ROUNDS).map(|_| {
        let began = instant();
        bytes.chunks(CHUNK_BYTES).for_each(&digest);
        began.elapsed().as_secs_f64()
    });
    let least = seconds.min_by(f64::total_cmp).unwrap_or_default();
    println!("{name:12} {:.3} ns a byte", least / bytes.len() as f64 * 1e9);
}
