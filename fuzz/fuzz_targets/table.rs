//! libFuzzer target: the logs of tables. The checks are in `checks/`, which the main workspace's tests
//! include, too.
#![no_main]

#[path = "../checks/table.rs"]
mod table;

libfuzzer_sys::fuzz_target!(|data: &[u8]| table::check(data));
