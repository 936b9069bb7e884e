//! `shoal node`: commands for one running node.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use shoal_node::admin::client::{AdminClient, AdminError, AdminErrorKind};
use shoal_node::admin::status::Status;
use shoal_node::{HandoffPhase, HandoffProgress};

use super::admin::AdminPort;
use super::block_on;
use super::failure::Failure;
use super::output::{Tone, bytes, counted, overwrite, print, print_message};

/// Interval at which the command polls a draining node.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Failed polls in a row after which the command gives up.
const SILENCES_MAX: u32 = 20;

/// Give an order to a node
///
/// Orders go to the admin port. It takes them over loopback, or with a token or a certificate where
/// `[admin] token_file` or `client_ca` is set.
#[derive(Debug, Args)]
pub(super) struct Node {
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
    pub(super) fn run(self) -> Result<(), Failure> {
        match self.verb {
            Verb::Drain(order) => block_on(order.drain()),
            Verb::Undrain(order) => block_on(order.undrain()),
        }
    }
}

impl Order {
    async fn drain(self) -> Result<(), Failure> {
        let client = self.admin.client()?;
        self.give(&client, "/drain").await?;
        let mut silences = 0;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match client.get::<Status>(&self.admin.node, "/status").await {
                Ok(Status { node, drain, .. }) => {
                    let drain = drain.unwrap_or_default();
                    if drain.state != HandoffPhase::Draining {
                        return self.conclude(&node.name, &drain);
                    }
                    silences = 0;
                    show(&node.name, &drain);
                }
                Err(_) if silences < SILENCES_MAX => silences += 1,
                Err(error) => return Err(failure("the node stopped answering while it drained", &error)),
            }
        }
    }

    async fn undrain(self) -> Result<(), Failure> {
        let progress = self.give(&self.admin.client()?, "/undrain").await?;
        print(&if self.json {
            format!("{:#}\n", json!(progress))
        } else {
            format!("{} serves again\n", self.admin.node)
        });
        Ok(())
    }

    async fn give(&self, client: &AdminClient, order: &str) -> Result<HandoffProgress, Failure> {
        let given = client.post(&self.admin.node, order).await;
        given.map_err(|error| failure(&format!("the node refused the order {order}"), &error))
    }

    fn conclude(&self, name: &str, drain: &HandoffProgress) -> Result<(), Failure> {
        end_progress();
        if drain.state == HandoffPhase::Serving {
            let what = format!("{name} serves again: another command has ended the draining");
            return Err(Failure::Failed { what, hint: None });
        }
        if drain.blocks_kept > 0 {
            let what = format!("no node took {} of {name}'s blocks", drain.blocks_kept);
            let hint = "after the node stops, these blocks are read from the lake again; `shoal status` shows whether other nodes can be reached";
            print_message(Tone::Warning, &what, Some(hint));
        }
        print(&if self.json {
            format!("{:#}\n", json!({ "node": name, "drain": drain }))
        } else {
            let (blocks, given) = (counted(drain.blocks_given, "block"), bytes(drain.bytes_given));
            format!("{name} is drained: it handed over {blocks} ({given}) and may stop\n")
        });
        Ok(())
    }
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

fn end_progress() {
    if stderr().is_terminal() {
        overwrite("");
    }
}

/// Creates a failure to ask a node, with a hint.
pub(super) fn failure(what: &str, error: &AdminError) -> Failure {
    let hint = match &error.why {
        AdminErrorKind::Deadline(_) | AdminErrorKind::Unreachable(_) => {
            "check that this is the admin port of a running node and that this machine can reach it; it listens on loopback unless [admin] listen says otherwise"
        }
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
        AdminErrorKind::Refused { status, .. } if !matches!(status.as_u16(), 401 | 403) => {
            failure.or_hinting(hint)
        }
        _ => failure.hinting(hint),
    }
}
