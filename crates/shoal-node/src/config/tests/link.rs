//! The bandwidth of the link.

use super::Desk;

#[test]
fn a_bandwidth_that_contradicts_itself_is_refused() {
    let cases = [
        (
            "[lake]\nbandwidth = \"10Gbps\"",
            "shoal.toml:2: [lake] bandwidth cannot be \"10Gbps\" | write a rate as a whole number and kbit, Mbit, Gbit, KB, MB or GB a second, such as \"10Gbit\" or \"1250MB\"",
        ),
        (
            "[lake]\nbandwidth = \"0Gbit\"",
            "shoal.toml:2: [lake] bandwidth is nothing | write what the link carries, or leave it out: then nothing is metered",
        ),
        (
            "[lake]\nbandwidth = \"1Gbit\"\nbandwidth_scope = \"rack\"",
            "shoal.toml:3: [lake] bandwidth_scope cannot be \"rack\" | write \"node\" or \"cluster\"",
        ),
        (
            "[lake]\nbandwidth = \"1Gbit\"\nbandwidth_scope = \"cluster\"",
            "shoal.toml:3: [lake] bandwidth_scope is cluster, and this node knows no other: [cooperation] mode is solo | write [cooperation] mode, or bandwidth_scope = \"node\" and this node's part as bandwidth",
        ),
        (
            "[lake]\nbandwidth_scope = \"cluster\"\n[cooperation]\nmode = \"hierarchy\"",
            "shoal.toml:2: [lake] bandwidth_scope is cluster, and there is no bandwidth | write bandwidth, what the link of the whole cluster carries",
        ),
    ];
    for (file, expected) in cases {
        assert_eq!(Desk::new().file(file).problems(), [expected], "{file}");
    }
}
