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
const COMPLAINT_INTERVAL: Duration = Duration::from_mins(1);

/// Why this node does not trust the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistrust {
    /// It does not speak TLS.
    NotTls,
    /// It speaks TLS, but not as nodes do.
    NotOurs,
    /// It knows another secret.
    OtherSecret,
    /// It cannot prove that it is the expected node, or that it is a node.
    Unproven,
    /// It did not prove itself in time, or hung up before.
    Unfinished,
    /// Received bytes were altered on their way.
    Altered,
}

/// The other end, as the log names it.
#[derive(Debug)]
pub(super) struct Other {
    name: Option<Box<str>>,
    address: SocketAddr,
}

/// Counts of connections that failed because one end did not trust the other.
#[derive(Debug, Default)]
pub struct Mistrusted {
    counts: [AtomicU64; Mistrust::ALL.len()],
    complained: Mutex<[Option<Instant>; Mistrust::ALL.len()]>,
}

impl Mistrust {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::NotTls,
        Self::NotOurs,
        Self::OtherSecret,
        Self::Unproven,
        Self::Unfinished,
        Self::Altered,
    ];

    /// The word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotTls => "not-tls",
            Self::NotOurs => "not-ours",
            Self::OtherSecret => "other-secret",
            Self::Unproven => "unproven",
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
            Some(_) => Self::Unproven,
        }
    }

    /// Returns the reason for an error of a connection whose handshake was complete. `None` if the connection
    /// only broke.
    pub(super) fn of_broken(error: &io::Error) -> Option<Self> {
        use rustls::Error;
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match (error.kind(), inner) {
            // The node that is asked checks the proof last, when the asking node has already gone on.
            (_, Some(Error::AlertReceived(AlertDescription::AccessDenied))) => Some(Self::Unproven),
            (io::ErrorKind::InvalidData, _) => Some(Self::Altered),
            _ => None,
        }
    }

    const fn says(self) -> &'static str {
        match self {
            Self::NotTls => "it does not speak TLS",
            Self::NotOurs => "it does not speak as nodes of this version do",
            Self::OtherSecret => "it knows another cluster secret",
            Self::Unproven => "it does not prove that it is the node that it should be",
            Self::Unfinished => "it did not prove itself in time",
            Self::Altered => "what it sent was altered on the way",
        }
    }

    const fn hint(self) -> &'static str {
        match self {
            Self::NotTls | Self::NotOurs => {
                "nodes of an earlier version cannot cooperate with this one: upgrade them; other programs have no \
                 business on the port of [cooperation] listen"
            }
            Self::OtherSecret => {
                "give all nodes the same [cooperation] secret_key_file; while you exchange it, name the old one as \
                 previous_secret_key_file"
            }
            Self::Unproven => {
                "another node or program has the address of this one: look at [cooperation] listen, advertise and \
                 [node] name on both"
            }
            Self::Unfinished => {
                "look at the network between the nodes, and at which program connects from there"
            }
            Self::Altered => "something between the nodes changes what they say: look for it on the way",
        }
    }
}

impl fmt::Display for Mistrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.says())
    }
}

impl std::error::Error for Mistrust {}

impl Other {
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

impl Mistrusted {
    /// Returns how often each reason occurred.
    pub fn counts(&self) -> [(Mistrust, u64); Mistrust::ALL.len()] {
        Mistrust::ALL.map(|mistrust| (mistrust, self.counts[mistrust as usize].load(Ordering::Relaxed)))
    }

    /// Counts one failure, and tells the operator at most once a minute. Returns the error that states the
    /// reason.
    pub(super) fn note(&self, mistrust: Mistrust, other: &Other) -> io::Error {
        self.counts[mistrust as usize].fetch_add(1, Ordering::Relaxed);
        let node = other.name.as_deref().unwrap_or("unknown");
        let (address, hint) = (other.address, mistrust.hint());
        if self.may_complain(mistrust, clock::instant()) {
            tracing::warn!(%address, node, "another node is not believed: {mistrust}\nhint: {hint}");
        } else {
            tracing::debug!(%address, node, %mistrust, "another node is not believed");
        }
        io::Error::new(io::ErrorKind::InvalidData, mistrust)
    }

    fn may_complain(&self, mistrust: Mistrust, now: Instant) -> bool {
        let mut complained = self.complained.lock();
        let last = &mut complained[mistrust as usize];
        let may = last.is_none_or(|last| now.duration_since(last) >= COMPLAINT_INTERVAL);
        if may {
            *last = Some(now);
        }
        may
    }
}
