//! Reasons for not trusting another end, how often each occurred, and the messages for the operator.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::AlertDescription;

use crate::clock;

/// Each reason is logged at most once in this time.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Why this node does not trust the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthFailure {
    /// It does not speak TLS.
    NotTls,
    /// It speaks TLS, but not as nodes do.
    NotOurs,
    /// It knows another secret.
    OtherSecret,
    /// It cannot prove that it is the expected node, or that it is a node.
    HandshakeLimit,
    /// It did not prove itself in time, or hung up before.
    Unfinished,
    /// Received bytes were altered on their way.
    Altered,
}

/// The other end, as the log names it.
#[derive(Debug)]
pub(super) struct RemoteNode {
    name: Option<Box<str>>,
    address: SocketAddr,
}

/// Counts of connections that failed because one end did not trust the other.
#[derive(Debug, Default)]
pub struct AuthFailures {
    counts: [AtomicU64; AuthFailure::ALL.len()],
    complained: Mutex<[Option<Instant>; AuthFailure::ALL.len()]>,
}

impl AuthFailure {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::NotTls,
        Self::NotOurs,
        Self::OtherSecret,
        Self::HandshakeLimit,
        Self::Unfinished,
        Self::Altered,
    ];

    /// The word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotTls => "not-tls",
            Self::NotOurs => "not-ours",
            Self::OtherSecret => "other-secret",
            Self::HandshakeLimit => "unproven",
            Self::Unfinished => "unfinished",
            Self::Altered => "altered",
        }
    }

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
    /// Returns how often each reason occurred.
    pub fn counts(&self) -> [(AuthFailure, u64); AuthFailure::ALL.len()] {
        AuthFailure::ALL.map(|failure| (failure, self.counts[failure as usize].load(Ordering::Relaxed)))
    }

    /// Counts one failure, and tells the operator at most once a minute. Returns the error that states the
    /// reason.
    pub(super) fn note(&self, failure: AuthFailure, other: &RemoteNode) -> io::Error {
        self.counts[failure as usize].fetch_add(1, Ordering::Relaxed);
        let node = other.name.as_deref().unwrap_or("unknown");
        let (address, hint) = (other.address, failure.hint());
        if self.may_log(failure, clock::instant()) {
            tracing::warn!(%address, node, "another node failed authentication: {failure}\nhint: {hint}");
        } else {
            tracing::debug!(%address, node, %failure, "another node failed authentication");
        }
        io::Error::new(io::ErrorKind::InvalidData, failure)
    }

    fn may_log(&self, failure: AuthFailure, now: Instant) -> bool {
        let mut complained = self.complained.lock();
        let last = &mut complained[failure as usize];
        let may = last.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL);
        if may {
            *last = Some(now);
        }
        may
    }
}
