//! libFuzzer target: listings of the lake's objects and dirty ones. The checks are in `checks/`, which
//! the main workspace's tests include, too.
#![no_main]

#[path = "../checks/dirty_listing.rs"]
mod dirty_listing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| dirty_listing::check(data));
