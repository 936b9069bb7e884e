//! libFuzzer target: requests of other nodes for blocks. The checks are in `checks/`, which the main
//! workspace's tests include, too.
#![no_main]

#[path = "../checks/block_request.rs"]
mod block_request;

libfuzzer_sys::fuzz_target!(|data: &[u8]| block_request::check(data));
