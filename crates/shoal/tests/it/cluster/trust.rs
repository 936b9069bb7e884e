//! What nodes believe of each other: nothing without proof.

use std::net::SocketAddr;
use std::time::Duration;

use shoal::channel::Mistrust;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Cluster;
use super::wire::Way;

#[tokio::test]
async fn no_byte_that_was_altered_between_nodes_is_kept_or_served() {
    let cluster = Cluster::start(3).await;
    let bytes = cluster.put("k", 24);
    cluster.read(1, "k", &bytes).await;
    cluster.settle().await;
    cluster.ways.iter().for_each(|way| way.alters_answers(true));
    for node in [0, 2, 0] {
        cluster.read(node, "k", &bytes).await;
        cluster.settle().await;
    }
    let altered: u64 = cluster.ways.iter().map(Way::altered).sum();
    assert!(altered > 0, "the story has to alter something");
    assert!(mistrusted(&cluster).await > 0, "it is counted");
    cluster.ways.iter().for_each(|way| way.alters_answers(false));
    for node in 0..3 {
        cluster.read(node, "k", &bytes).await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn what_one_node_asked_is_not_answered_when_a_stranger_asks_it_again() {
    let cluster = Cluster::start(3).await;
    let bytes = cluster.put("k", 12);
    cluster.read(0, "k", &bytes).await;
    cluster.read(0, "k", &bytes).await;
    cluster.settle().await;
    let mut replayed = 0;
    for way in &cluster.ways {
        for recording in way.recorded() {
            assert!(!recording.answered.is_empty(), "it was answered the first time");
            for other in &cluster.ways {
                let answer = says(other.address(), &recording.asked).await;
                let is_answered = String::from_utf8_lossy(&answer).contains("200 OK")
                    || answer.len() as u64 >= crate::node::BLOCK;
                assert!(!is_answered, "{} bytes in answer", answer.len());
                replayed += 1;
            }
        }
    }
    assert!(replayed > 0, "the story has to replay something");
    cluster.stop().await;
}

#[tokio::test]
async fn the_peer_port_says_nothing_to_a_stranger() {
    let cluster = Cluster::start(2).await;
    let bytes = cluster.put("k", 1);
    cluster.read(0, "k", &bytes).await;
    for target in ["/alive", "/b/k", "/blocks/00/0?ask=&part=0-1", "/dirty/find"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: n0\r\n\r\n");
        let answer = says(cluster.ways[0].address(), request.as_bytes()).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.contains("HTTP"), "{target}: {answer}");
    }
    let refused = r#"shoal_peer_mistrusted_total{reason="not-tls"}"#;
    assert_eq!(cluster.metric(0, refused).await, 4);
    cluster.stop().await;
}

/// How many connections all nodes together have not believed.
async fn mistrusted(cluster: &Cluster) -> u64 {
    let mut sum = 0;
    for node in 0..cluster.nodes.len() {
        for reason in Mistrust::ALL.map(Mistrust::as_str) {
            let metric = format!("shoal_peer_mistrusted_total{{reason=\"{reason}\"}}");
            sum += cluster.metric(node, &metric).await;
        }
    }
    sum
}

/// Says something to a port, and gives what comes back within a moment.
async fn says(port: SocketAddr, words: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(port).await.unwrap();
    let mut answer = Vec::new();
    let speaking = async {
        // A node that hangs up has answered.
        let _ = stream.write_all(words).await;
        let _ = stream.read_to_end(&mut answer).await;
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), speaking).await;
    answer
}
