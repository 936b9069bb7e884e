//! `shoal flush`: sends written-back objects to the lake now.

use std::time::Duration;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use shoal_node::admin::status::Status;
use shoal_s3::uri::S3Uri;
use shoal_writeback::FlushProgress;

use super::admin::AdminPort;
use super::block_on;
use super::failure::Failure;
use super::node::failure;
use super::output::{counted, print};

/// Interval at which the command polls the node.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Failed polls in a row after which the command gives up.
const SILENCES_MAX: u32 = 50;

/// Flush dirty objects (written back, not yet in the lake) to the lake now
///
/// The node flushes the objects of all nodes. An object that cannot be flushed stays dirty; the node retries
/// it and lists it in `/status`. This command waits until every object was tried once; Ctrl-C ends the wait,
/// not the flush.
#[derive(Debug, Args)]
pub(super) struct Flush {
    /// Flush only objects below this bucket or prefix
    #[arg(value_name = "s3://BUCKET/PREFIX")]
    below: Option<S3Uri>,
    #[command(flatten)]
    admin: AdminPort,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

impl Flush {
    pub(super) fn run(self) -> Result<(), Failure> {
        block_on(self.flush())
    }

    async fn flush(self) -> Result<(), Failure> {
        let client = self.admin.client()?;
        let below = self.below.as_ref().map(ToString::to_string).unwrap_or_default();
        let below = utf8_percent_encode(&below, NON_ALPHANUMERIC);
        let order = format!("/flush?below={below}");
        let begun = client.post::<FlushProgress>(&self.admin.node, &order).await;
        let begun = begun.map_err(|error| failure("the flush did not start", &error))?;
        let mut silences = 0;
        loop {
            match client.get::<Status>(&self.admin.node, "/status").await {
                Ok(Status { write_back, .. }) if write_back.flush.order != begun.order => {
                    let what = "another flush was ordered in the meantime".into();
                    return Err(Failure::Failed { what, hint: None });
                }
                Ok(Status { write_back, .. }) if !write_back.flush.running => {
                    return self.conclude(&write_back.flush);
                }
                Ok(_) => silences = 0,
                Err(_) if silences < SILENCES_MAX => silences += 1,
                Err(error) => return Err(failure("the node stopped answering during the flush", &error)),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn conclude(&self, progress: &FlushProgress) -> Result<(), Failure> {
        let FlushProgress { flushed, failed, .. } = progress;
        if self.json {
            print(&format!("{:#}\n", json!(progress)));
        } else if progress.error.is_none() {
            let are = if *flushed == 1 { "is" } else { "are" };
            print(&format!(
                "{} {are} at the lake now\n",
                counted(*flushed, "object")
            ));
        }
        let what = match (&progress.error, failed) {
            (None, 0) => return Ok(()),
            (Some(error), _) => format!("no object was flushed: {error}"),
            (None, failed) => format!("{} could not be flushed", counted(*failed, "object")),
        };
        let hint =
            "the node tries these objects again; `write_back` in its /status names them and their errors";
        Err(Failure::Failed {
            what,
            hint: Some(hint.into()),
        })
    }
}
