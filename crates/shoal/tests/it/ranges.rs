//! Reading parts of objects: which bytes come back, and which of them are asked of the lake first.

use http::StatusCode;

use crate::client::Client;
use crate::lake::Fault;
use crate::node::{BLOCK, Node};
use crate::read::{cache, get, put};

#[tokio::test]
async fn ranges_are_the_same_cold_warm_and_at_the_lake() {
    let size = 6 * BLOCK + 100;
    let ranges = [
        "bytes=0-0",
        "bytes=0-99",
        "bytes=65535-65536",
        "bytes=100000-300000",
        "bytes=393215-",
        "bytes=393216-",
        "bytes=-1",
        "bytes=-100",
        "bytes=-70000",
        "bytes=-999999999",
        "bytes=10-99999999999",
        "bytes=393316-",
        "bytes=500000-600000",
        "bytes=-0",
        "bytes= 0-9",
        "bytes= -1",
        "bytes =0-9",
        "Bytes=0-9",
        "bytes=9223372036854775808-",
        "bytes=0-18446744073709551615",
    ];
    for range in ranges {
        let node = Node::start().await;
        put(&node, size);
        let direct = Client::signing(
            node.lake.address(),
            crate::lake::ACCESS_KEY,
            crate::lake::SECRET_KEY,
        );
        let expected = direct.get("/b/k").range(range).send().await;
        for turn in ["cold", "warm", "warmer"] {
            let reply = node.client().get("/b/k").range(range).send().await;
            assert_eq!(reply.status, expected.status, "{turn} {range}");
            if reply.status.is_success() {
                assert_eq!(
                    reply.header("content-range"),
                    expected.header("content-range"),
                    "{turn} {range}"
                );
                assert_eq!(reply.body, expected.body, "{turn} {range}");
            }
            node.settle().await;
        }
        node.stop().await;
    }
}

#[tokio::test]
async fn a_range_past_the_end_and_a_condition_that_fails_are_named_in_the_answer() {
    let node = Node::start().await;
    put(&node, 1000);
    for turn in ["cold", "warm"] {
        get(&node.client()).await;
        node.settle().await;
        let beyond = node.client().get("/b/k").range("bytes=1000-").send().await;
        assert_eq!(beyond.status, StatusCode::RANGE_NOT_SATISFIABLE, "{turn}");
        let details = "<RangeRequested>bytes=1000-</RangeRequested><ActualObjectSize>1000</ActualObjectSize>";
        assert!(beyond.text().contains(details), "{}", beyond.text());
        assert!(beyond.header("x-amz-id-2").is_some());
        for (condition, name, value) in [
            ("If-Match", "if-match", "\"other\""),
            (
                "If-Unmodified-Since",
                "if-unmodified-since",
                "Sun, 06 Nov 1994 08:49:37 GMT",
            ),
        ] {
            let failed = node.client().get("/b/k").header(name, value).send().await;
            assert_eq!(failed.status, StatusCode::PRECONDITION_FAILED, "{turn}");
            let detail = format!("<Condition>{condition}</Condition>");
            assert!(failed.text().contains(&detail), "{}", failed.text());
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn several_ranges_mean_the_whole_object() {
    let node = Node::start().await;
    let bytes = put(&node, 1000);
    let reply = node.client().get("/b/k").range("bytes=0-1,5-9").send().await;
    assert_eq!((reply.status, reply.body), (StatusCode::OK, bytes));
    node.stop().await;
}

#[tokio::test]
async fn a_range_fetches_only_the_blocks_it_touches() {
    let node = Node::start().await;
    put(&node, 100 * BLOCK);
    let start = 50 * BLOCK + 10;
    let range = format!("bytes={start}-{}", start + BLOCK - 1);
    node.client().get("/b/k").range(&range).send().await;
    node.settle().await;
    assert_eq!(node.lake.body_bytes_sent(), 2 * BLOCK);
    assert_eq!(
        node.lake.requests().len(),
        2,
        "from the first byte wanted on, then what completes its block"
    );
    node.stop().await;
}

#[tokio::test]
async fn the_bytes_wanted_come_before_those_that_complete_their_block() {
    let node = Node::start().await;
    let bytes = put(&node, 4 * BLOCK);
    let completing = node.lake.hold(|request| request.header("if-match").is_some());
    let ranged = node.client().get("/b/k").range("bytes=5000-70000").send().await;
    assert_eq!(
        ranged.body,
        bytes.slice(5000..=70000),
        "while the rest of its block waits"
    );
    completing.arrived(1).await;
    let whole = tokio::spawn({
        let client = node.client();
        async move { get(&client).await }
    });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    completing.open();
    assert_eq!(
        whole.await.unwrap().body,
        bytes,
        "who wants the start of the block waits for it"
    );
    node.settle().await;
    assert_eq!(node.lake.body_bytes_sent(), 4 * BLOCK, "and no byte comes twice");
    assert_eq!(
        cache(&get(&node.client()).await),
        "REVALIDATED",
        "all blocks are here"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_block_that_cannot_be_completed_is_fetched_by_each_reader() {
    let node = Node::start().await;
    let bytes = put(&node, 2 * BLOCK);
    let refused = Fault::status(403).when(|request| request.header("if-match").is_some());
    node.lake.misbehave(refused.times(1));
    let ranged = node.client().get("/b/k").range("bytes=5000-5999").send().await;
    assert_eq!(ranged.body, bytes.slice(5000..6000));
    node.settle().await;
    assert_eq!(get(&node.client()).await.body, bytes);
    node.stop().await;
}

#[tokio::test]
async fn a_suffix_of_an_unknown_object_costs_its_bytes_and_then_its_block() {
    let node = Node::start().await;
    let bytes = put(&node, 100 * BLOCK + 5000);
    let reply = node.client().get("/b/k").range("bytes=-8").send().await;
    assert_eq!(reply.body, bytes.slice(bytes.len() - 8..));
    assert_eq!(node.lake.requests()[0].header("range"), Some("bytes=-8"));
    node.settle().await;
    assert_eq!(node.lake.body_bytes_sent(), 5000, "the last block is short");
    let footer = node.client().get("/b/k").range("bytes=-4000").send().await;
    assert_eq!(cache(&footer), "REVALIDATED", "the last block is here");
    node.stop().await;
}
