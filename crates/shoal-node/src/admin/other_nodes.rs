//! Pages of other nodes, `/nodes/NAME/PAGE`: this node fetches them over the channel on which both nodes have
//! authenticated each other.
//!
//! An operator sends a token only to the node at the address that the operator typed. Addresses learned by
//! gossip are as trustworthy as the least trusted node, so no token is sent there.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use percent_encoding::percent_decode_str;
use shoal_cache::cooperation::Cooperation;
use shoal_cache::peer::{PAGE_BYTES_MAX, PAGES};
use shoal_net::http::pages::{Page, page, text};
use shoal_net::metrics;

use super::task_pages::message_page;

/// Path prefix of other nodes' pages.
const NODES: &str = "/nodes/";

/// Time limit for the other node's answer. The operator's client waits one second.
const PATIENCE: Duration = Duration::from_millis(800);

/// Time after which the other node counts as unresponsive. A slow page must not affect requests for blocks.
const SILENCE: Duration = Duration::from_secs(10);

/// A page of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherPage {
    /// The name of the node.
    pub node: String,
    /// Path of the page on that node.
    path: String,
}

impl OtherPage {
    /// Parses the path of another node's page.
    pub fn at(path: &str) -> Option<Self> {
        let (node, page) = path.strip_prefix(NODES)?.split_once('/')?;
        let node = percent_decode_str(node).decode_utf8().ok()?.into_owned();
        matches!(page, "status" | "metrics" | "explain" | "runs" | "history").then(|| Self {
            node,
            path: format!("/{page}"),
        })
    }

    /// Fetches the page.
    pub async fn get(self, cooperation: &Cooperation, query: Option<&str>) -> Page {
        let members = cooperation.members();
        let member = members.iter().find(|member| member.name == self.node);
        let Some(peer) = member.and_then(|member| cooperation.peer(member.id())) else {
            return text(
                StatusCode::NOT_FOUND,
                "this node knows no other node of that name; /members names those that it knows\n",
            );
        };
        let name = self.node;
        let asked = match query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        };
        let asking = async move { ask(&peer, asked).await };
        // A slow request continues in the background, because being slow does not count as a failure of the
        // node.
        let answer = tokio::time::timeout(PATIENCE, tokio::spawn(asking)).await;
        let why = match answer {
            Ok(Ok(Ok(body))) => {
                let media = match &*self.path {
                    "/metrics" => metrics::CONTENT_TYPE,
                    "/runs" => "application/x-ndjson",
                    _ => "application/json",
                };
                return page(StatusCode::OK, media, body);
            }
            Ok(Ok(Err(why))) => why,
            Ok(Err(_)) | Err(_) => format!("{name} did not answer within {} ms", PATIENCE.as_millis()),
        };
        message_page(StatusCode::BAD_GATEWAY, &why)
    }
}

async fn ask(peer: &Arc<shoal_cache::peer::Peer>, asked: String) -> Result<String, String> {
    let answer = peer.ask(PAGES, asked.into_bytes(), PAGE_BYTES_MAX, SILENCE).await;
    let answer = answer.map_err(|error| error.to_string())?;
    String::from_utf8(answer.into()).map_err(|_| format!("{} sent a page that is no text", peer.name))
}

#[cfg(test)]
mod tests {
    use super::OtherPage;

    #[test]
    fn pages_of_other_nodes_are_found_by_their_paths() {
        let of = |node: &str, page: &str| {
            Some(OtherPage {
                node: node.into(),
                path: page.into(),
            })
        };
        assert_eq!(OtherPage::at("/nodes/n1/status"), of("n1", "/status"));
        assert_eq!(OtherPage::at("/nodes/a%2Fb/explain"), of("a/b", "/explain"));
        for path in [
            "/nodes",
            "/nodes/n1",
            "/nodes/n1/",
            "/nodes/n1/drain",
            "/nodes/n1/status/",
            "/status",
        ] {
            assert_eq!(OtherPage::at(path), None, "{path}");
        }
    }
}
