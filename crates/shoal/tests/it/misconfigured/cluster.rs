//! Nodes that do not find, do not accept or do not match each other.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use shoal_net::clock;

use super::Process;
use crate::cluster::free_address;
use crate::commands::shoal;

const SECRET: &str = "a secret of this cluster";

/// A node that others find at `listen`, with more lines of configuration behind the section `[cooperation]`.
fn node(name: &str, listen: SocketAddr, seeds: &[String], secret: &str, more: &str) -> Process {
    Process::start(&format!(
        "[node]\nname = \"{name}\"\n[cooperation]\nmode = \"hierarchy\"\nlisten = \"{listen}\"\n\
         seeds = {seeds:?}\nsecret_key = \"{secret}\"\n{more}"
    ))
}

fn has(page: &Value, condition: &str, words: &str) -> bool {
    let conditions = page["conditions"].as_array().unwrap();
    conditions.iter().any(|held| {
        held["condition"] == condition
            && held["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains(words))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_another_secret_is_told_to_both_operators_by_its_address() {
    let [first, second] = [free_address(), free_address()];
    let n1 = node("n1", first, &[], SECRET, "");
    let n2 = node("n2", second, &[first.to_string()], "another secret, as long", "");
    let address = second.to_string();
    let told = n1.logs(&["WARN", "another cluster secret", &address]);
    assert!(
        told.contains("hint=\"write the same [cooperation] secret_key"),
        "{told}"
    );
    assert!(
        has(&n1.page("/status").await, "gossip-rejected", &address),
        "{}",
        n1.page("/status").await
    );
    let ready = n1.page("/readyz").await;
    assert!(
        has(&ready, "gossip-rejected", "another cluster secret"),
        "{ready}"
    );

    let status = shoal(&["status", "--node", &format!("http://{}", n1.addresses().1)]);
    let status = { status }.output().unwrap();
    let shown = String::from_utf8(status.stdout).unwrap();
    assert!(
        shown.contains(&format!(
            "n1: {address} is rejected: it was sent with another cluster secret"
        )),
        "{shown}"
    );
    n2.logs(&["WARN", "no seed has answered for 10 s; this node is alone"]);
    assert_eq!(n1.count("another cluster secret"), 1, "once a minute");
    n1.stop();
    n2.stop();
}

/// A datagram of a node whose clock shows another time: its proof is right.
fn datagram_sent_at(time: SystemTime) -> Vec<u8> {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let one_proof = [1];
    let head = [&b"shg2"[..], &seconds.to_le_bytes(), &one_proof].concat();
    let key = format!("shoal gossip {SECRET}");
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
    mac.update(&head);
    mac.update(b"gossip");
    [&head[..], &mac.finalize().into_bytes()[..16], b"gossip"].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_clock_is_wrong_is_told_apart_from_one_with_another_secret() {
    let listen = free_address();
    let n1 = node("n1", listen, &[], SECRET, "");
    n1.addresses();
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    let ahead = clock::utc_now() + Duration::from_mins(17) + Duration::from_secs(30);
    other.send_to(&datagram_sent_at(ahead), listen).unwrap();
    let address = other.local_addr().unwrap().to_string();
    let told = n1.logs(&["WARN", &address, "its clock is 17 min ahead of this node's"]);
    assert!(told.contains("hint=\"set the clocks"), "{told}");
    assert!(
        has(&n1.page("/status").await, "gossip-rejected", "17 min ahead"),
        "{}",
        n1.page("/status").await
    );
    assert_eq!(n1.count("another cluster secret"), 0);
    n1.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_that_does_not_answer_is_told_and_when_it_does() {
    let [first, second] = [free_address(), free_address()];
    let n2 = node("n2", second, &[first.to_string()], SECRET, "");
    let told = n2.logs(&["WARN", "no seed has answered for 10 s; this node is alone"]);
    assert!(told.contains(&first.to_string()), "{told}");
    let ready = n2.page("/readyz").await;
    assert!(has(&ready, "alone", &first.to_string()), "{ready}");
    let n1 = node("n1", first, &[], SECRET, "");
    n2.logs(&["INFO", "this node is no longer alone"]);
    let ready = n2.page("/readyz").await;
    assert!(!has(&ready, "alone", ""), "{ready}");
    n1.stop();
    n2.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_without_an_address_is_told_once_and_not_twice_a_second() {
    let seeds = ["no-such-host.invalid:9200".to_owned()];
    let n1 = node("n1", free_address(), &seeds, SECRET, "");
    n1.logs(&["WARN", "a seed has no address", "no-such-host.invalid:9200"]);
    n1.logs(&["no seed has answered for 10 s"]);
    assert_eq!(n1.count("a seed has no address"), 1);
    let ready = n1.page("/readyz").await;
    assert!(has(&ready, "seed-unknown", "no-such-host.invalid"), "{ready}");
    n1.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_configured_differently_name_each_other_and_the_part() {
    let [first, second] = [free_address(), free_address()];
    let identity = |secret: &str| format!("[[identity]]\naccess_key = \"A\"\nsecret_key = \"{secret}\"\n");
    let n1 = node("n1", first, &[], SECRET, &identity("one"));
    let more = format!("{}[store]\nblock_size = \"1MiB\"\n", identity("two"));
    let n2 = node("n2", second, &[first.to_string()], SECRET, &more);
    for (node, other) in [(&n1, "n2"), (&n2, "n1")] {
        let told = node.logs(&["ERROR", "another node is configured differently"]);
        assert!(
            told.contains(&format!("node=\"{other}\""))
                && told.contains("differs=\"[store] block_size, [[identity]]\""),
            "{told}"
        );
        assert!(
            !told.contains("one") || !told.contains("two"),
            "no secret: {told}"
        );
    }
    let members = n1.page("/members").await;
    let differs = members["members"]
        .as_array()
        .unwrap()
        .iter()
        .find(|member| member["name"] == "n2")
        .map(|member| member["differs"].clone());
    assert_eq!(differs, Some(serde_json::json!(["block-size", "identities"])));
    let status = n1.page("/status").await;
    assert!(has(&status, "configured-differently", "n2"), "{status}");
    n1.stop();
    n2.stop();
}
