//! The names under which clients reach the lake through this node.
//!
//! A client whose key this node does not know signs the host for the lake. On AWS that must be the lake's own
//! name, which the client uses with this node as a forward proxy, or resolves to this node.

use http::Version;
use http::request::Parts;
use http::uri::{Authority, Uri};
use shoal_cache::exchange::host;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::identity::Caller;
use shoal_s3::operation::is_in_host;

use crate::config::{S3Config, UnknownIdentities};

/// The names of this node and of its lake.
pub(super) struct Hosts {
    /// Domain of virtual-host style at this node.
    domain: Option<String>,
    /// The lake's host without a port, if clients may use it here.
    lake: Option<String>,
}

impl Hosts {
    pub(super) fn new(config: &S3Config, lake_url: &str) -> Self {
        let uses_lake = config.unknown_identities == UnknownIdentities::Lake;
        let url = lake_url.parse::<Uri>().ok().filter(|_| uses_lake);
        Self {
            domain: config.domain.clone(),
            lake: url.and_then(|url| url.host().map(str::to_owned)),
        }
    }

    /// Returns the host of a request and the domain of virtual-host style, if the host may name a bucket.
    pub(super) fn of<'a>(&'a self, parts: &'a Parts) -> Option<(&'a str, &'a str)> {
        if self.domain.is_none() && self.lake.is_none() {
            return None;
        }
        let host = host(parts)?;
        let lake = self.lake.as_deref().filter(|lake| is_in_host(host, lake));
        lake.or(self.domain.as_deref()).map(|domain| (host, domain))
    }

    /// Checks that a request to this node as a forward proxy is for the lake. Whoever signs with a key that
    /// the node knows reaches the lake under any name.
    pub(super) fn permit(&self, parts: &Parts, caller: &Caller) -> Result<(), S3Error> {
        let (Some(lake), false) = (&self.lake, matches!(caller, Caller::Identity(_))) else {
            return Ok(());
        };
        // HTTP/2 has the host in every target.
        let target = parts.uri.authority().filter(|_| parts.version < Version::HTTP_2);
        let host = target.map(Authority::host);
        if host.is_none_or(|host| host.eq_ignore_ascii_case(lake) || is_in_host(host, lake)) {
            return Ok(());
        }
        let message = format!("This node is a proxy of its lake only: {lake}");
        Err(S3Error::new(ErrorCode::AccessDenied, message))
    }
}
