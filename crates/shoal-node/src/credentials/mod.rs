//! Temporary keys for clients: an endpoint of credentials as AWS's SDKs ask containers' agents for them, and
//! STS itself. Both pass the client's own proof on to the STS of the lake, which decides.

mod relay;
mod server;
mod sidecar;

pub(crate) use self::relay::Relay;
pub(crate) use self::server::CredentialsServer;
pub use self::sidecar::{KeyGetter, serve_keys};
