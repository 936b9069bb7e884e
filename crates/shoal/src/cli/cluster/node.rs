//! `shoal node`: commands for one running node.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use shoal_node::admin::client::AdminClient;
use shoal_node::admin::status::Status;
use shoal_node::{HandoffPhase, HandoffProgress};

use super::admin::{AdminPort, Patience, failed, poll};
use crate::cli::block_on;
use crate::cli::failure::Failure;
use crate::cli::output::{Tone, bytes, counted, overwrite, print_message, print_result};

const PATIENCE: Patience = Patience {
    period: Duration::from_millis(250),
    silences_max: 20,
};

/// Give an order to a node
///
/// Orders go to the admin port. It takes them over loopback, or with a token or a certificate where
/// `[admin] token_file` or `client_ca` is set.
#[derive(Debug, Args)]
pub(crate) struct Node {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Hand the node's blocks over to other nodes, so that it can be stopped at no cost
    ///
    /// The node is no longer home to any block. It flushes its dirty objects to the lake, then hands its
    /// blocks over to their new homes, the most recently used first. It serves clients until it is stopped.
    /// This command waits until the node is drained; Ctrl-C ends the wait, not the draining.
    Drain(Order),
    /// End the draining: the node is home to its share of the blocks again
    Undrain(Order),
}

#[derive(Debug, Args)]
struct Order {
    #[command(flatten)]
    admin: AdminPort,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

impl Node {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.verb {
            Verb::Drain(order) => block_on(order.drain()),
            Verb::Undrain(order) => block_on(order.undrain()),
        }
    }
}

impl Order {
    async fn drain(self) -> Result<(), Failure> {
        let client = self.admin.client()?;
        give(&client, "/drain").await?;
        let ended = poll(&client, "/status", &PATIENCE, |Status { node, drain, .. }| {
            let drain = drain.unwrap_or_default();
            if drain.state != HandoffPhase::Draining {
                return Some((node.name, drain));
            }
            show(&node.name, &drain);
            None
        });
        let ended = ended.await;
        let (name, drain) = ended.map_err(failed("the node stopped answering while it drained"))?;
        self.conclude(&name, &drain)
    }

    async fn undrain(self) -> Result<(), Failure> {
        let progress = give(&self.admin.client()?, "/undrain").await?;
        print_result(self.json, &progress, || {
            format!("{} serves again\n", self.admin.node)
        });
        Ok(())
    }

    fn conclude(&self, name: &str, drain: &HandoffProgress) -> Result<(), Failure> {
        if stderr().is_terminal() {
            overwrite("");
        }
        if drain.state == HandoffPhase::Serving {
            let what = format!("{name} serves again: another command has ended the draining");
            return Err(Failure::failed(what));
        }
        if drain.blocks_kept > 0 {
            let what = format!("no node took {} of {name}'s blocks", drain.blocks_kept);
            let hint = "after the node stops, these blocks are read from the lake again; `shoal status` shows whether other nodes can be reached";
            print_message(Tone::Warning, &what, Some(hint));
        }
        print_result(self.json, &json!({ "node": name, "drain": drain }), || {
            let (blocks, given) = (counted(drain.blocks_given, "block"), bytes(drain.bytes_given));
            format!("{name} is drained: it handed over {blocks} ({given}) and may stop\n")
        });
        Ok(())
    }
}

async fn give(client: &AdminClient, order: &str) -> Result<HandoffProgress, Failure> {
    let given = client.post(order).await;
    given.map_err(failed(format!("the node refused the order {order}")))
}

/// Shows the progress on one line of a terminal, overwriting it.
fn show(name: &str, drain: &HandoffProgress) {
    if stderr().is_terminal() {
        let left = drain.blocks_left;
        let (given, size) = (counted(drain.blocks_given, "block"), bytes(drain.bytes_given));
        let dirty = match drain.objects_dirty {
            0 => String::new(),
            objects => format!(", {} still dirty", counted(objects, "object")),
        };
        overwrite(&format!(
            "{name} is draining: {given} ({size}) handed over, {left} left{dirty}"
        ));
    }
}
