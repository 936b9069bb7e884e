//! The admin port that a command connects to, and its credentials.

use std::path::PathBuf;

use clap::Args;
use shoal_node::admin::client::{AdminAccess, AdminClient, AdminUrl};

use super::failure::Failure;

/// The admin port of a command.
#[derive(Clone, Debug, Args)]
pub(super) struct AdminPort {
    /// The admin port of a node: of any node of the cluster, or of the one that the command is about
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:9100",
        env = "SHOAL_ADMIN_URL"
    )]
    pub(super) node: AdminUrl,
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
    pub(super) fn client(&self) -> Result<AdminClient, Failure> {
        let hint = "give files of PEM, and a file with one line of [admin] token_file; docs/how-to/secure.md shows how";
        let unusable = |error| Failure::new("the admin port cannot be asked", &error).or_hinting(hint);
        let mut access = AdminAccess {
            token: None,
            ca_file: self.ca_file.clone(),
            certificate: self.client_cert.clone().zip(self.client_key.clone()),
        };
        if let Some(token_file) = &self.token_file {
            access.read_token(token_file).map_err(unusable)?;
        }
        AdminClient::new(&self.node, &access).map_err(unusable)
    }
}
