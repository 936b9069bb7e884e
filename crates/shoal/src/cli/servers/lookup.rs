//! `shoal lookup`: the name server that directs clients to the nearest node.

use std::net::IpAddr;

use clap::{Args, Subcommand};
use ipnet::IpNet;
use shoal_lookup::Client;
use shoal_lookup::Lookup;
use shoal_node::config::{self, Config, Log, Role};

use super::logging;
use super::serve::warn_of;
use super::signals::Signals;
use super::supervisor::{ServerState, report};
use crate::cli::block_on;
use crate::cli::failure::{Failure, print_warnings};
use crate::cli::output::print_result;
use crate::cli::settings::{ConfiguredLookup, print_checked};

const AFTER_HELP: &str = "\
Examples:
  shoal lookup --config shoal.toml
  dig @127.0.0.1 -p 5300 s3.example.org A
  shoal lookup explain --config shoal.toml --client 10.1.2.3";

/// Run a name server that answers with the nearest living node
///
/// The server asks some nodes each second which nodes are alive, and answers A, AAAA and SRV questions for
/// one name with the nodes nearest to the client. Servers share no state, so several can stand behind one
/// anycast address. A flag wins over a variable, a variable over the file, the file over the default.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub(crate) struct LookupServer {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    configured: ConfiguredLookup,
    /// Validate, print the effective configuration, and exit
    #[arg(long)]
    check: bool,
    /// Print it as JSON
    #[arg(long, requires = "check")]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Explain(Explain),
}

/// Show which nodes a client would be sent to, and why
///
/// The command asks the nodes as the name server would from this machine. The exit code is 1 when the answer
/// would name no node.
#[derive(Debug, Args)]
struct Explain {
    /// The address of the client, or its network
    #[arg(long, value_name = "IP", value_parser = client)]
    client: IpNet,
    #[command(flatten)]
    configured: ConfiguredLookup,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

impl LookupServer {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if let Some(Verb::Explain(explain)) = self.verb {
            return explain.run();
        }
        let loaded = Config::load(&self.configured.sources())?;
        if self.check {
            print_checked(&loaded, Role::Lookup, self.json);
            return Ok(());
        }
        logging::start(&without_library_warnings(loaded.config.log));
        warn_of(&loaded.warnings);
        block_on(serve(loaded.config.lookup))
    }
}

impl Explain {
    fn run(self) -> Result<(), Failure> {
        let loaded = Config::load(&self.configured.sources())?;
        print_warnings(&loaded.warnings);
        let client = Client {
            network: self.client,
            from_option: true,
        };
        block_on(async move {
            let explanation = shoal_lookup::explain(&loaded.config.lookup, client)
                .await
                .map_err(|error| Failure::new("the choice cannot be explained", &error))?;
            print_result(self.json, &explanation, || explanation.to_text());
            if explanation.has_answer() {
                return Ok(());
            }
            let hint = "[lookup] nodes should name admin ports of living nodes";
            Err(Failure::failed("the answer would name no node").hinting(hint))
        })
    }
}

/// Silences the library's warnings about malformed messages, with which anyone could flood the log. A filter
/// that names the library still enables them.
fn without_library_warnings(log: Log) -> Log {
    Log {
        filter: format!("hickory_proto=off,{}", log.filter),
        ..log
    }
}

async fn serve(config: config::Lookup) -> Result<(), Failure> {
    let mut stop = Signals::listen()?;
    let mut lookup = Lookup::start(&config)
        .await
        .map_err(|error| Failure::new("the name server cannot start", &error))?;
    tracing::info!(name = config.name, listen = ?lookup.addresses(), admin = ?lookup.admin_address(), "answering");
    report(ServerState::Ready);
    tokio::select! {
        () = stop.stop() => {}
        () = lookup.ended() => {
            let hint = "the lines above say why it ended; please report them";
            return Err(Failure::failed("a task of the name server has ended").hinting(hint));
        }
    }
    tracing::info!("stopping");
    report(ServerState::Stopping);
    stop.or_give_up(lookup.shutdown()).await
}

fn client(text: &str) -> Result<IpNet, String> {
    let address = text
        .parse::<IpAddr>()
        .map(|address| address.to_canonical().into());
    address
        .or_else(|_| text.parse::<IpNet>().map(|network| network.trunc()))
        .map_err(|_| "write an address such as 10.1.2.3, or a network such as 10.1.2.0/24".into())
}
