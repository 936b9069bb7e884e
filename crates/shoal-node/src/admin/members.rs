//! The living nodes, as one node sees them: the page `/members`, which name servers and other tools poll.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// One node's view of the living nodes, itself among them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Members {
    /// The name of the node that answers.
    #[serde(rename = "self")]
    pub speaker: String,
    /// Living nodes only.
    pub members: Vec<Member>,
}

/// One living node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Unique in the cluster.
    pub name: String,
    /// Its place in the topology, outermost first.
    pub topology: String,
    /// Where it serves S3; the address may be unspecified (0.0.0.0), the port never is.
    pub s3: SocketAddr,
    /// Where other nodes reach it.
    pub peer: Option<SocketAddr>,
    /// Where operators reach it.
    pub admin: SocketAddr,
    /// Whether clients should be sent to it.
    pub state: MemberState,
    /// Requests in flight as a share of those it takes, 0 to 1; only the node itself knows it.
    pub load: Option<f64>,
    /// The parts in which its configuration differs from that of the node that answers; absent while that is
    /// not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<Vec<String>>,
}

/// Whether clients should be sent to a living node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", from = "String")]
pub enum MemberState {
    /// Clients should be sent to it.
    Serving,
    /// It finishes what it has and leaves.
    Draining,
}

impl MemberState {
    /// The word on the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
        }
    }
}

impl From<String> for MemberState {
    /// Reads every other word, such as one of a later release, as a state in which the node is not `serving`.
    fn from(word: String) -> Self {
        if word == "serving" {
            Self::Serving
        } else {
            Self::Draining
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Member, MemberState, Members};

    #[test]
    fn the_page_is_read_as_it_is_written() {
        let member = Member {
            name: "a1".into(),
            topology: "dc1/cluster-a/rack-1".into(),
            s3: "10.0.0.1:9000".parse().unwrap(),
            peer: None,
            admin: "10.0.0.1:9100".parse().unwrap(),
            state: MemberState::Serving,
            load: Some(0.12),
            differs: None,
        };
        let members = Members {
            speaker: "a1".into(),
            members: vec![member],
        };
        let page = json!({
            "self": "a1",
            "members": [{
                "name": "a1", "topology": "dc1/cluster-a/rack-1", "s3": "10.0.0.1:9000", "peer": null,
                "admin": "10.0.0.1:9100", "state": "serving", "load": 0.12,
            }],
        });
        assert_eq!(serde_json::to_value(&members).unwrap(), page);
        assert_eq!(serde_json::from_value::<Members>(page).unwrap(), members);
    }

    #[test]
    fn a_state_we_do_not_know_is_not_serving() {
        let state = |word| serde_json::from_value::<MemberState>(json!(word)).unwrap();
        assert_eq!(state("serving"), MemberState::Serving);
        assert_eq!(state("draining"), MemberState::Draining);
        assert_eq!(state("joining"), MemberState::Draining);
    }
}
