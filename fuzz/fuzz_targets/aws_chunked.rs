//! libFuzzer target: aws-chunked bodies. The checks are in `checks/`, which the main workspace's tests
//! include, too.
#![no_main]

#[path = "../checks/aws_chunked.rs"]
mod aws_chunked;

libfuzzer_sys::fuzz_target!(|data: &[u8]| aws_chunked::check(data));
