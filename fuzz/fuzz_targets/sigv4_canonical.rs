//! libFuzzer target: canonical requests and the gate. The checks are in `checks/`, which the main
//! workspace's tests include, too.
#![no_main]

#[path = "../checks/sigv4_canonical.rs"]
mod sigv4_canonical;

libfuzzer_sys::fuzz_target!(|data: &[u8]| sigv4_canonical::check(data));
