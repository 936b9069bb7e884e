//! `shoal prefetch`, `pin`, `unpin`, `evict` and `cached`: orders to a cluster.

use std::fs::File;
use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use futures_util::TryStreamExt as _;
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use shoal_net::clock;
use shoal_node::admin::client::AdminClient;
use shoal_node::config::{parse_size, parse_time};
use shoal_orders::{Moment, Task, TaskKind, TaskRequest, TaskState};
use tokio_util::io::ReaderStream;

use super::admin::{AdminPort, failed};
use super::task::{self, follow};
use crate::cli::block_on;
use crate::cli::failure::Failure;
use crate::cli::output::{print, print_result, talk};

pub(crate) const AFTER_HELP: &str = "\
s3://BUCKET/PREFIX names all objects whose keys begin with PREFIX. In a key, * stands for any bytes but /, ** for
any bytes, ? for one character, [abc] for one of some; \\ takes the meaning away. A manifest names single objects,
one URI a line.

The lake is listed and asked in the name of an identity of the nodes' configuration. A task goes on when this
command ends, and when the node that runs it stops: another node goes on where it was.";

/// Bring objects into the cache before clients ask for them
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Prefetch {
    #[command(flatten)]
    order: OrderArgs,
    #[command(flatten)]
    transfer: TransferArgs,
}

/// Bring objects into the cache, and keep them there until a time
///
/// Each node keeps pinned blocks whatever its eviction policy would evict, up to half of its room. Objects
/// beyond that fail with pins-full. Pins also go to nodes that come later.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Pin {
    #[command(flatten)]
    order: OrderArgs,
    #[command(flatten)]
    transfer: TransferArgs,
    /// When the pins end: 2026-11-27T18:00:00Z, a date, which begins at midnight UTC, or from now such as 2h
    #[arg(long, value_name = "TIME", value_parser = moment_or_duration, required_unless_present = "for_")]
    until: Option<Moment>,
    /// How long the pins hold: 12h, 3d
    #[arg(long = "for", id = "for_", value_name = "DURATION", value_parser = duration, conflicts_with = "until")]
    for_: Option<Duration>,
}

/// Count what of some objects is cached, and on which nodes
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Cached {
    #[command(flatten)]
    order: OrderArgs,
    /// Print the line for `shoal plan --held`
    #[arg(long, conflicts_with_all = ["manifest", "json"])]
    held: bool,
}

/// The objects, and how the command ends.
#[derive(Debug, Args)]
pub(crate) struct OrderArgs {
    /// The objects
    #[arg(value_name = "s3://BUCKET/PREFIX", required_unless_present = "manifest")]
    uri: Option<String>,
    /// File with the URIs of the objects, one a line; - reads stdin
    #[arg(long, value_name = "FILE", conflicts_with = "uri")]
    manifest: Option<PathBuf>,
    /// Access key of the identity in whose name the lake is asked; needed if the nodes know several
    #[arg(long = "as", id = "identity", value_name = "ACCESS_KEY")]
    identity: Option<String>,
    /// Wait for the end of the task, and show its progress; Ctrl-C ends the wait, not the task
    #[arg(long)]
    wait: bool,
    /// Print the task as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminPort,
}

/// How objects come into the cache.
#[derive(Debug, Args)]
struct TransferArgs {
    /// Nodes that are to hold the objects: a node's name, or the beginning of a topology such as
    /// dc1/cluster-a. Without it, the homes of the widest layer
    #[arg(long, value_name = "PLACE")]
    to: Option<String>,
    /// Fetch at most this many bytes a second, such as 100MiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    rate: Option<u64>,
    /// Be done by then, and go just fast enough: a time, a date, or from now such as 2h
    #[arg(long, value_name = "TIME", value_parser = moment_or_duration)]
    deadline: Option<Moment>,
    /// Only count objects, their bytes, and what is cached already
    #[arg(long)]
    dry_run: bool,
}

impl Prefetch {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let request = self.transfer.apply_to(self.order.request(TaskKind::Prefetch));
        self.order.give(request)
    }
}

impl Pin {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut request = self.transfer.apply_to(self.order.request(TaskKind::Pin));
        let now = Moment::from(clock::utc_now());
        request.until = self.until.or(self.for_.map(|time| now.plus(time)));
        self.order.give(request)
    }
}

impl Cached {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if !self.held {
            return self.order.run(TaskKind::Cached);
        }
        block_on(async move {
            let (client, request) = (self.order.admin.client()?, self.order.request(TaskKind::Cached));
            let task = self.order.send(&client, &request).await?;
            let task = task::ended(&client, task).await?;
            if task.progress.state != TaskState::Done {
                let what = format!("the task {} {}", task.id, task.progress.state.as_str());
                return Err(Failure::failed(what).hinting_if(task.progress.detail));
            }
            let bytes = task.progress.tally.bytes.cached;
            print(&format!("{}\n", json!({ "path": request.uri, "bytes": bytes })));
            Ok(())
        })
    }
}

