//! Node to node: blocks asked of other nodes, and given to them.
//!
//! A peer is called as the lake is ([`crate::endpoint`]) and lets callers in as the front does ([`crate::front::auth`]), with one identity:
//! whoever knows the cluster's secret. The signature binds method, path, query (which holds everything there is to say) and time.
//! Users' keys stay where they are: a peer is told *who* asks, and signs for the lake with what its own configuration knows of them.
//!
//! A node that asks has let its client in already, and the lake has said yes to that client; the peer gives bytes of one immutable
//! version. So nothing is decided here but where bytes come from.

mod client;
mod health;
mod request;
mod server;

pub use self::client::{Peer, PeerError, Peers};
pub use self::request::{Asked, BlockRequest, CallerName};
pub use self::server::{Host, Outcome};

use std::sync::Arc;

use crate::identity::{Account, Identities, Identity};
use crate::secret::Secret;

/// What nodes call themselves when they sign.
const ACCESS_KEY: &str = "shoal-node";

/// The region of signatures between nodes.
const REGION: &str = "cluster";

/// Where a node answers, and does nothing else.
const ALIVE: &str = "/alive";

/// What every node of the cluster signs with.
fn cluster_account(secret: Option<&Secret>) -> Arc<Account> {
    Arc::new(Account {
        access_key: ACCESS_KEY.into(),
        secret_key: secret.cloned().unwrap_or_else(|| Secret::new("")),
        session_token: None,
    })
}

/// The only one a node lets in on its peer port.
fn cluster_identity(secret: Option<&Secret>) -> Identities {
    Identities::new([Identity {
        index: 0,
        access_key: ACCESS_KEY.into(),
        secret_key: cluster_account(secret).secret_key.clone(),
        lake_account: None,
    }])
}
