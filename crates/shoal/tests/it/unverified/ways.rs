//! How a node is reached: as a forward proxy, and by the name of the lake.

use http::StatusCode;
use http::header::{HOST, VIA};
use shoal_node::config::{Anonymous, Config};

use super::{guest, lake_of_guest, node, open, stored, with_account};
use crate::client::{Call, raw};
use crate::cluster::free_address;
use crate::gate::refused;
use crate::node::Node;

/// Sends a request to the node as a forward proxy.
async fn by_proxy(node: &Node, call: Call, host: &str) -> String {
    let host = host.to_owned();
    let request = call.header("host", &host).into_request();
    let target = request.uri().path_and_query().unwrap().as_str();
    let mut text = format!(
        "{} http://{host}{target} HTTP/1.1\r\nconnection: close\r\n",
        request.method()
    );
    for (name, value) in request.headers() {
        text.extend([name.as_str(), ": ", value.to_str().unwrap(), "\r\n"]);
    }
    text.push_str("\r\n");
    String::from_utf8(raw(node.address(), text).await).unwrap()
}

#[tokio::test]
async fn a_node_is_a_forward_proxy_of_its_lake_only() {
    let lake = lake_of_guest().await;
    let port = lake.address().port();
    let node = Node::in_front_of(&lake, |config| {
        open(config);
        config.lake.endpoint = format!("http://localhost:{port}");
    })
    .await;
    lake.put("b", "k", "bytes");
    let host = format!("localhost:{port}");
    for client in [guest(&node), node.client()] {
        let answer = by_proxy(&node, client.get("/b/k"), &host).await;
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("bytes"),
            "{answer}"
        );
    }
    assert_eq!(lake.last_request().header("host"), Some(host.as_str()));

    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other = elsewhere.local_addr().unwrap().to_string();
    lake.forget_requests();
    for client in [guest(&node), node.stranger()] {
        let answer = by_proxy(&node, client.get("/b/k"), &other).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(answer.contains("a proxy of its lake only: localhost"), "{answer}");
    }
    let connect = format!("CONNECT {other} HTTP/1.1\r\nhost: {other}\r\n\r\n");
    let answer = String::from_utf8(raw(node.address(), connect).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    elsewhere.set_nonblocking(true).unwrap();
    assert!(elsewhere.accept().is_err() && lake.requests().is_empty());
}

#[tokio::test]
async fn the_name_of_the_lake_may_name_the_bucket() {
    let lake = lake_of_guest().await;
    let port = lake.address().port();
    let node = Node::in_front_of(&lake, |config| {
        with_account(config);
        config.lake.endpoint = format!("http://localhost:{port}");
    })
    .await;
    lake.put("b", "k", "bytes");
    assert_eq!(guest(&node).get("/b/k").send().await.text(), "bytes");
    stored(&node, 1).await;
    lake.forget_requests();
    let call = guest(&node)
        .get("/k")
        .header("host", format!("b.localhost:{port}"));
    call.send().await;
    // The node knows that this is the cached object, and leaves its name to the lake.
    let seen = lake.last_request();
    assert_eq!(
        (seen.path.as_str(), seen.header("if-none-match").is_some()),
        ("/k", true)
    );
    assert_eq!(seen.header("host"), Some(format!("b.localhost:{port}").as_str()));
}

#[tokio::test]
async fn a_name_that_leads_back_to_the_node_ends_in_an_error() {
    let lake = lake_of_guest().await;
    let (one, two) = (free_address(), free_address());
    let start = |listen, behind| {
        Node::in_front_of(&lake, move |config: &mut Config| {
            open(config);
            config.identities = Vec::new();
            config.s3.anonymous = Anonymous::Refuse;
            config.s3.listen = listen;
            config.lake.endpoint = format!("http://{behind}");
        })
    };
    let (first, _second) = (start(one, two).await, start(two, one).await);
    let reply = guest(&first).get("/b/k").send().await;
    refused(&reply, StatusCode::BAD_GATEWAY, "BadGateway");
    assert!(
        reply.text().contains("leads back to this node"),
        "{}",
        reply.text()
    );
}

#[tokio::test]
async fn the_lake_learns_by_which_node_a_request_came_unless_the_client_has_signed_that() {
    let node = node(open).await;
    node.lake.put("b", "k", "bytes");
    assert_eq!(guest(&node).get("/b/k").send().await.text(), "bytes");
    let seen = node.lake.last_request();
    assert!(seen.header("via").unwrap().starts_with("1.1 shoal-"));
    let reply = guest(&node).get("/b/k").header("via", "1.1 mine").send().await;
    assert_eq!(reply.text(), "bytes");
    let seen = node.lake.last_request();
    assert_eq!(seen.headers.get_all(VIA).iter().count(), 1);
    assert!(seen.headers.contains_key(HOST));
}
