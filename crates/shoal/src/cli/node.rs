//! `shoal node`: orders to one running node.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::json;
use shoal_node::admin::client::{AdminClient, AdminError, AdminErrorKind, AdminUrl};
use shoal_node::handoff::{HandoffPhase, HandoffProgress};

use super::block_on;
use super::failure::Failure;
use super::output::{Tone, bytes, counted, print, talk, tell};

/// How often the command polls a draining node for its progress.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The command gives up on a node after this number of failed polls in a row.
const SILENCES_MAX: u32 = 20;

/// Give an order to a node
///
/// Orders go to the admin port, which has no keys: whoever reaches it may give them. It listens on loopback
/// unless `[admin] listen` says otherwise.
#[derive(Debug, Args)]
pub(super) struct Node {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Let the node give away what it holds, so that it can be stopped at no cost
    ///
    /// It is home to nothing from now on and asks the new homes of its blocks to take them over, those used
    /// last first. It goes on serving clients until it is stopped. What was written back is brought to the
    /// lake first. This command waits until it is done; Ctrl-C ends the waiting and not the draining.
    Drain(Order),
    /// Let a node that drains be home to its share of the blocks again
    Undrain(Order),
}

#[derive(Debug, Args)]
struct Order {
    /// The node's admin port
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9100")]
    node: AdminUrl,
    /// Print how it ended as JSON
    #[arg(long)]
    json: bool,
}

/// The part of `/status` that the command reads.
#[derive(Debug, Deserialize)]
struct Status {
    node: Name,
    drain: HandoffProgress,
}

#[derive(Debug, Deserialize)]
struct Name {
    name: String,
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
        let client = AdminClient::default();
        self.give(&client, "/drain").await?;
        let mut silences = 0;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match client.get::<Status>(&self.node, "/status").await {
                Ok(status) if status.drain.state == HandoffPhase::Draining => {
                    silences = 0;
                    show(&status);
                }
                Ok(status) => return self.conclude(&status),
                Err(_) if silences < SILENCES_MAX => silences += 1,
                Err(error) => return Err(failure("the node was lost sight of while it drained", &error)),
            }
        }
    }

    async fn undrain(self) -> Result<(), Failure> {
        let progress = self.give(&AdminClient::default(), "/undrain").await?;
        print(&if self.json {
            format!("{:#}\n", json!(progress))
        } else {
            format!("{} serves again\n", self.node)
        });
        Ok(())
    }

    async fn give(&self, client: &AdminClient, order: &str) -> Result<HandoffProgress, Failure> {
        let given = client.post(&self.node, order).await;
        given.map_err(|error| failure(&format!("the order {order} was not taken"), &error))
    }

    fn conclude(&self, Status { node, drain }: &Status) -> Result<(), Failure> {
        end_progress();
        let name = &node.name;
        if drain.state == HandoffPhase::Serving {
            let what = format!("{name} serves again: somebody else has ended the draining");
            return Err(Failure::Failed { what, hint: None });
        }
        if drain.blocks_kept > 0 {
            let what = format!("nobody took {} of {name}'s blocks", drain.blocks_kept);
            let hint = "what they hold is read from the lake again once the node is gone; `shoal status` shows whether others can be reached";
            tell(Tone::Warning, &what, Some(hint));
        }
        print(&if self.json {
            format!("{:#}\n", json!({ "node": name, "drain": drain }))
        } else {
            let (blocks, given) = (counted(drain.blocks_given, "block"), bytes(drain.bytes_given));
            format!("{name} is drained: it gave away {blocks} ({given}) and may stop\n")
        });
        Ok(())
    }
}

/// Shows the progress on one line of a terminal, which it overwrites.
fn show(Status { node, drain }: &Status) {
    if stderr().is_terminal() {
        let (name, left) = (&node.name, drain.blocks_left);
        let (given, size) = (counted(drain.blocks_given, "block"), bytes(drain.bytes_given));
        let dirty = match drain.objects_dirty {
            0 => String::new(),
            objects => format!(", {} not at the lake yet", counted(objects, "object")),
        };
        talk(&format!(
            "\r\x1b[K{name} is draining: {given} ({size}) given away, {left} left{dirty}"
        ));
    }
}

fn end_progress() {
    if stderr().is_terminal() {
        talk("\r\x1b[K");
    }
}

/// Creates a failure to ask a node, with a hint.
pub(super) fn failure(what: &str, error: &AdminError) -> Failure {
    let hint = match &error.why {
        AdminErrorKind::Deadline(_) | AdminErrorKind::Unreachable(_) => {
            "is it the admin port of a running node, and may this machine reach it? it listens on loopback unless [admin] listen says otherwise"
        }
        AdminErrorKind::Refused { status, .. } if status.as_u16() == 409 => {
            "blocks are given to other nodes under [cooperation] mode = \"hierarchy\" only"
        }
        AdminErrorKind::Refused { .. } | AdminErrorKind::Page(_) => {
            "is it the admin port of a node, and of this release? `shoal --version` says which this is"
        }
    };
    Failure::new(what, error).hinting(hint)
}
