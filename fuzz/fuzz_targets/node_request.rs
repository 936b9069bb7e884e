//! libFuzzer target: requests of nodes to each other for dirty objects. The checks are in `checks/`,
//! which the main workspace's tests include, too.
#![no_main]

#[path = "../checks/node_request.rs"]
mod node_request;

libfuzzer_sys::fuzz_target!(|data: &[u8]| node_request::check(data));
