//! Whom a client would be answered and why, for people and for scripts.

use std::fmt::Write as _;
use std::net::SocketAddr;

use serde::Serialize;

use super::asker::Asker;
use super::choice::{Choice, Standing};
use super::places::Location;
use crate::admin::client::{AdminUrl, Trouble};
use crate::admin::members::MemberState;
use crate::config::Lookup;

/// Everything that decides about an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The client or the network it is in.
    pub client: String,
    /// Its place, outermost first; `null` when nobody knows.
    pub topology: Option<String>,
    /// The network of the configuration that says so.
    pub network: Option<String>,
    /// What is asked for.
    pub name: String,
    /// How long the answer would hold, in seconds.
    pub ttl_seconds: u64,
    /// All living nodes in the order in which the client should try them.
    pub nodes: Vec<Explained>,
    /// Nodes that were asked who is alive and did not say.
    pub silent: Vec<Silent>,
}

/// A living node as the client stands with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// Its name.
    pub name: String,
    /// Its place.
    pub topology: String,
    /// Where clients reach it.
    pub address: Option<SocketAddr>,
    /// Whether clients should come.
    pub state: MemberState,
    /// Requests in flight as a share of those it takes, 0 to 1.
    pub load: Option<f64>,
    /// Levels of topology that it shares with the client.
    pub shared_levels: usize,
    /// Its part in the choice among those as near, 0 to 1.
    pub weight: f64,
    /// Whether it is answered.
    pub answered: bool,
    /// Why, or why not.
    pub why: &'static str,
}

/// A node that was asked who is alive and did not say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Silent {
    /// Whom we asked.
    pub url: String,
    /// Why there was no answer.
    pub why: String,
}

impl Silent {
    pub(super) fn new(url: &AdminUrl, why: &Trouble) -> Self {
        Self {
            url: url.to_string(),
            why: why.to_string(),
        }
    }
}

impl Explanation {
    pub(super) fn new(
        config: &Lookup,
        client: Asker,
        location: Location<'_>,
        choices: &[Choice],
        silent: Vec<Silent>,
    ) -> Self {
        let network = client.network;
        let single = network.prefix_len() == network.max_prefix_len();
        Self {
            client: if single {
                network.addr().to_string()
            } else {
                network.to_string()
            },
            topology: location.topology.map(Into::into),
            network: location.network.map(|network| network.to_string()),
            name: config.name.clone().unwrap_or_default(),
            ttl_seconds: config.ttl.as_secs(),
            nodes: choices.iter().map(explained).collect(),
            silent,
        }
    }

    /// Whether anybody would be answered.
    pub fn has_answer(&self) -> bool {
        self.nodes.iter().any(|node| node.answered)
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let place = match (&self.topology, &self.network) {
            (Some(place), Some(network)) => format!("{place}  ([[lookup.place]] {network})"),
            (Some(place), None) => format!("{place}  ([lookup] topology: no [[lookup.place]] has it)"),
            (None, _) => "unknown: all nodes are equally far".into(),
        };
        let mut text = format!(
            "client  {}\nplace   {place}\nname    {}, for {} s\n\n",
            self.client, self.name, self.ttl_seconds
        );
        if self.nodes.is_empty() {
            text.push_str("no living node is known: the answer is SERVFAIL\n");
        } else {
            text.push_str(&table(&self.nodes));
        }
        for silent in &self.silent {
            writeln!(text, "\n{} {}", silent.url, silent.why).expect("writing to a string does not fail");
        }
        text
    }
}

fn explained(choice: &Choice) -> Explained {
    let (live, member) = (&choice.live, &choice.live.member);
    Explained {
        name: member.name.clone(),
        topology: member.topology.clone(),
        address: live.address,
        state: member.state,
        load: member.load,
        shared_levels: choice.shared_levels,
        weight: choice.weight,
        answered: choice.standing == Standing::Answered,
        why: choice.standing.as_str(),
    }
}

/// Columns as wide as their widest cell; the last one is free.
fn table(nodes: &[Explained]) -> String {
    let title = ["node", "topology", "shared", "load", "weight", "address", "why"].map(String::from);
    let rows = nodes.iter().map(|node| {
        [
            node.name.clone(),
            node.topology.clone(),
            node.shared_levels.to_string(),
            node.load.map_or("?".into(), |load| format!("{load:.2}")),
            format!("{:.2}", node.weight),
            node.address.map_or("-".into(), |address| address.to_string()),
            node.why.into(),
        ]
    });
    let rows: Vec<[String; 7]> = std::iter::once(title).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            write!(text, "{cell:width$}  ").expect("writing to a string does not fail");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}
