//! Sockets that send pages of mapped files: uncopied where there is no TLS, and without a danger to the
//! process where there is.

mod sendfile;
pub mod sigbus_guard;

pub(crate) use self::sendfile::SendfileStream;
