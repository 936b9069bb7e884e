//! `shoal explain`: which node holds which blocks of an object, and why.

use std::fmt::Write as _;

use clap::Args;
use futures_util::future::join_all;
use serde::Serialize;
use shoal_base::terminal::{self, table};
use shoal_node::admin::client::{AdminClient, AdminError};
use shoal_node::admin::explain::{
    BLOCKS_MAX, BlockLocation, BlockWorth, DirectoryEntry, ExplainQuery, Explanation, GroupCompleteness,
    KnownVersion, PinEnd, Presence,
};
use shoal_node::admin::members::Members;
use shoal_s3::uri::S3Uri;

use super::admin::{AdminPort, failed};
use super::overview::pages_of;
use crate::cli::block_on;
use crate::cli::failure::Failure;
use crate::cli::output::{Tone, bytes, counted, print_message, print_result};

const AFTER_HELP: &str = "\
Words for a block on a node:
  resident           the block is on the disk, in the layer named
  arriving           the block is being fetched, or waits to be written to the disk
  evicted            the block was on the disk and was removed, for the reason named
  refused            the block was fetched and not admitted, for the reason named
  not asked for yet  no request for it has reached the node, which remembers some thousand blocks

On nodes that follow GWF: worth W since A says that uses weigh W and that the age was A at the last of them; the
block whose sum is least leaves first. Then follows what became of the block when it was that block:
  kept               no other node held it, and others' uses made it worth more
  copied             it left; other nodes hold it and have its weight
  pushed to NODE     it moved to a node whose blocks were worth less
  dropped            it left; no block was worth less
pinned stands after a block that no policy evicts before the end of its pin.

The column directory names the nodes that hold a block, and the weight of their uses together. In brackets
stands what features have noted about the block: short marks an object that its writer expects to be removed.

On nodes whose policy keeps objects whole (c2p) a line for each node follows: how complete the object is as far as
that node knows, and which nodes hold how many of its blocks. Blocks of incomplete objects leave first.

The answer combines what the nodes know. No request goes to the lake, and no content is shown.";

/// Show which nodes and layers hold which blocks of an object, and why
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Explain {
    /// The object
    #[arg(value_name = "s3://BUCKET/KEY")]
    object: S3Uri,
    #[command(flatten)]
    admin: AdminPort,
    /// The first block to show
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u32,
    /// How many blocks to show
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=i64::from(BLOCKS_MAX)))]
    blocks: u32,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// The answers of all nodes.
#[derive(Debug, Serialize)]
struct ClusterExplanation {
    object: String,
    /// The node that reported this version.
    known_by: String,
    version: KnownVersion,
    /// Each node's answer about the blocks of that version.
    nodes: Vec<Explanation>,
    /// Nodes that did not answer, each with the error.
    silent: Vec<SilentNode>,
}

#[derive(Debug, Serialize)]
struct SilentNode {
    node: String,
    why: String,
}

impl Explain {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.object.key.is_empty() {
            let what = format!("{} names a bucket, not an object", self.object);
            return Err(Failure::misused(what, "write s3://bucket/key"));
        }
        block_on(async move {
            let found = self.ask(&self.admin.client()?).await?;
            for SilentNode { node, why } in &found.silent {
                print_message(Tone::Warning, &format!("{node} does not answer: {why}"), None);
            }
            print_result(self.json, &found, || to_text(&found));
            Ok(())
        })
    }

    async fn ask(&self, client: &AdminClient) -> Result<ClusterExplanation, Failure> {
        let unexplained = failed(format!("{} cannot be explained", self.object));
        let members: Members = client.get("/members").await.map_err(&unexplained)?;
        let mut query = ExplainQuery {
            object: self.object.clone(),
            version: None,
            first: self.first,
            count: 0,
        };
        let (nodes, _) = ask_members(client, &members, &query)
            .await
            .map_err(&unexplained)?;
        let known = nodes
            .into_iter()
            .find_map(|node| Some((node.node, node.version?)));
        let unknown = || {
            let hint = "the object was never read, or is not cacheable (shoal_uncached_total in /metrics \
                        counts reasons), or the nodes have forgotten it";
            Failure::failed(format!("no node knows a version of {}", self.object)).hinting(hint)
        };
        let (known_by, version) = known.ok_or_else(unknown)?;
        // Each node has reported the version that it knows; now ask all of them about the same one.
        query.version = version.id();
        query.count = self.blocks.min(version.blocks.saturating_sub(self.first));
        let (nodes, silent) = ask_members(client, &members, &query)
            .await
            .map_err(&unexplained)?;
        Ok(ClusterExplanation {
            object: self.object.to_string(),
            known_by,
            version,
            nodes,
            silent,
        })
    }
}

/// Returns the answers of all members, that of `--node` first, which must succeed.
async fn ask_members(
    client: &AdminClient,
    members: &Members,
    query: &ExplainQuery,
) -> Result<(Vec<Explanation>, Vec<SilentNode>), AdminError> {
    let path = format!("/explain?{}", query.to_query());
    let others = members.members.iter();
    let others = others.filter(|member| member.name != members.speaker);
    let others = join_all(others.map(|member| {
        let path = format!("{}{path}", pages_of(&member.name));
        ask_member(client, &member.name, path)
    }));
    let (first, others) = tokio::join!(client.get(&path), others);
    let (mut nodes, mut silent) = (vec![first?], Vec::new());
    for answer in others {
        match answer {
            Ok(answer) => nodes.push(answer),
            Err(why) => silent.push(why),
        }
    }
    Ok((nodes, silent))
}

