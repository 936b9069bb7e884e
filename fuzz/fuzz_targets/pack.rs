//! libFuzzer target: the directory of packs. The checks are in `checks/`, which the main workspace's tests
//! include, too.
#![no_main]

#[path = "../checks/pack.rs"]
mod pack;

libfuzzer_sys::fuzz_target!(|data: &[u8]| pack::check(data));
