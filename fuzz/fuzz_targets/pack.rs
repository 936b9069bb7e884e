//! libFuzzer target: the directory of packs. The checks are in `checks/`, which the main workspace's tests
//! include, too.
#![no_main]

#[path = "../checks/crc64.rs"]
mod crc64;
#[path = "../checks/pack.rs"]
mod pack;

libfuzzer_sys::fuzz_target!(|data: &[u8]| pack::check(data));
