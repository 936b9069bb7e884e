//! Which part failed, in the words that a client reads.

use http::StatusCode;

use crate::client::Reply;
use crate::cluster::free_address;
use crate::lake::{Fault, Request};
use crate::node::{BLOCK, Node, lake};
use crate::read::put;
use crate::tls;

fn says(reply: &Reply, status: StatusCode, code: &str, message: &str) {
    assert_eq!((reply.status, reply.code()), (status, code), "{}", reply.text());
    assert!(reply.text().contains(message), "{}", reply.text());
}

#[tokio::test]
async fn a_lake_without_a_listener_cannot_be_reached() {
    // The kernel gives this address to no other lake of these tests.
    let address = free_address();
    let lake = lake().await;
    let node = Node::in_front_of(&lake, |config| config.lake.endpoint = format!("http://{address}")).await;
    let client = node.client();
    for reply in [
        client.get("/b/k").send().await,
        client.put("/b/k", "x").send().await,
        client.get("/b?list-type=2").send().await,
    ] {
        says(
            &reply,
            StatusCode::BAD_GATEWAY,
            "BadGateway",
            "The lake cannot be reached.",
        );
        assert!(
            !reply.text().contains(&address.to_string()),
            "the address is the operator's"
        );
    }
    node.stop().await;
}

#[tokio::test]
async fn a_lake_that_hangs_up_broke_off() {
    let node = Node::start().await;
    put(&node, BLOCK);
    node.lake.misbehave(Fault::reset().always());
    for reply in [
        node.client().get("/b/k").send().await,
        node.client().delete("/b/k").send().await,
    ] {
        says(
            &reply,
            StatusCode::BAD_GATEWAY,
            "BadGateway",
            "The lake broke off",
        );
    }
    node.stop().await;
}

#[tokio::test]
async fn plain_http_to_a_lake_that_speaks_tls_is_named() {
    let lake = lake().await;
    let address = tls::in_front_of(lake.address()).await;
    let node = Node::in_front_of(&lake, |config| config.lake.endpoint = format!("http://{address}")).await;
    let reply = node.client().get("/b/k").send().await;
    says(
        &reply,
        StatusCode::BAD_GATEWAY,
        "BadGateway",
        "perhaps it expects TLS",
    );
    assert_eq!(lake.count(Request::is_get), 0);
    node.stop().await;
}
