//! libFuzzer target: what nodes ask each other about uploads in parts. What must hold is in `checks/`, which the main workspace's tests include, too.
#![no_main]

#[path = "../checks/upload_request.rs"]
mod upload_request;

libfuzzer_sys::fuzz_target!(|data: &[u8]| upload_request::check(data));
