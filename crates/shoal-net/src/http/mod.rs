//! HTTP on sockets: listeners, connections, TLS.

pub mod allowed_hosts;
pub mod connection;
pub mod expectation;
pub mod listener;
pub mod pages;
pub mod tls;