impl TransferArgs {
    fn apply_to(&self, request: TaskRequest) -> TaskRequest {
        TaskRequest {
            to: self.to.clone(),
            rate_bytes_per_second: self.rate,
            deadline: self.deadline,
            dry_run: self.dry_run,
            ..request
        }
    }
}

impl OrderArgs {
    /// Gives an order that needs nothing but the objects.
    pub(crate) fn run(self, kind: TaskKind) -> Result<(), Failure> {
        let request = self.request(kind);
        self.give(request)
    }

    fn request(&self, kind: TaskKind) -> TaskRequest {
        TaskRequest {
            identity: self.identity.clone(),
            ..TaskRequest::new(kind, self.uri.clone())
        }
    }

    fn give(self, request: TaskRequest) -> Result<(), Failure> {
        // A count is useless without its result.
        let waits = self.wait || request.dry_run || request.kind == TaskKind::Cached;
        block_on(async move {
            let client = self.admin.client()?;
            let task = self.send(&client, &request).await?;
            if waits {
                return follow(&client, task, self.json).await;
            }
            print_result(self.json, &task, || format!("{}\n", task.id));
            if !self.json {
                talk(&format!("taken; `shoal task {} --wait` follows it\n", task.id));
            }
            Ok(())
        })
    }

    async fn send(&self, client: &AdminClient, request: &TaskRequest) -> Result<Task, Failure> {
        let sent = if let Some(manifest) = &self.manifest {
            client.post_text(&path_of(request), list(manifest)?).await
        } else {
            let order = serde_json::to_vec(request).expect("an order is JSON");
            client.post_json(task::PATH, order).await
        };
        sent.map_err(failed("the order was not taken"))
    }
}

/// Returns the path with the order as its query.
fn path_of(request: &TaskRequest) -> String {
    let order = json!(request);
    let fields = order.as_object().expect("an order is an object").iter();
    let fields = fields.map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC))
    });
    format!("{}?{}", task::PATH, fields.collect::<Vec<_>>().join("&"))
}

/// Returns the list in a file. Input from a pipe is copied to a temporary file first, so that the node does
/// not wait for a slow process.
fn list(path: &Path) -> Result<BoxBody<Bytes, io::Error>, Failure> {
    let unreadable = |error: io::Error| {
        let what = format!("{} cannot be read", path.display());
        Failure::new(&what, &error).or_hinting("give a file with one s3:// URI a line, or - for stdin")
    };
    let file = if path.as_os_str() == "-" {
        let mut spooled = tempfile::tempfile().map_err(unreadable)?;
        io::copy(&mut io::stdin().lock(), &mut spooled).map_err(unreadable)?;
        spooled.rewind().map_err(unreadable)?;
        spooled
    } else {
        File::open(path).map_err(unreadable)?
    };
    let pieces = ReaderStream::with_capacity(tokio::fs::File::from_std(file), 64 << 10);
    Ok(StreamBody::new(pieces.map_ok(Frame::data)).boxed())
}

fn moment(text: &str) -> Result<Moment, String> {
    let is_date = text.len() == 10 && !text.contains('T');
    let midnight = format!("{text}T00:00:00Z");
    let moment = if is_date { &midnight } else { text }.parse();
    moment.map_err(|_| {
        "write a time as 2026-11-27T18:00:00Z or with an offset such as +01:00, or a date".into()
    })
}

fn moment_or_duration(text: &str) -> Result<Moment, String> {
    match parse_time(text) {
        Some(time) => Ok(Moment::from(clock::utc_now()).plus(time)),
        None => moment(text).map_err(|why| format!("{why}; or a time from now, such as 2h")),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_time(text).ok_or_else(|| "write a whole number and s, m, h or d, such as 12h".into())
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| "write a whole number and KiB, MiB or GiB, such as 100MiB".into())
}

#[cfg(test)]
mod tests {
    use super::{duration, moment, moment_or_duration, size};

    #[test]
    fn times_are_written_as_people_write_them() {
        assert_eq!(
            moment("2026-11-27").unwrap().to_string(),
            "2026-11-27T00:00:00.000Z"
        );
        assert_eq!(
            moment("2026-11-27T18:00:00+01:00").unwrap().to_string(),
            "2026-11-27T17:00:00.000Z"
        );
        assert!(moment_or_duration("2h").is_ok() && moment_or_duration("2026-11-27").is_ok());
        for text in ["friday", "2h", "", "2026-11-27 18:00", "äöüäöüäöü1"] {
            assert!(moment(text).is_err(), "{text}");
        }
        assert!(duration("3d").is_ok() && duration("3 days").is_err());
        assert_eq!(size("2KiB"), Ok(2048));
    }
}
