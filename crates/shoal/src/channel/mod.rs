//! Connections between nodes: both ends have proven who they are before either says a word.
//!
//! The proof is a handshake of TLS 1.3 with raw public keys (RFC 7250). Every node can compute the keys of all nodes from
//! the cluster's secret ([`keys`]): the node that answers proves that it is the node with the name that was meant, the node
//! that asks proves that it knows the secret. Nothing else is accepted: no certificates, no earlier version of TLS, no
//! resumed session, no early data. So a connection that was recorded is of no use to anyone, here or at another node, and no
//! clock takes part.
//!
//! A node may know two secrets while an operator exchanges one for the other. The node that asks names the secrets that it
//! knows (by ALPN), and the one that answers takes the first of its own among them.
//!
//! `docs/design/peer-security.md` holds the reasons.

mod keys;
mod mistrust;
mod proof;
mod stream;
mod unproven;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{LazyConfigAcceptor, TlsConnector, TlsStream};

pub use self::mistrust::{Mistrust, Mistrusted};
pub use self::stream::NodeStream;

use self::keys::Keys;
use self::mistrust::Other;
use self::proof::{Asking, Known};
use self::unproven::Unproven;
use crate::config;

/// The other end has proven itself by then.
const PATIENCE: Duration = Duration::from_secs(5);

/// How one node makes connections to others, and takes theirs.
#[derive(Debug)]
pub struct Channel {
    keys: Vec<Keys>,
    /// How this node answers, by the protocol that the other end offers; what it likes best first.
    answers: Vec<(String, Arc<ServerConfig>)>,
    unproven: Unproven,
    mistrusted: Arc<Mistrusted>,
}

/// Makes connections to one other node.
#[derive(Clone, Debug)]
pub struct Dialer {
    name: Arc<str>,
    address: SocketAddr,
    config: Arc<ClientConfig>,
    mistrusted: Arc<Mistrusted>,
}

impl Channel {
    /// The connections of the node `name`, which other nodes may have at most `connections` of.
    pub fn new(name: &str, cooperation: &config::Cooperation, connections: usize) -> Self {
        let keys: Vec<_> = cooperation.secrets().map(Keys::of).collect();
        let answers = keys
            .iter()
            .map(|keys| (keys.protocol(), Arc::new(answering(keys, name))))
            .collect();
        Self {
            keys,
            answers,
            unproven: Unproven::new(connections),
            mistrusted: Arc::default(),
        }
    }

    /// The way to the node `name` at `address`.
    pub fn to(&self, name: &str, address: SocketAddr) -> Dialer {
        Dialer {
            name: name.into(),
            address,
            config: Arc::new(asking(&self.keys, name)),
            mistrusted: Arc::clone(&self.mistrusted),
        }
    }

    /// Which connections came to nothing because an end was not believed.
    pub fn mistrusted(&self) -> &Arc<Mistrusted> {
        &self.mistrusted
    }

    /// Takes a connection from a node, once it has proven itself.
    pub async fn accept(&self, stream: TcpStream, address: SocketAddr) -> Result<NodeStream, Mistrust> {
        let turn = self.unproven.enter();
        let proving = timeout(PATIENCE, self.let_prove(stream));
        let proven = tokio::select! {
            proven = proving => proven.unwrap_or(Err(Mistrust::Unfinished)),
            () = turn.displaced() => Err(Mistrust::Unfinished),
        };
        let other = Other::asking(address);
        match proven {
            Ok(stream) => Ok(NodeStream::new(stream, other, Arc::clone(&self.mistrusted))),
            Err(mistrust) => {
                self.mistrusted.note(mistrust, &other);
                Err(mistrust)
            }
        }
    }

    async fn let_prove(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, Mistrust> {
        let begun = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream);
        let begun = begun.await.map_err(|error| Mistrust::of(&error))?;
        let offered: Vec<_> = begun.client_hello().alpn().into_iter().flatten().collect();
        let answer = self
            .answers
            .iter()
            .find(|(protocol, _)| offered.contains(&protocol.as_bytes()));
        let Some((_, config)) = answer else {
            // The handshake fails for want of a common protocol, which tells the other end why.
            let is_node = offered.iter().any(|protocol| keys::is_protocol(protocol));
            let (_, config) = self.answers.first().expect("a node has one secret at least");
            if is_node {
                let _ = begun.into_stream(Arc::clone(config)).await;
                return Err(Mistrust::OtherSecret);
            }
            return Err(Mistrust::NotOurs);
        };
        let stream = begun.into_stream(Arc::clone(config)).await;
        Ok(stream.map_err(|error| Mistrust::of(&error))?.into())
    }
}

impl Dialer {
    /// A connection to the node, which has proven that it is the one that is meant.
    pub async fn dial(&self) -> io::Result<NodeStream> {
        let stream = TcpStream::connect(self.address).await?;
        // Without it a request in two segments waits 40 ms for the delayed acknowledgement of the other node.
        stream.set_nodelay(true)?;
        let other = Other::asked(&self.name, self.address);
        let name = ServerName::from(self.address.ip());
        let stream = match TlsConnector::from(Arc::clone(&self.config))
            .connect(name, stream)
            .await
        {
            Ok(stream) if stream.get_ref().1.alpn_protocol().is_some() => stream,
            Ok(_) => return Err(self.mistrusted.note(Mistrust::NotOurs, &other)),
            Err(error) => return Err(self.mistrusted.note(Mistrust::of(&error), &other)),
        };
        Ok(NodeStream::new(
            stream.into(),
            other,
            Arc::clone(&self.mistrusted),
        ))
    }

    /// Where the node is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// One way to encrypt, which processors do by themselves, and another one for those that do not.
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

/// How the node `name` answers those that know the secret of `keys`.
fn answering(keys: &Keys, name: &str) -> ServerConfig {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring knows TLS 1.3")
        .with_client_cert_verifier(Arc::new(Known::asking(keys)))
        .with_cert_resolver(keys.answering(name));
    config.alpn_protocols = vec![keys.protocol().into_bytes()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

/// How the node `name` is asked by one that knows the secrets of `keys`.
fn asking(keys: &[Keys], name: &str) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring knows TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Known::answering(keys, name)))
        .with_client_cert_resolver(Arc::new(Asking::new(keys)));
    config.alpn_protocols = keys.iter().map(|keys| keys.protocol().into_bytes()).collect();
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config
}
