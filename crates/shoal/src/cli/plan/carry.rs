//! `shoal plan start`, `show` and `stop`: a plan that the nodes of a cluster carry out.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use shoal_orders::Task;

use crate::cli::block_on;
use crate::cli::cluster::admin::{AdminPort, failed};
use crate::cli::cluster::task;
use crate::cli::cluster::task::plan_state::PATH;
use crate::cli::failure::Failure;
use crate::cli::output::{print_result, talk};

/// A node takes its time for a long plan.
const PATIENCE: Duration = Duration::from_mins(2);

/// Maximum size of a plan that is read; nodes have a limit of their own.
const PLAN_BYTES_MAX: u64 = 256 << 20;

const AFTER_HELP: &str = "\
The plan is what `shoal plan HISTORY --bandwidth RATE --cache SIZE` writes. Any node takes it; one of them carries
it out, and another goes on when that one dies. A cluster has one plan in force: a later one takes its place.

The lake is asked in the name of an identity of the nodes' configuration.";

/// Hand a plan to the nodes, which carry it out
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Start {
    /// File with the plan; - reads stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Access key of the identity in whose name the lake is asked; needed if the nodes know several
    #[arg(long = "as", id = "identity", value_name = "ACCESS_KEY")]
    identity: Option<String>,
    #[command(flatten)]
    admin: AdminPort,
    /// Print the plan's state as JSON
    #[arg(long)]
    json: bool,
}

/// Show how far the plan in force is, or how the last one ended
#[derive(Debug, Args)]
pub(super) struct Show {
    #[command(flatten)]
    admin: AdminPort,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// End the plan in force, and its pins; what was fetched stays like all else in the cache
#[derive(Debug, Args)]
pub(super) struct Stop {
    #[command(flatten)]
    admin: AdminPort,
    /// Print the plan's state as JSON
    #[arg(long)]
    json: bool,
}

impl Start {
    pub(super) fn run(self) -> Result<(), Failure> {
        let document = read(&self.file)?;
        block_on(async move {
            let client = self.admin.client()?.within(PATIENCE);
            let query = self.identity.map(|identity| {
                let identity = utf8_percent_encode(&identity, NON_ALPHANUMERIC);
                format!("?identity={identity}")
            });
            let path = format!("{PATH}{}", query.unwrap_or_default());
            let plan = client.post_json::<Task>(&path, document).await;
            let plan = plan.map_err(failed("the plan was not taken"))?;
            print_result(self.json, &plan, || format!("{}\n", plan.id));
            if self.json {
                return Ok(());
            }
            if let Some(replaced) = plan.order.document.and_then(|document| document.replaces) {
                let ended = format!("it takes the place of the plan {replaced}, which has ended\n");
                talk(&ended);
            }
            talk("accepted; `shoal plan show` shows its progress\n");
            Ok(())
        })
    }
}

impl Show {
    pub(super) fn run(self) -> Result<(), Failure> {
        block_on(async move {
            let plan = self.admin.client()?.get::<Task>(PATH).await;
            let plan = plan.map_err(failed("the plan cannot be shown"))?;
            task::show(&plan, self.json);
            Ok(())
        })
    }
}

impl Stop {
    pub(super) fn run(self) -> Result<(), Failure> {
        block_on(async move {
            let plan = self.admin.client()?.delete::<Task>(PATH).await;
            let plan = plan.map_err(failed("the plan was not stopped"))?;
            task::show(&plan, self.json);
            Ok(())
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let unreadable = |error| Failure::new(&format!("{} cannot be read", path.display()), &error);
    let source: Box<dyn io::Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(path).map_err(unreadable)?)
    };
    let mut document = Vec::new();
    let read = source.take(PLAN_BYTES_MAX).read_to_end(&mut document);
    read.map_err(unreadable)?;
    Ok(document)
}
