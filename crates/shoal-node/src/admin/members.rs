//! The page `/members`: the living nodes, as one node sees them. Polled by name servers and other tools.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use shoal_base::words;

/// One node's view of the living nodes, itself included.
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
    /// Its topology, outermost first.
    pub topology: String,
    /// Address for S3 clients; the IP address may be unspecified (0.0.0.0), the port never is.
    pub s3: SocketAddr,
    /// Address for other nodes.
    pub peer: Option<SocketAddr>,
    /// Address for operators.
    pub admin: SocketAddr,
    /// State of the node.
    pub state: MemberState,
    /// Requests in flight divided by the limit, 0 to 1; known only for the node that answers.
    pub load: Option<f64>,
    /// Settings in which it differs from the node that answers; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<Vec<String>>,
}

words! {
    /// State of a living node.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum MemberState {
        /// Clients should be sent to it.
        Serving = "serving",
        /// Clients should be sent elsewhere; the node finishes its requests and leaves. An unknown word, such
        /// as one of a later release, means the same.
        #[serde(other)]
        Draining = "draining",
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
