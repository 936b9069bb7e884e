//! `[[key_source]]`

use std::path::PathBuf;
use std::time::Duration;

use shoal_base::secret::Secret;
use shoal_s3::identity::Account;

use crate::words;

words! {
    /// How a service is asked for an access key.
    pub enum KeySourceKind {
        /// `GET {url}/{access key}`, answered as trino's aws-proxy wants it.
        Http = "http",
        /// The admin API of Ceph RGW.
        Ceph = "ceph",
    }
}

/// A service that knows the secrets of clients.
#[derive(Clone, Debug, PartialEq)]
pub struct KeySourceConfig {
    /// How it is asked.
    pub kind: KeySourceKind,
    /// `http://` or `https://` URL, without a slash at its end; `None` for that of the lake.
    pub url: Option<String>,
    /// CA certificates for it; `None` for those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The headers of each request, one a line ([`secret_headers`](crate::secret_headers)).
    pub headers: Option<Secret>,
    /// The account that signs the requests to Ceph.
    pub account: Option<Account>,
    /// How long an answer holds: a key that the service withdraws ends within this time.
    pub cache_time: Duration,
}

impl KeySourceConfig {
    /// How long an answer holds if the configuration does not say it.
    pub const CACHE_TIME: Duration = Duration::from_mins(1);
}
