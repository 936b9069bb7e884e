//! Reasons for not trusting another end, how often each occurred, and the messages for the operator.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::{AlertDescription, Error};

use crate::metrics::Counts;
use crate::time::clock;
use crate::time::log_throttle::LogThrottle;
use crate::words;

/// Each reason is logged at most once in this time.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

words! {
    /// Why this node does not trust the other end of a connection.
    #[derive(thiserror::Error)]
    pub enum AuthFailure {
        /// It does not speak TLS.
        #[error("it does not speak TLS")]
        NotTls = "not-tls",
        /// It speaks TLS, but not as nodes do.
        #[error("it does not speak as nodes of this version do")]
        NotOurs = "not-ours",
        /// It knows another secret.
        #[error("it knows another cluster secret")]
        OtherSecret = "other-secret",
        /// It cannot prove that it is the expected node, or that it is a node.
        #[error("it does not prove that it is the node that it should be")]
        HandshakeLimit = "unproven",
        /// It did not prove itself in time, or hung up before.
        #[error("it did not prove itself in time")]
        Unfinished = "unfinished",
        /// Received bytes were altered on their way.
        #[error("its message was altered on the way")]
        Altered = "altered",
    }
}

/// The other end, as the log names it.
#[derive(Debug)]
pub(super) struct RemoteNode {
    /// `None` for a node that asks this one.
    pub(super) name: Option<Arc<str>>,
    pub(super) address: SocketAddr,
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
        match cause(error) {
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
        match (error.kind(), cause(error)) {
            // The node that is asked checks the proof last, when the asking node has already gone on.
            (_, Some(Error::AlertReceived(AlertDescription::AccessDenied))) => Some(Self::HandshakeLimit),
            (io::ErrorKind::InvalidData, _) => Some(Self::Altered),
            _ => None,
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

fn cause(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

impl AuthFailures {
    /// Counts one failure, and logs it at most once a minute. Returns the error that states the reason.
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
