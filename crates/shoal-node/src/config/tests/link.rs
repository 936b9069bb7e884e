//! The bandwidth of the link.

use super::Desk;
use crate::config::BandwidthScope;
use crate::config::value::Value;

#[test]
fn a_bandwidth_that_contradicts_itself_is_refused() {
    let cases = [
        (
            "[lake]\nbandwidth = \"10Gbps\"",
            "shoal.toml:2: [lake] bandwidth cannot be \"10Gbps\" | write a rate as a whole number and kbit, Mbit, Gbit, KB, MB or GB a second, such as \"10Gbit\" or \"1250MB\"; with shared behind it for what all nodes have together",
        ),
        (
            "[lake]\nbandwidth = \"0Gbit\"",
            "shoal.toml:2: [lake] bandwidth is nothing | write what the link carries, or leave it out: then nothing is metered",
        ),
        (
            "[lake]\nbandwidth = \"1Gbit rack\"",
            "shoal.toml:2: [lake] bandwidth cannot be \"1Gbit rack\" | write a rate as a whole number and kbit, Mbit, Gbit, KB, MB or GB a second, such as \"10Gbit\" or \"1250MB\"; with shared behind it for what all nodes have together",
        ),
        (
            "[lake]\nbandwidth = \"1Gbit shared\"",
            "shoal.toml:2: [lake] bandwidth is shared, and this node knows no other: [cooperation] mode is solo | write [cooperation] mode, or this node's part without \"shared\"",
        ),
    ];
    for (file, expected) in cases {
        assert_eq!(Desk::new().file(file).problems(), [expected], "{file}");
    }
}

#[test]
fn a_bandwidth_is_of_each_node_or_shared() {
    for (written, scope) in [
        ("1Gbit", BandwidthScope::Node),
        ("1Gbit shared", BandwidthScope::Cluster),
    ] {
        let file = format!("[lake]\nbandwidth = \"{written}\"\n[cooperation]\nmode = \"hierarchy\"");
        let config = Desk::new().file(&file).config();
        let bandwidth = config.lake.bandwidth.unwrap();
        assert_eq!(
            (bandwidth.bytes_per_second, bandwidth.scope),
            (125_000_000, scope)
        );
        assert_eq!(bandwidth.to_toml().unwrap().as_str(), Some(written));
    }
}
