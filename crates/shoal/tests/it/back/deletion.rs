//! Bulk deletions: exactly the objects that the client named are removed.

use bytes::Bytes;
use http::StatusCode;

use super::cluster::cluster;
use super::{back, bytes, flush, reads, texts, write_back};
use crate::chunks::Checksum;
use crate::client::Payload;
use crate::lake::{Access, Fault, Request};
use crate::node::{Node, OTHER_KEY};

fn is_deletion(request: &Request) -> bool {
    request.query == "delete"
}

fn wide(text: &str) -> Bytes {
    let units = std::iter::once('\u{feff}').chain(text.chars());
    let units = units.flat_map(|character| (character as u16).to_le_bytes());
    units.collect::<Vec<u8>>().into()
}

#[tokio::test]
async fn text_that_is_no_key_of_a_list_removes_nothing() {
    let node = Node::start_with(back).await;
    node.lake.deny(OTHER_KEY, Access::Write, "b/tmp/alice");
    write_back(&node.client(), "tmp/alice", &bytes(1)).await;
    let (alice, own) = (
        "<Object><Key>tmp/alice</Key></Object>",
        "<Object><Key>tmp/own</Key></Object>",
    );
    let lists = [
        format!("<!-- {alice} -->{own}"),
        format!("{own}<![CDATA[{alice}]]>"),
        format!("<?p {alice}?>{own}"),
        "<Object><Key>tmp/alice</Key><Key>tmp/own</Key></Object>".into(),
        "<Object><Key>tmp/own</Key><Name><Key>tmp/alice</Key></Name></Object>".into(),
        "<Object><Key><![CDATA[tmp/own</Key></Object><Object><Key>tmp/alice]]></Key></Object>".into(),
        "<Object x=\"<Key>tmp/alice</Key>\"><Key>tmp/own</Key></Object>".into(),
        format!("<Objects>{alice}</Objects>{own}"),
        format!("<x:Object xmlns:x='http://example.org/'><x:Key>tmp/alice</x:Key></x:Object>{own}"),
        format!("{alice}{own}"),
    ];
    let documents = lists
        .iter()
        .map(|list| Bytes::from(format!("<Delete>{list}</Delete>")));
    let others = [
        Bytes::from(format!(
            "<!DOCTYPE Delete [<!ENTITY e '{alice}'>]><Delete>{own}&e;</Delete>"
        )),
        Bytes::from(format!("<Delete>{own}</Delete>{alice}")),
        wide(&format!("<Delete>{alice}</Delete>")),
    ];
    for document in documents.chain(others) {
        for client in [node.other(), node.stranger()] {
            let reply = client.post("/b?delete", document.clone()).send().await;
            let is_refused = (reply.status, reply.code()) == (StatusCode::BAD_REQUEST, "MalformedXML");
            assert!(is_refused || reply.status == StatusCode::OK, "{reply:?}");
            assert!(
                !texts(&reply, "Deleted").concat().contains("<Key>tmp/alice<"),
                "{reply:?}"
            );
            assert_eq!(node.status().await["write_back"]["objects"], 1, "{document:?}");
        }
    }
    reads(&node.client(), "tmp/alice", &bytes(1)).await;
    let flushed = flush(&node, "").await["flush"]["flushed"].clone();
    assert_eq!(flushed, 2, "it is not held, nor is the tombstone of tmp/own");
    node.stop().await;
}

#[tokio::test]
async fn an_acknowledged_deletion_removes_the_object_for_good_in_every_spelling() {
    let node = Node::start_with(back).await;
    let of = "http://s3.amazonaws.com/doc/2006-03-01/";
    let documents = [
        "<Delete><Object><Key>tmp/k&amp;</Key></Object></Delete>".to_owned(),
        "<Delete><Object><Key><![CDATA[tmp/k&]]></Key></Object></Delete>".into(),
        "<Delete><Object ><Key >tmp/k&#38;</Key ></Object ></Delete >".into(),
        "<Delete><Object a=\"b\"><Key xml:space='preserve'>tmp/&#x6b;&amp;</Key></Object></Delete>".into(),
        "<!-- --><Delete><Object><!-- --><Key>tmp<!-- -->/k&amp;<?p?></Key></Object></Delete><!-- -->".into(),
        format!("<s:Delete xmlns:s='{of}'><s:Object><s:Key>tmp/k&amp;</s:Key></s:Object></s:Delete>"),
        format!(
            "\u{feff}<?xml version='1.0' encoding='utf-8'?>\r\n<Delete xmlns=\"{of}\">\r\n\t<Object>\r\n<Key>tmp/k&amp;</Key>\n</Object></Delete>\n"
        ),
        "<Delete><Object><Key>tmp/k&amp;</Key><VersionId>null</VersionId></Object></Delete>".into(),
        "<Delete><Object><VersionId/><Key>tmp/k&amp;</Key></Object></Delete>".into(),
        "<Delete><Quiet>true</Quiet><Object><Key>tmp/k&amp;</Key></Object></Delete>".into(),
        "<Delete><Object><Key>tmp/k&amp;</Key></Object><Object><Key>tmp/k&amp;</Key></Object></Delete>"
            .into(),
    ];
    let payloads = [
        Payload::Hashed,
        Payload::Unsigned,
        Payload::SignedChunks(8192, Some(Checksum::Crc32)),
        Payload::UnsignedTrailer(8192, Checksum::Crc32),
    ];
    for (document, payload) in documents.iter().zip(payloads.into_iter().cycle()) {
        write_back(&node.client(), "tmp/k%26", &bytes(1)).await;
        let call = node.client().post("/b?delete", document.clone()).payload(payload);
        let reply = call.header("x-amz-sdk-checksum-algorithm", "CRC32").send().await;
        assert_eq!(reply.status, StatusCode::OK, "{document}: {}", reply.text());
        let deleted = texts(&reply, "Deleted");
        assert_eq!(
            deleted.is_empty(),
            document.contains("Quiet"),
            "{document}: {}",
            reply.text()
        );
        assert!(
            deleted
                .iter()
                .all(|deleted| deleted.contains("<Key>tmp/k&amp;</Key>")),
            "{deleted:?}"
        );
        let read = node.client().get("/b/tmp/k%26").send().await;
        assert_eq!(read.status, StatusCode::NOT_FOUND, "{document}");
        assert_eq!(flush(&node, "").await["objects"], 0, "{document}");
        assert!(node.lake.object("b", "tmp/k&").is_none(), "{document}");
    }
    node.stop().await;
}

