//! `shoal unpack` and `shoal pack rebuild`: what operators do about packs.

use std::time::Duration;

use clap::{Args, Subcommand};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use shoal_node::admin::status::Status;
use shoal_s3::uri::S3Uri;
use shoal_writeback::PackProgress;

use super::admin::{AdminPort, Patience, failed, poll};
use crate::cli::block_on;
use crate::cli::failure::Failure;
use crate::cli::output::{counted, print};

const PATIENCE: Patience = Patience {
    period: Duration::from_millis(500),
    silences_max: 20,
};

/// Write all objects of a rule that packs under their own names, and end its map
///
/// From now on nothing is packed below the prefix. Each object keeps its name, its ETag and its headers, and
/// is written in its writer's name; then the packs and tables are removed. Reads and writes go on meanwhile.
/// Take `pack = true` from the rule afterwards, before its nodes start again: otherwise they pack again. If
/// the order is interrupted, repeat it: it goes on with what is left.
#[derive(Debug, Args)]
pub(crate) struct Unpack {
    #[command(flatten)]
    order: Order,
}

/// Repair the map of packed objects
#[derive(Debug, Args)]
pub(crate) struct Pack {
    #[command(subcommand)]
    verb: PackVerb,
}

#[derive(Debug, Subcommand)]
enum PackVerb {
    Rebuild(Rebuild),
}

/// Take the map of packed objects from the lake, after the registry of its tier was lost or restored
///
/// Until then, names below the prefix are answered 503. The newest table at the lake has the whole map. The
/// lake is listed twice, FENCE apart, so this takes some 40 seconds.
#[derive(Debug, Args)]
struct Rebuild {
    #[command(flatten)]
    order: Order,
    /// Make the map from the packs, if tables are lost, too: objects that were removed or overwritten by
    /// larger ones come back until their packs are rewritten
    #[arg(long)]
    from_packs: bool,
}

/// An order about the packs of a rule.
#[derive(Debug, Args)]
struct Order {
    /// The prefix of the rule
    #[arg(value_name = "s3://BUCKET/PREFIX/")]
    rule: S3Uri,
    #[command(flatten)]
    admin: AdminPort,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

impl Unpack {
    pub(crate) fn run(self) -> Result<(), Failure> {
        block_on(async {
            let ended = self.order.carry_out("/unpack", "").await?;
            self.order
                .conclude(&ended, &format!("{} unpacked", counted(ended.done, "object")))
        })
    }
}

impl Pack {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let PackVerb::Rebuild(Rebuild { order, from_packs }) = self.verb;
        block_on(async {
            let from_packs = if from_packs { "&from_packs=true" } else { "" };
            let ended = order.carry_out("/rebuild", from_packs).await?;
            let rebuilt = format!("the map has {} now", counted(ended.done, "table"));
            order.conclude(&ended, &rebuilt)?;
            match ended.failed {
                0 => Ok(()),
                packs => Err(
                    Failure::failed(format!("{} cannot be read", counted(packs, "pack")))
                        .hinting("their objects are not in the map; the log of the node names them"),
                ),
            }
        })
    }
}

impl Order {
    /// Gives the order, and waits for its end.
    async fn carry_out(&self, path: &str, more: &str) -> Result<PackProgress, Failure> {
        let client = self.admin.client()?;
        let rule = self.rule.to_string();
        let rule = utf8_percent_encode(&rule, NON_ALPHANUMERIC);
        let begun = client
            .post::<PackProgress>(&format!("{path}?below={rule}{more}"))
            .await;
        let begun = begun.map_err(failed("the order was not accepted"))?;
        let ended = poll(&client, "/status", &PATIENCE, |Status { write_back, .. }| {
            let packs = write_back.packs;
            (packs.order != begun.order || !packs.running).then_some(packs)
        });
        let ended = ended.await;
        let ended = ended.map_err(failed("the node stopped answering; give the order again"))?;
        if ended.order != begun.order {
            return Err(Failure::failed(
                "the node started again meanwhile; give the order again",
            ));
        }
        Ok(ended)
    }

    fn conclude(&self, ended: &PackProgress, done: &str) -> Result<(), Failure> {
        if self.json {
            print(&format!("{:#}\n", json!(ended)));
        } else if ended.error.is_none() {
            print(&format!("{done}\n"));
        }
        match &ended.error {
            None => Ok(()),
            Some(error) => Err(Failure::failed(error.clone())),
        }
    }
}
