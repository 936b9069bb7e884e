//! libFuzzer target: the documents of S3. The checks are in `checks/`, which the main workspace's tests
//! include, too.
#![no_main]

#[path = "../checks/xml.rs"]
mod xml;

libfuzzer_sys::fuzz_target!(|data: &[u8]| xml::check(data));
