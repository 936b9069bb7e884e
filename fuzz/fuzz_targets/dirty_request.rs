//! libFuzzer target: what nodes ask each other about dirty objects. What must hold is in `checks/`, which the main workspace's tests include, too.
#![no_main]

#[path = "../checks/dirty_request.rs"]
mod dirty_request;

libfuzzer_sys::fuzz_target!(|data: &[u8]| dirty_request::check(data));