#[tokio::test]
async fn more_keys_than_s3_takes_are_refused_before_another_node_or_the_lake_is_asked() {
    let cluster = cluster(2).await;
    let many = |number: usize| {
        let keys: Vec<_> = (0..number)
            .map(|number| format!("<Object><Key>tmp/{number}</Key></Object>"))
            .collect();
        format!("<Delete>{}</Delete>", keys.concat())
    };
    let asked = async || {
        let mut asked = 0;
        for node in &cluster.nodes {
            let peers = node.status().await["cooperation"]["peers"].clone();
            let peers = peers.as_array().unwrap().clone();
            asked += peers
                .iter()
                .map(|peer| peer["asked"].as_u64().unwrap())
                .sum::<u64>();
        }
        asked
    };
    let mut asks_no_node = false;
    // Nodes poll each other once a second in any case. If a refusal asked a node, it would do so each time.
    for _ in 0..20 {
        let before = asked().await;
        for client in [cluster.nodes[0].client(), cluster.nodes[0].stranger()] {
            let refused = client.post("/b?delete", many(1_001)).send().await;
            assert_eq!(
                (refused.status, refused.code()),
                (StatusCode::BAD_REQUEST, "MalformedXML")
            );
            let long = format!("<Delete>{}</Delete>", " ".repeat(2 << 20));
            let refused = client.post("/b?delete", long).send().await;
            assert_eq!(
                (refused.status, refused.code()),
                (StatusCode::BAD_REQUEST, "EntityTooLarge")
            );
        }
        asks_no_node = asked().await == before;
        if asks_no_node {
            break;
        }
    }
    assert!(asks_no_node && cluster.lake.count(is_deletion) == 0);
    let taken = cluster.nodes[0]
        .client()
        .post("/b?delete", many(1_000))
        .send()
        .await;
    assert_eq!(texts(&taken, "Deleted").len(), 1_000);
    assert_eq!(
        cluster.lake.count(is_deletion),
        1,
        "where nothing is dirty the lake is asked once"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn only_what_the_lake_lists_as_deleted_is_removed() {
    let node = Node::start_with(back).await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    let body = "<Delete><Object><Key>tmp/k</Key></Object></Delete>";
    let ok = |xml: &str| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{xml}",
            xml.len()
        )
    };
    for (answer, status, told) in [
        (
            "<Error><Code>InternalError</Code></Error>",
            200,
            "<Code>InternalError</Code>",
        ),
        ("<DeleteResult/>", 200, "<Code>InternalError</Code>"),
        (
            "<DeleteResult><Deleted><Key>tmp/j</Key></Deleted></DeleteResult>",
            200,
            "<Code>InternalError</Code>",
        ),
        (
            "<DeleteResult><Deleted><Key>tmp/k</Key><VersionId>1</VersionId></Deleted></DeleteResult>",
            200,
            "<Code>InternalError</Code>",
        ),
        (
            "<DeleteResult><Error><Key>tmp/k</Key><Code>AccessDenied</Code></Error></DeleteResult>",
            200,
            "<Code>AccessDenied</Code>",
        ),
        (
            "<DeleteResult><!--<Deleted><Key>tmp/k</Key></Deleted>--></DeleteResult>",
            200,
            "<Code>InternalError</Code>",
        ),
        (
            "<DeleteResult><Deleted><Key>tmp/k</Key></Deleted>",
            502,
            "<Code>BadGateway</Code>",
        ),
    ] {
        node.lake.misbehave(Fault::raw(ok(answer)).when(is_deletion));
        let reply = node.client().post("/b?delete", body).send().await;
        assert_eq!(reply.status, status, "{answer}: {}", reply.text());
        assert!(reply.text().contains(told), "{answer}: {}", reply.text());
        reads(&node.client(), "tmp/k", &bytes(1)).await;
    }
    assert_eq!(flush(&node, "").await["flush"]["flushed"], 1, "it is not held");
    node.stop().await;
}
