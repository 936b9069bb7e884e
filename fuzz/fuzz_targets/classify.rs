//! libFuzzer target: classification of requests. The checks are in `checks/`, which the main workspace's
//! tests include, too.
#![no_main]

#[path = "../checks/classify.rs"]
mod classify;

libfuzzer_sys::fuzz_target!(|data: &[u8]| classify::check(data));
