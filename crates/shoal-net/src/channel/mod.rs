//! Connections between nodes: both ends have proven their identity before either sends any data.
//!
//! The proof is a handshake of TLS 1.3 with raw public keys (RFC 7250). Every node can compute the keys of
//! all nodes from the cluster's secret ([`keys`]): the node that answers proves that it is the node with the
//! expected name, the node that asks proves that it knows the secret. Nothing else is accepted: no
//! certificates, no earlier version of TLS, no resumed session, no early data. So a recording of a connection
//! is of no use, here or at another node, and the proof does not depend on clocks.
//!
//! A node may know two secrets while an operator replaces one by the other. The node that asks names the
//! secrets that it knows (by ALPN), and the node that answers takes the first of its secrets that is among
//! them.
//!
//! The reasons are in `docs/explanation/peer-security.md`.

mod auth_failure;
mod handshake_limit;
mod keys;
mod read_ahead;
mod stream;
#[cfg(test)]
mod tests;
mod trusted_keys;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{Acceptor, AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{LazyConfigAcceptor, TlsConnector};

pub use self::auth_failure::{AuthFailure, AuthFailures};
pub use self::stream::NodeStream;

use self::auth_failure::RemoteNode;
use self::handshake_limit::HandshakeLimit;
use self::keys::Keys;
use self::read_ahead::read_ahead;
use self::stream::Stream;
use self::trusted_keys::{ClientKeys, TrustedKeys};
use crate::sockets::sigbus_guard::SigbusGuard;

/// Time within which the other end must have proven itself.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How one node makes connections to others and accepts theirs.
#[derive(Debug)]
pub struct Channel {
    keys: Vec<Keys>,
    /// The answers of this node, one a secret, that with the current one first.
    answers: Vec<Arc<ServerConfig>>,
    handshakes: HandshakeLimit,
    /// The counts of connections that failed because an end was not trusted.
    pub auth_failures: Arc<AuthFailures>,
}

/// Makes connections to one other node.
#[derive(Clone, Debug)]
pub struct Dialer {
    name: Arc<str>,
    /// The address of the node.
    pub address: SocketAddr,
    config: Arc<ClientConfig>,
    auth_failures: Arc<AuthFailures>,
}

impl Channel {
    /// Creates the channel of the node `name`, which authenticates with these secrets, the current one first.
    /// Other nodes may have at most `connections` connections to it.
    pub fn new<'a>(name: &str, secrets: impl IntoIterator<Item = &'a str>, connections: usize) -> Self {
        let keys: Vec<_> = secrets.into_iter().map(Keys::of).collect();
        let answers = keys.iter().map(|keys| Arc::new(answering(keys, name)));
        Self {
            answers: answers.collect(),
            keys,
            handshakes: HandshakeLimit::new(connections),
            auth_failures: Arc::default(),
        }
    }

    /// Returns a dialer for the node `name` at `address`.
    pub fn to(&self, name: &str, address: SocketAddr) -> Dialer {
        Dialer {
            name: name.into(),
            address,
            config: Arc::new(asking(&self.keys, name)),
            auth_failures: Arc::clone(&self.auth_failures),
        }
    }

    /// Accepts a connection from a node, once the node has proven itself.
    ///
    /// # Errors
    ///
    /// Fails if the other end does not prove in time that it belongs to the cluster. The failure is counted.
    pub async fn accept(&self, stream: TcpStream, address: SocketAddr) -> Result<NodeStream, AuthFailure> {
        let displaced = self.handshakes.enter();
        let proving = timeout(TIMEOUT, self.accept_handshake(stream));
        let proven = tokio::select! {
            proven = proving => proven.unwrap_or(Err(AuthFailure::Unfinished)),
            _ = displaced => Err(AuthFailure::Unfinished),
        };
        let other = RemoteNode { name: None, address };
        match proven {
            Ok(stream) => Ok(NodeStream::new(stream, other, Arc::clone(&self.auth_failures))),
            Err(failure) => {
                self.auth_failures.note(failure, &other);
                Err(failure)
            }
        }
    }

    async fn accept_handshake(&self, stream: TcpStream) -> Result<Stream, AuthFailure> {
        let begun = LazyConfigAcceptor::new(Acceptor::default(), read_ahead(stream));
        let begun = begun.await.map_err(|error| AuthFailure::of(&error))?;
        let offered: Vec<_> = begun.client_hello().alpn().into_iter().flatten().collect();
        let is_offered = |protocol: &Vec<u8>| offered.contains(&protocol.as_slice());
        let mut answers = self.answers.iter();
        let answer = answers.find(|answer| answer.alpn_protocols.iter().any(is_offered));
        let Some(answer) = answer else {
            if !offered.iter().any(|protocol| keys::is_protocol(protocol)) {
                return Err(AuthFailure::NotOurs);
            }
            // The handshake fails for lack of a common protocol, which shows the other node the reason.
            let any = self.answers.first().expect("a node has one secret at least");
            let _ = begun.into_stream(Arc::clone(any)).await;
            return Err(AuthFailure::OtherSecret);
        };
        let stream = begun.into_stream(Arc::clone(answer)).await;
        let stream = stream.map_err(|error| AuthFailure::of(&error))?;
        Ok(Box::new(SigbusGuard::new(stream.into())))
    }
}

impl Dialer {
    /// Connects to the node, which proves that it is the intended one.
    ///
    /// # Errors
    ///
    /// Fails if the connection cannot be made, or if the other end does not prove that it is this node.
    pub async fn dial(&self) -> io::Result<NodeStream> {
        let stream = TcpStream::connect(self.address).await?;
        // Without it, a request in two segments waits 40 ms for the delayed acknowledgement of the other
        // node.
        stream.set_nodelay(true)?;
        let name = Some(Arc::clone(&self.name));
        let other = RemoteNode {
            name,
            address: self.address,
        };
        match self.prove(stream).await {
            Ok(stream) => Ok(NodeStream::new(stream, other, Arc::clone(&self.auth_failures))),
            Err(failure) => Err(self.auth_failures.note(failure, &other)),
        }
    }

    async fn prove(&self, stream: TcpStream) -> Result<Stream, AuthFailure> {
        let name = ServerName::from(self.address.ip());
        let connecting = TlsConnector::from(Arc::clone(&self.config)).connect(name, read_ahead(stream));
        let stream = connecting.await.map_err(|error| AuthFailure::of(&error))?;
        // TLS lets a server choose none of the offered protocols.
        stream.get_ref().1.alpn_protocol().ok_or(AuthFailure::NotOurs)?;
        Ok(Box::new(SigbusGuard::new(stream.into())))
    }
}

/// Returns one cipher with hardware support in processors, and another one for processors without it.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
            ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![ring::kx_group::X25519],
        ..ring::default_provider()
    })
}

/// Returns how the node `name` answers nodes that know the secret of `keys`.
fn answering(keys: &Keys, name: &str) -> ServerConfig {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring knows TLS 1.3")
        .with_client_cert_verifier(Arc::new(TrustedKeys::asking(keys)))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
            keys.of_node(name),
        )));
    config.alpn_protocols = vec![keys.protocol()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

/// Returns how a node that knows the secrets of `keys` asks the node `name`.
fn asking(keys: &[Keys], name: &str) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring knows TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustedKeys::answering(keys, name)))
        .with_client_cert_resolver(Arc::new(ClientKeys::new(keys)));
    config.alpn_protocols = keys.iter().map(Keys::protocol).collect();
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config
}
