//! HTTP on sockets: listeners, connections and their deadlines, TLS.

pub mod connection;
pub(crate) mod deadline;
pub(crate) mod expectation;
pub mod listener;
pub mod pages;
pub(crate) mod tls;
