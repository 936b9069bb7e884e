//! Reasons for not trusting another end, how often each occurred, and the messages for the operator.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustls::AlertDescription;

use crate::metrics::Counts;
use crate::time::clock;
use crate::time::log_throttle::LogThrottle;
use crate::words;

/// Each reason is logged at most once in this time.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

words! {
    /// Why this node does not trust the other end of a connection.
    pub enum AuthFailure {
        /// It does not speak TLS.
        NotTls = "not-tls",
        /// It speaks TLS, but not as nodes do.
        NotOurs = "not-ours",
        /// It knows another secret.
        OtherSecret = "other-secret",
        /// It cannot prove that it is the expected node, or that it is a node.
        HandshakeLimit = "unproven",
        /// It did not prove itself in time, or hung up before.
        Unfinished = "unfinished",
        /// Received bytes were altered on their way.
        Altered = "altered",
    }
}

/// The other end, as the log names it.
#[derive(Debug)]
pub(super) struct RemoteNode {
    name: Option<Box<str>>,
    address: SocketAddr,
}

/// Counts of connections that failed because one end did not trust the other.
#[derive(Debug)]
pub struct AuthFailures {
    /// How often each reason occurred.
    pub counts: Counts<AuthFailure>,
    lines: [LogThrottle; AuthFailure::ALL.len()],
}

impl Default for AuthFailures {
    fn default() -> Self {
        Self {
            counts: Counts::default(),
            lines: [const { LogThrottle::every(LOG_INTERVAL) }; AuthFailure::ALL.len()],
        }
    }
}

impl AuthFailure {
    /// Returns the reason for an error that occurs while the ends prove themselves.
    pub(super) fn of(error: &io::Error) -> Self {
        use rustls::Error;
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match inner {
            None => Self::Unfinished,
            Some(Error::InvalidMessage(_)) => Self::NotTls,
            Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => Self::OtherSecret,
            Some(Error::PeerIncompatible(_)) => Self::NotOurs,
            Some(Error::DecryptError) => Self::Altered,
            Some(_) => Self::HandshakeLimit,
        }
    }

    /// Returns the reason for an error of a connection whose handshake was complete. `None` if the connection
    /// only broke.
    pub(super) fn of_broken(error: &io::Error) -> Option<Self> {
        use rustls::Error;
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match (error.kind(), inner) {
            // The node that is asked checks the proof last, when the asking node has already gone on.
            (_, Some(Error::AlertReceived(AlertDescription::AccessDenied))) => Some(Self::HandshakeLimit),
            (io::ErrorKind::InvalidData, _) => Some(Self::Altered),
            _ => None,
        }
    }

    const fn says(self) -> &'static str {
        match self {
            Self::NotTls => "it does not speak TLS",
            Self::NotOurs => "it does not speak as nodes of this version do",
            Self::OtherSecret => "it knows another cluster secret",
            Self::HandshakeLimit => "it does not prove that it is the node that it should be",
            Self::Unfinished => "it did not prove itself in time",
            Self::Altered => "its message was altered on the way",
        }
    }

    const fn hint(self) -> &'static str {
        match self {
            Self::NotTls | Self::NotOurs => {
                "nodes of an earlier version cannot cooperate with this one: upgrade them; other programs have no \
                 business on the port of [cooperation] listen"
            }
            Self::OtherSecret => {
                "give all nodes the same [cooperation] secret_key_file; while you exchange it, the file holds the \
                 old one as its second line"
            }
            Self::HandshakeLimit => {
                "another node or program has the address of this one: look at [cooperation] listen, advertise and \
                 [node] name on both"
            }
            Self::Unfinished => {
                "look at the network between the nodes, and at which program connects from there"
            }
            Self::Altered => "look for a device between the nodes that changes their messages",
        }
    }
}

impl fmt::Display for AuthFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.says())
    }
}

impl std::error::Error for AuthFailure {}

impl RemoteNode {
    /// A node that asks this one, as far as this one can tell.
    pub(super) fn asking(address: SocketAddr) -> Self {
        Self { name: None, address }
    }

    /// The node that this one asks.
    pub(super) fn asked(name: &str, address: SocketAddr) -> Self {
        Self {
            name: Some(name.into()),
            address,
        }
    }
}

impl AuthFailures {
    /// Counts one failure, and tells the operator at most once a minute. Returns the error that states the
    /// reason.
    pub(super) fn note(&self, failure: AuthFailure, other: &RemoteNode) -> io::Error {
        self.counts.count(failure);
        let node = other.name.as_deref().unwrap_or("unknown");
        let (address, hint) = (other.address, failure.hint());
        if self.lines[failure as usize].admit(clock::instant()).is_some() {
            tracing::warn!(%address, node, "another node failed authentication: {failure}\nhint: {hint}");
        } else {
            tracing::debug!(%address, node, %failure, "another node failed authentication");
        }
        io::Error::new(io::ErrorKind::InvalidData, failure)
    }
}
