//! `shoal flush`: sends written-back objects to the lake now.

use std::time::Duration;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use shoal_node::admin::status::Status;
use shoal_s3::uri::S3Uri;
use shoal_writeback::FlushProgress;

use super::admin::{AdminPort, Patience, failed, poll};
use crate::cli::block_on;
use crate::cli::failure::Failure;
use crate::cli::output::{counted, print};

const PATIENCE: Patience = Patience {
    period: Duration::from_millis(100),
    silences_max: 50,
};

/// Flush dirty objects (written back, not yet in the lake) to the lake now
///
/// The node flushes the objects of all nodes. An object that cannot be flushed stays dirty; the node retries
/// it and lists it in `/status`. This command waits until every object was tried once; Ctrl-C ends the wait,
/// not the flush.
#[derive(Debug, Args)]
pub(crate) struct Flush {
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
    pub(crate) fn run(self) -> Result<(), Failure> {
        block_on(self.flush())
    }

    async fn flush(self) -> Result<(), Failure> {
        let client = self.admin.client()?;
        let below = self.below.as_ref().map(ToString::to_string).unwrap_or_default();
        let below = utf8_percent_encode(&below, NON_ALPHANUMERIC);
        let begun = client
            .post::<FlushProgress>(&format!("/flush?below={below}"))
            .await;
        let begun = begun.map_err(failed("the flush did not start"))?;
        let ended = poll(&client, "/status", &PATIENCE, |Status { write_back, .. }| {
            let flush = write_back.flush;
            (flush.order != begun.order || !flush.running).then_some(flush)
        });
        let ended = ended.await;
        let ended = ended.map_err(failed("the node stopped answering during the flush"))?;
        if ended.order != begun.order {
            return Err(Failure::failed("another flush was ordered in the meantime"));
        }
        self.conclude(&ended)
    }

    fn conclude(&self, progress: &FlushProgress) -> Result<(), Failure> {
        let FlushProgress { flushed, failed, .. } = progress;
        if self.json {
            print(&format!("{:#}\n", json!(progress)));
        } else if progress.error.is_none() {
            let are = if *flushed == 1 { "is" } else { "are" };
            let objects = counted(*flushed, "object");
            print(&format!("{objects} {are} at the lake now\n"));
        }
        let what = match (&progress.error, failed) {
            (None, 0) => return Ok(()),
            (Some(error), _) => format!("no object was flushed: {error}"),
            (None, failed) => format!("{} could not be flushed", counted(*failed, "object")),
        };
        let hint =
            "the node tries these objects again; `write_back` in its /status names them and their errors";
        Err(Failure::failed(what).hinting(hint))
    }
}
