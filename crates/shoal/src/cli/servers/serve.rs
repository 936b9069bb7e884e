//! `shoal serve`: one node.

use std::sync::Arc;

use clap::Args;
use shoal_net::http::listener;
use shoal_node::Gateway;
use shoal_node::config::{Config, Problem, Role, Sources};

use super::logging::LogFilter;
use super::signals::{SignalAction, Signals};
use super::supervisor::{ServerState, report};
use super::{descriptors, logging};
use crate::cli::block_on;
use crate::cli::failure::Failure;
use crate::cli::settings::{ConfiguredNode, print_checked};

/// Run one node.
///
/// Every setting of the file can be given as a variable or a flag: a flag wins over a variable, a variable
/// over the file, the file over the default. Secrets have no flag, as other users of a machine can read
/// command lines.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    configured: ConfiguredNode,
    /// Validate, print the effective configuration with secrets hidden, and exit
    #[arg(long)]
    check: bool,
    /// Print it as JSON
    #[arg(long, requires = "check")]
    json: bool,
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let sources = self.configured.sources();
        let loaded = Config::load(&sources)?;
        if self.check {
            print_checked(&loaded, Role::Node, self.json);
            return Ok(());
        }
        let log_filter = logging::start(&loaded.config.log);
        warn_of(&loaded.warnings);
        descriptors::raise(&loaded.config.limits);
        listener::take_over();
        block_on(serve(loaded.config, sources, log_filter))
    }
}

async fn serve(config: Config, sources: Sources, log_filter: LogFilter) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let name = config.node.name.clone();
    let gateway = tokio::select! {
        started = Gateway::start(config) => {
            started.map_err(|error| Failure::new(&format!("node {name} cannot start"), &*error))?
        }
        () = signals.stop() => return Ok(()),
    };
    tracing::info!(node = name, s3 = %gateway.s3_address(), admin = %gateway.admin_address(), "serving");
    for address in listener::unused() {
        let hint = "write its address in the configuration, or take it out of the socket unit";
        tracing::warn!(%address, hint, "the service manager opened a socket that no setting names");
    }
    report(ServerState::Ready);
    let sources = Arc::new(Sources {
        refuses_empty: true,
        ..sources
    });
    while signals.next().await == SignalAction::Reload {
        reload(&gateway, &sources, &log_filter).await;
    }
    tracing::info!(node = name, "stopping");
    report(ServerState::Stopping);
    signals.or_give_up(gateway.shutdown()).await
}

/// Reloads the configuration from the same sources.
async fn reload(gateway: &Gateway, sources: &Arc<Sources>, log_filter: &LogFilter) {
    let sources = Arc::clone(sources);
    let reading = tokio::task::spawn_blocking(move || Config::load(&sources));
    let loaded = reading.await.expect("reading a configuration does not panic");
    let config = loaded.map(|loaded| {
        warn_of(&loaded.warnings);
        loaded.config
    });
    match gateway.reload(config).await {
        Ok(in_force) => log_filter.change(&in_force.log),
        Err(error) => tracing::error!(
            %error,
            "the new configuration is refused, the old one stays in force"
        ),
    }
}

/// Logs the warnings of a configuration.
pub(crate) fn warn_of(warnings: &[Problem]) {
    for warning in warnings {
        tracing::warn!(hint = warning.hint.as_deref(), "{warning}");
    }
}
