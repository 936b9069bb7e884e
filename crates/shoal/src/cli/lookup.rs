//! `shoal lookup`: the name server that directs clients to the nearest node.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use ipnet::IpNet;
use shoal_lookup::Client;
use shoal_lookup::Lookup;
use shoal_node::config::{self, Config, Loaded, Log, Role, Sources};

use super::failure::{Failure, print_problem};
use super::output::{Tone, print};
use super::settings::{LookupVerb, SettingFlags};
use super::signals::Signals;
use super::{block_on, logging};

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
pub(super) struct LookupServer {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    configured: Configured,
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
    configured: Configured,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Configured {
    /// The configuration file; without it, variables, flags and defaults apply
    ///
    /// The variable `SHOAL_CONFIG` can name it, too.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingFlags<LookupVerb>,
}

impl Configured {
    fn load(self) -> Result<Loaded, Failure> {
        let sources = Sources {
            role: Role::Lookup,
            file: self.config,
            flags: self.settings.given,
            ..Sources::of_process()
        };
        Ok(Config::load(&sources)?)
    }
}

impl LookupServer {
    pub(super) fn run(self) -> Result<(), Failure> {
        if let Some(Verb::Explain(explain)) = self.verb {
            return explain.run();
        }
        let loaded = self.configured.load()?;
        if self.check {
            check(&loaded, self.json);
            return Ok(());
        }
        logging::start(&without_library_warnings(loaded.config.log));
        for warning in &loaded.warnings {
            tracing::warn!(hint = warning.hint.as_deref(), "{warning}");
        }
        block_on(serve(loaded.config.lookup))
    }
}

impl Explain {
    fn run(self) -> Result<(), Failure> {
        let loaded = self.configured.load()?;
        print_warnings(&loaded);
        let client = Client {
            network: self.client,
            from_option: true,
        };
        block_on(async move {
            let explanation = shoal_lookup::explain(&loaded.config.lookup, client)
                .await
                .map_err(|error| Failure::new("the choice cannot be explained", &error))?;
            print(&if self.json {
                format!("{:#}\n", serde_json::json!(explanation))
            } else {
                explanation.to_text()
            });
            if explanation.has_answer() {
                return Ok(());
            }
            Err(Failure::Failed {
                what: "the answer would name no node".into(),
                hint: Some("[lookup] nodes should name admin ports of living nodes".into()),
            })
        })
    }
}

fn check(loaded: &Loaded, json: bool) {
    print_warnings(loaded);
    if json {
        print(&format!("{:#}\n", loaded.config.to_json(Role::Lookup)));
    } else {
        print(&loaded.config.to_toml(Role::Lookup));
    }
}

fn print_warnings(loaded: &Loaded) {
    loaded
        .warnings
        .iter()
        .for_each(|warning| print_problem(Tone::Warning, warning));
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
    tokio::select! {
        () = stop.stop() => {}
        () = lookup.ended() => {
            let what = "a task of the name server has ended".into();
            let hint = Some("the lines above say why it ended; please report them".into());
            return Err(Failure::Failed { what, hint });
        }
    }
    tracing::info!("stopping");
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
