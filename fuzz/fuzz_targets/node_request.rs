//! libFuzzer target: what nodes ask each other about what the lake does not have. What must hold is in
//! `checks/`, which the main workspace's tests include, too.
#![no_main]

#[path = "../checks/node_request.rs"]
mod node_request;

libfuzzer_sys::fuzz_target!(|data: &[u8]| node_request::check(data));
