//! libFuzzer target: tables of the map of packs. The checks are in `checks/`, which the main workspace's
//! tests include, too.
#![no_main]

#[path = "../checks/crc64.rs"]
mod crc64;
#[path = "../checks/pack_table.rs"]
mod pack_table;

libfuzzer_sys::fuzz_target!(|data: &[u8]| pack_table::check(data));
