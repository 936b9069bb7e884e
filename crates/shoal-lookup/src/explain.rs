//! Explains the nodes in the answer to a client, as text and as JSON.

use std::fmt::Write as _;
use std::net::SocketAddr;

use serde::Serialize;
use shoal_base::terminal::table;
use shoal_node::admin::client::AdminError;
use shoal_node::admin::members::MemberState;
use shoal_node::config::{Lookup, LookupPlace};

use super::answer::choice::{Choice, Eligibility};
use super::answer::client::Client;
use crate::TTL_SECONDS;

/// The inputs and the result of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The client's address or network.
    pub client: String,
    /// The client's place, outermost first; `null` if it is unknown.
    pub topology: Option<String>,
    /// The configured network that determines the place.
    pub network: Option<String>,
    /// The requested name.
    pub name: String,
    /// How long the answer would be valid, in seconds.
    pub ttl_seconds: u32,
    /// All living nodes in the order in which the client should try them.
    pub nodes: Vec<Explained>,
    /// Polled nodes that did not answer.
    pub silent: Vec<SilentNode>,
}

/// A living node from the client's point of view.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// The name of the node.
    pub name: String,
    /// The place of the node.
    pub topology: String,
    /// The address at which clients reach the node.
    pub address: Option<SocketAddr>,
    /// The state of the node; clients are directed to nodes that serve.
    pub state: MemberState,
    /// Requests in flight as a fraction of the node's limit, 0 to 1.
    pub load: Option<f64>,
    /// The number of topology levels that the node shares with the client.
    pub shared_levels: usize,
    /// The node's weight in the choice among equally near nodes, 0 to 1.
    pub weight: f64,
    /// True if the answer contains the node.
    pub answered: bool,
    /// Why it does or does not.
    pub why: &'static str,
}

/// A polled node that did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SilentNode {
    /// The polled URL.
    pub url: String,
    /// Why there was no answer.
    pub why: String,
}

impl From<&AdminError> for SilentNode {
    fn from(error: &AdminError) -> Self {
        Self {
            url: error.url.to_string(),
            why: error.why.to_string(),
        }
    }
}

impl Explanation {
    pub(super) fn new(
        config: &Lookup,
        client: Client,
        place: Option<&LookupPlace>,
        choices: &[Choice],
        silent: Vec<SilentNode>,
    ) -> Self {
        let network = client.network;
        let single = network.prefix_len() == network.max_prefix_len();
        Self {
            client: if single {
                network.addr().to_string()
            } else {
                network.to_string()
            },
            topology: place.map(|place| place.topology.clone()),
            network: place.map(|place| place.network.to_string()),
            name: config.name.clone().unwrap_or_default(),
            ttl_seconds: TTL_SECONDS,
            nodes: choices.iter().map(explained).collect(),
            silent,
        }
    }

    /// Returns true if the answer would contain any node.
    pub fn has_answer(&self) -> bool {
        self.nodes.iter().any(|node| node.answered)
    }

    /// Formats the explanation as text.
    pub fn to_text(&self) -> String {
        let place = match (&self.topology, &self.network) {
            (Some(place), Some(network)) => format!("{place}  ([[lookup.place]] {network})"),
            _ => "unknown: all nodes are equally far".into(),
        };
        let mut text = format!(
            "client  {}\nplace   {place}\nname    {}, for {} s\n\n",
            self.client, self.name, self.ttl_seconds
        );
        if self.nodes.is_empty() {
            text.push_str("no living node is known: the answer is SERVFAIL\n");
        } else {
            text.push_str(&listed(&self.nodes));
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
        answered: choice.eligibility == Eligibility::Answered,
        why: choice.eligibility.as_str(),
    }
}

fn listed(nodes: &[Explained]) -> String {
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
    table(std::iter::once(title).chain(rows))
}
