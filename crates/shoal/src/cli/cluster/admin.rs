//! The admin port that a command connects to, and its credentials.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::de::DeserializeOwned;
use shoal_base::tls::OwnCertificate;
use shoal_net::pauses::ticks;
use shoal_node::admin::client::{AdminAccess, AdminClient, AdminError, AdminErrorKind, AdminUrl};

use crate::cli::failure::Failure;

/// The admin port of a command.
#[derive(Clone, Debug, Args)]
pub(crate) struct AdminPort {
    /// The admin port of a node: of any node of the cluster, or of the one that the command is about
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:9100",
        env = "SHOAL_ADMIN_URL"
    )]
    pub(crate) node: AdminUrl,
    /// File with a token of `[admin] token_file`
    #[arg(long, value_name = "FILE", env = "SHOAL_ADMIN_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// PEM certificates that sign those of https admin ports; without it those that the system trusts
    #[arg(long, value_name = "FILE", env = "SHOAL_ADMIN_CA_FILE")]
    ca_file: Option<PathBuf>,
    /// PEM certificate to show where `[admin] client_ca` asks for one, with its chain
    #[arg(
        long,
        value_name = "FILE",
        env = "SHOAL_ADMIN_CLIENT_CERT",
        requires = "client_key"
    )]
    client_cert: Option<PathBuf>,
    /// PEM private key of that certificate
    #[arg(
        long,
        value_name = "FILE",
        env = "SHOAL_ADMIN_CLIENT_KEY",
        requires = "client_cert"
    )]
    client_key: Option<PathBuf>,
}

impl AdminPort {
    /// Returns a client for this port and those of the other nodes.
    pub(crate) fn client(&self) -> Result<AdminClient, Failure> {
        let hint = "give files of PEM, and a file with one line of [admin] token_file; docs/how-to/secure.md shows how";
        let unusable = |error| Failure::new("the admin port cannot be asked", &error).or_hinting(hint);
        let certificate = self.client_cert.clone().zip(self.client_key.clone());
        let certificate = certificate.map(|(certificate, key)| OwnCertificate { certificate, key });
        let access = AdminAccess::open(self.token_file.as_deref(), self.ca_file.clone(), certificate);
        let client = access.and_then(|access| AdminClient::new(self.node.clone(), &access));
        client.map_err(unusable)
    }
}

/// How often a command asks a node for a page, and how many failures in a row it bears.
pub(crate) struct Patience {
    pub(crate) period: Duration,
    pub(crate) silences_max: u32,
}

/// Asks a node for a page, the first time at once, until `look` finds in it what the command waits for.
pub(crate) async fn poll<T: DeserializeOwned, R>(
    client: &AdminClient,
    path: &str,
    patience: &Patience,
    mut look: impl FnMut(T) -> Option<R>,
) -> Result<R, AdminError> {
    let (mut ticks, mut silences) = (ticks(patience.period), 0);
    loop {
        ticks.tick().await;
        match client.get(path).await {
            Ok(page) => {
                silences = 0;
                if let Some(found) = look(page) {
                    return Ok(found);
                }
            }
            Err(_) if silences < patience.silences_max => silences += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Returns how a failure to do something at a node is reported: with a hint.
pub(crate) fn failed(what: impl AsRef<str>) -> impl Fn(AdminError) -> Failure {
    move |error| failure(what.as_ref(), &error)
}

fn failure(what: &str, error: &AdminError) -> Failure {
    let hint = match &error.why {
        AdminErrorKind::Deadline(_) | AdminErrorKind::Unreachable(_) => {
            "check that this is the admin port of a running node and that this machine can reach it; it listens on loopback unless [admin] listen says otherwise, and speaks http unless [admin] tls_cert is set"
        }
        AdminErrorKind::S3Port => "give the address of [admin] listen, whose port is 9100 by default",
        AdminErrorKind::Refused { status, .. } if matches!(status.as_u16(), 401 | 403) => {
            "give --token-file or --client-cert and --client-key, or ask over loopback; docs/how-to/secure.md shows how"
        }
        AdminErrorKind::Refused { status, .. } if status.as_u16() == 409 => {
            "a node hands over blocks only to nodes that it cooperates with: see [cooperation] mode"
        }
        AdminErrorKind::Refused { .. } | AdminErrorKind::Page(_) => {
            "check that this is the admin port of a node of this release; `shoal --version` prints the release"
        }
    };
    let failure = Failure::new(what, error);
    match &error.why {
        // The node's own hint is better, except for credentials, which depend on this command.
        AdminErrorKind::Refused { status, .. } if status.as_u16() == 400 => failure.or_hinting(hint).misuse(),
        AdminErrorKind::Refused { status, .. } if !matches!(status.as_u16(), 401 | 403) => {
            failure.or_hinting(hint)
        }
        _ => failure.hinting(hint),
    }
}
