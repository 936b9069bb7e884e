//! How a static program looks up names of hosts.
#![allow(unsafe_code)] // the C library takes the choice through its C interface

/// Has the C library look up hosts in `/etc/hosts` and by DNS only.
///
/// The libraries of a system that `/etc/nsswitch.conf` may name besides were made for the C library of that
/// system. A static program has a C library of its own, and would load both.
///
/// Call before starting threads.
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
pub(crate) fn configure() {
    use std::ffi::{c_char, c_int};

    unsafe extern "C" {
        fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
    }

    // SAFETY: both texts end with a zero byte, and no other thread looks up names meanwhile.
    let refused = unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
    assert_eq!(refused, 0, "the C library knows the database `hosts`");
}

/// A program that shares the C library of its system looks up names as the system does.
#[cfg(not(all(target_env = "gnu", target_feature = "crt-static")))]
pub(crate) fn configure() {}
