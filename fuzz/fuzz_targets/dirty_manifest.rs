//! libFuzzer target: manifests of dirty objects. The checks are in `checks/`, which the main workspace's
//! tests include, too.
#![no_main]

#[path = "../checks/dirty_manifest.rs"]
mod dirty_manifest;

libfuzzer_sys::fuzz_target!(|data: &[u8]| dirty_manifest::check(data));
