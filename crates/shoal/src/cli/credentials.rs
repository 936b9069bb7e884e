//! `shoal credentials`: gets a temporary key of a role from a node.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures_util::FutureExt as _;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use shoal_net::http::listener;
use shoal_net::shutdown;
use shoal_node::admin::client::{AdminAccess, AdminClient, AdminUrl};
use shoal_node::{KeyGetter, serve_keys};

use super::block_on;
use super::failure::Failure;
use super::servers::signals::Signals;

/// STS may be on another continent.
const DEADLINE: Duration = Duration::from_secs(30);

const AFTER_HELP: &str = "\
Example, in ~/.aws/config:
  [profile etl]
  credential_process = shoal credentials --node https://shoal.svc:9443 --role arn:aws:iam::1:role/etl --token-file /var/run/secrets/shoal/token
  endpoint_url = https://shoal.svc:9000";

/// Get a temporary key of a role, for clients that know no endpoint of credentials
///
/// The node passes the token on to the STS of the lake, which decides. The key is printed in the form of
/// `credential_process` of AWS's SDKs and tools. SDKs that read
/// `AWS_CONTAINER_CREDENTIALS_FULL_URI` do not need this command, but for those that take no `https` URL
/// there: for them, `--listen 127.0.0.1:9911` answers at `http://127.0.0.1:9911/` until it is stopped.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Credentials {
    /// Where a node gives temporary keys: its `[sts] listen`
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:9443",
        env = "SHOAL_STS_URL"
    )]
    node: AdminUrl,
    /// ARN of the role; without it the token alone decides, which the lake must allow
    #[arg(long, value_name = "ARN", default_value = "", env = "AWS_ROLE_ARN")]
    role: String,
    /// File with the token that an identity provider gave this client
    #[arg(long, value_name = "FILE", env = "AWS_WEB_IDENTITY_TOKEN_FILE")]
    token_file: PathBuf,
    /// PEM certificates that sign that of the node; without it those that the system trusts
    #[arg(long, value_name = "FILE", env = "SHOAL_STS_CA_FILE")]
    ca_file: Option<PathBuf>,
    /// Answer clients at this loopback address instead of printing a key; each that reaches it gets one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
}

/// A key as a node sends it.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    expiration: String,
}

impl Credentials {
    pub(crate) fn run(self) -> Result<(), Failure> {
        block_on(async {
            match self.listen {
                Some(address) => self.serve(address).await,
                None => self.print().await,
            }
        })
    }

    async fn print(self) -> Result<(), Failure> {
        let key = self.get().await?;
        let document = json!({
            "Version": 1,
            "AccessKeyId": key.access_key_id,
            "SecretAccessKey": key.secret_access_key,
            "SessionToken": key.token,
            "Expiration": key.expiration,
        });
        super::output::print(&format!("{document}\n"));
        Ok(())
    }

    async fn serve(self, address: SocketAddr) -> Result<(), Failure> {
        if !address.ip().is_loopback() {
            let what = format!("{address} is not an address of loopback");
            let hint = "write 127.0.0.1 and a port: who reaches it gets keys without a token";
            return Err(Failure::misused(what, hint));
        }
        let mut signals = Signals::listen()?;
        // A wrong token or role is an error now, and not when the first client asks.
        self.get().await?;
        let listener = listener::listen(address);
        let listener = listener.map_err(|error| Failure::new("keys cannot be served", &error))?;
        let (stop, stopping) = shutdown::channel();
        let credentials = Arc::new(self);
        let source: KeyGetter = Arc::new(move || {
            let credentials = Arc::clone(&credentials);
            async move {
                let key = credentials.get().await.map_err(|failure| failure.text())?;
                Ok(json!(key))
            }
            .boxed()
        });
        let serving = tokio::spawn(serve_keys(listener, source, stopping));
        signals.stop().await;
        stop.begin();
        serving
            .await
            .map_err(|error| Failure::new("the server of keys ended early", &error))
    }

    /// Reads the token, which its provider replaces now and then, and gets a key for it.
    async fn get(&self) -> Result<Answer, Failure> {
        let hint = "give a file with the token alone in it, and one with PEM certificates if the node's are not known";
        let unusable = |error| Failure::new("the node cannot be asked", &error).or_hinting(hint);
        let access = AdminAccess::open(Some(&self.token_file), self.ca_file.clone(), None);
        let client = access.and_then(|access| AdminClient::new(self.node.clone(), &access));
        let client = client.map_err(unusable)?.within(DEADLINE);
        let role = utf8_percent_encode(&self.role, NON_ALPHANUMERIC);
        let key = client.get(&format!("/v1/credentials?role={role}")).await;
        key.map_err(|error| Failure::new("there is no key", &error))
    }
}
