//! The command line of `shoal`. One file per subcommand.

mod cluster;
mod credentials;
mod failure;
mod output;
mod plan;
mod servers;
mod settings;
mod shell;
mod sim;
mod tier;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use shoal_orders::TaskKind;

use cluster::{doctor, explain, flush, hints, ls, node, orders, packs, status, support, task, top};
use failure::Failure;
use servers::{dev, lookup, serve};

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 the command or the configuration was refused.";

/// A cooperative cache that extends an S3 data lake across a data center.
#[derive(Debug, Parser)]
#[command(name = "shoal", version, after_help = EXIT_CODES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Serve(serve::Serve),
    Dev(dev::Dev),
    Lookup(lookup::LookupServer),
    Explain(explain::Explain),
    Credentials(credentials::Credentials),
    Flush(flush::Flush),
    Unpack(packs::Unpack),
    Pack(packs::Pack),
    Tier(tier::Tier),
    Prefetch(orders::Prefetch),
    Pin(orders::Pin),
    /// End pins before their time
    ///
    /// The blocks stay in the cache like all others.
    #[command(after_help = orders::AFTER_HELP)]
    Unpin(orders::OrderArgs),
    /// Remove objects from the cache of every node
    ///
    /// Pinned objects stay; end their pins first.
    #[command(after_help = orders::AFTER_HELP)]
    Evict(orders::OrderArgs),
    Cached(orders::Cached),
    Ls(ls::Ls),
    Hint(hints::Hint),
    Hints(hints::Hints),
    Tasks(task::Tasks),
    Task(task::TaskVerb),
    Node(node::Node),
    Plan(plan::Plan),
    Sim(sim::Sim),
    Status(status::Status),
    Doctor(doctor::Doctor),
    Support(support::Support),
    Top(top::Top),
    Completions(shell::Completions),
    Man(shell::Man),
}

/// Runs the subcommand on this process's command line.
pub(crate) fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Serve(serve) => serve.run(),
        Verb::Dev(dev) => dev.run(),
        Verb::Lookup(lookup) => lookup.run(),
        Verb::Explain(explain) => explain.run(),
        Verb::Credentials(credentials) => credentials.run(),
        Verb::Flush(flush) => flush.run(),
        Verb::Unpack(unpack) => unpack.run(),
        Verb::Pack(pack) => pack.run(),
        Verb::Tier(tier) => tier.run(),
        Verb::Prefetch(prefetch) => prefetch.run(),
        Verb::Pin(pin) => pin.run(),
        Verb::Unpin(order) => order.run(TaskKind::Unpin),
        Verb::Evict(order) => order.run(TaskKind::Evict),
        Verb::Cached(cached) => cached.run(),
        Verb::Ls(ls) => ls.run(),
        Verb::Hint(hint) => hint.run(),
        Verb::Hints(hints) => hints.run(),
        Verb::Tasks(tasks) => tasks.run(),
        Verb::Task(task) => task.run(),
        Verb::Node(node) => node.run(),
        Verb::Plan(plan) => plan.run(),
        Verb::Status(status) => status.run(),
        Verb::Doctor(doctor) => doctor.run(),
        Verb::Support(support) => support.run(),
        Verb::Top(top) => top.run(),
        Verb::Sim(sim) => sim.run(),
        Verb::Completions(completions) => completions.run(),
        Verb::Man(man) => man.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}

/// Runs a subcommand on a new multi-threaded runtime.
fn block_on(verb: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime
        .map_err(|error| Failure::new("threads cannot be started", &error))?
        .block_on(verb)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use shoal_node::config::{Role, SETTINGS};

    use super::Cli;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_setting_without_a_secret_is_a_flag_of_serve() {
        let help = Cli::command()
            .find_subcommand_mut("serve")
            .unwrap()
            .render_long_help()
            .to_string();
        for setting in SETTINGS
            .iter()
            .filter(|setting| Role::Node.reads(setting.section))
        {
            let shown = setting
                .flag()
                .is_none_or(|flag| help.contains(&format!("--{flag} ")));
            assert!(shown, "[{}] {}", setting.section, setting.key);
        }
        assert!(help.contains("[env: SHOAL_STORE_BLOCK_SIZE]"), "{help}");
        assert!(!help.contains("--lookup-"), "{help}");
    }
}
