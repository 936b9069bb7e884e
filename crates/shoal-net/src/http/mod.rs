//! HTTP on sockets: listeners, connections and their deadlines, TLS.

pub mod connection;
pub mod deadline;
pub mod expectation;
pub mod listener;
pub mod pages;
pub mod tls;