async fn ask_member(client: &AdminClient, name: &str, path: String) -> Result<Explanation, SilentNode> {
    let why = match client.get::<Explanation>(&path).await {
        Ok(answer) if answer.node == name => return Ok(answer),
        Ok(answer) => format!("{} answered as {}", client.url(), answer.node),
        Err(error) => error.to_string(),
    };
    let node = name.to_owned();
    Err(SilentNode { node, why })
}

fn to_text(found: &ClusterExplanation) -> String {
    let version = &found.version;
    let layers = found
        .nodes
        .iter()
        .flat_map(|node| &node.blocks)
        .map(|block| block.homes.len());
    let homes = layers.max().unwrap_or(0);
    let mut text = format!(
        "{}: version {} of {}, {} of {}, as {} knows it\n",
        found.object,
        version.etag,
        bytes(version.size_bytes),
        counted(version.blocks, "block"),
        bytes(version.block_bytes),
        found.known_by,
    );
    for node in &found.nodes {
        for PinEnd { task, until, hint } in &node.pins {
            let name = &node.node;
            let _ = match hint {
                None => writeln!(text, "{name}: pinned until {until} by task {task}"),
                Some(hint) => {
                    let reader = terminal::line(&hint.reader.to_string()).into_owned();
                    writeln!(
                        text,
                        "{name}: kept for {reader}, until {until} at most, by hint {task}"
                    )
                }
            };
        }
    }
    for Explanation { node, quotas, .. } in &found.nodes {
        if !quotas.is_empty() {
            let quotas: Vec<_> = quotas.iter().map(|quota| terminal::line(quota)).collect();
            let _ = writeln!(
                text,
                "{node}: under the quota of {}",
                quotas.join(" and that of ")
            );
        }
    }
    let shown = found.nodes[0].blocks.len();
    if shown == 0 {
        return text;
    }
    text.push('\n');
    let place = if found.nodes[0].entries.is_empty() {
        "homes"
    } else {
        "directory"
    };
    let head = ["block", place, "on nodes"].map(str::to_owned);
    let rows = (0..shown).map(|row| row_of(found, row, homes));
    text += &table(std::iter::once(head).chain(rows));
    for node in &found.nodes {
        for group in &node.completeness {
            let _ = writeln!(text, "{}: {}", node.node, completeness_words(group));
        }
    }
    let last = found.nodes[0].blocks[shown - 1].index;
    let left = version.blocks - 1 - last;
    if left > 0 {
        let _ = writeln!(text, "… {left} more: --first {}", last + 1);
    }
    text
}

fn completeness_words(group: &GroupCompleteness) -> String {
    let GroupCompleteness {
        layer,
        first,
        blocks,
        percent,
        read,
        missing,
        held,
    } = group;
    let last = first + blocks.saturating_sub(1);
    let held = held.iter().map(|(node, blocks)| format!("{node} {blocks}"));
    let held = held.collect::<Vec<_>>().join(", ");
    let held = if held.is_empty() { "no node".into() } else { held };
    let mut text = format!(
        "{percent}% complete in {layer}, blocks {first} to {last}; readers used {read} lately; held: {held}"
    );
    if !missing.is_empty() {
        let missing: Vec<String> = missing.iter().map(u32::to_string).collect();
        let _ = write!(text, "; missing: {}", missing.join(", "));
    }
    text
}

fn row_of(found: &ClusterExplanation, row: usize, layers: usize) -> [String; 3] {
    let asked = &found.nodes[0].blocks[row];
    let homes = (0..layers).filter_map(|layer| Some(format!("L{} {}", layer + 2, asked.homes.get(layer)?)));
    let mut entries = found.nodes[0].entries.iter();
    let entry = entries.find(|entry| entry.index == asked.index);
    let on_nodes = found.nodes.iter().filter_map(|node| {
        let block = node.blocks.iter().find(|block| block.index == asked.index)?;
        // Omit nodes that were never asked for the block.
        (block.here != Presence::Unasked).then(|| format!("{}: {}", node.node, words(block)))
    });
    let on_nodes = on_nodes.collect::<Vec<_>>().join("; ");
    [
        asked.index.to_string(),
        entry.map_or_else(|| homes.collect::<Vec<_>>().join(", "), entry_words),
        if on_nodes.is_empty() {
            Presence::Unasked.as_str().into()
        } else {
            on_nodes
        },
    ]
}

fn entry_words(entry: &DirectoryEntry) -> String {
    let DirectoryEntry {
        holders,
        claimant,
        global_weight,
        extensions,
        ..
    } = entry;
    let mut text = match claimant {
        _ if !holders.is_empty() => format!("{} (weight {global_weight})", holders.join(", ")),
        Some(claimant) => format!("{claimant} fetches it"),
        None => "no node".into(),
    };
    if !extensions.is_empty() {
        let _ = write!(text, " [{}]", extensions.join(", "));
    }
    text
}

fn words(block: &BlockLocation) -> String {
    let word = block.here.as_str();
    let mut text = match (&block.reason, block.here) {
        (Some(reason), _) => format!("{word} ({reason})"),
        (None, Presence::Resident | Presence::Arriving) => format!("{word} in {}", block.layer),
        (None, _) => word.into(),
    };
    if block.pinned {
        text += ", pinned";
    }
    if block.brought_by.is_some() {
        text += ", not read since a task brought it";
    }
    if let Some(BlockWorth { weight, since }) = block.worth {
        let _ = write!(text, ", worth {weight} since {since}");
    }
    // The reason already says so otherwise.
    if let Some(decision) = &block.decision
        && block.reason.as_ref() != Some(decision)
    {
        let _ = write!(text, ", {decision}");
    }
    text
}
