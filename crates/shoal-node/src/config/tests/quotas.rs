//! `[[quota]]`.

use super::Desk;
use crate::config::{QuotaConfig, QuotaScope, QuotaSize};

const IDENTITY: &str = "[[identity]]\naccess_key = \"AK\"\nsecret_key = \"secret\"\n";

fn desk(quotas: &str) -> Desk {
    Desk::new().file(&format!("{quotas}\n{IDENTITY}"))
}

#[test]
fn a_quota_is_of_an_identity_or_of_a_prefix_and_of_room_or_of_bandwidth() {
    let config = desk(
        "[[quota]]\nidentity = \"AK\"\nroom = \"20%\"\n\
         [[quota]]\nprefix = \"s3://b/x/\"\nroom = \"1GiB\"\nbandwidth = \"1Gbit\"\n\
         [[quota]]\nidentity = \"anonymous\"\nbandwidth = \"100Mbit\"",
    )
    .config();
    let [identity, prefix, anonymous] = &config.quotas[..] else {
        panic!("{:?}", config.quotas);
    };
    let expected = QuotaConfig {
        scope: QuotaScope::Identity("AK".into()),
        room: Some(QuotaSize::Percent(20)),
        bandwidth: None,
    };
    assert_eq!(*identity, expected);
    assert_eq!(prefix.scope, QuotaScope::Prefix("s3://b/x/".into()));
    assert_eq!(prefix.room, Some(QuotaSize::Bytes(1 << 30)));
    assert_eq!(prefix.bandwidth.unwrap().bytes_per_second, 125_000_000);
    assert_eq!(anonymous.room, None);
    // What `--check` shows reads back.
    let shown = config.to_toml(crate::config::Role::Node);
    for line in [
        "[[quota]]\nidentity = \"AK\"\nroom = \"20%\"\n",
        "bandwidth = \"1Gbit\"\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
}

#[test]
fn a_quota_that_cannot_be_meant_is_refused_with_what_to_do() {
    for (quota, problem) in [
        (
            "room = \"20%\"",
            "shoal.toml:1: [[quota]] has neither an identity nor a prefix | add a line: identity = \"AK\", or prefix = \"s3://bucket/prefix/\"",
        ),
        (
            "identity = \"AK\"\nprefix = \"s3://b/\"\nroom = \"20%\"",
            "shoal.toml:3: [[quota]] has both an identity and a prefix | keep one of the two, and write another [[quota]] for the other",
        ),
        (
            "identity = \"AK\"",
            "shoal.toml:1: [[quota]] has neither room nor bandwidth | add a line: room = \"20%\", or bandwidth = \"1Gbit\"",
        ),
        (
            "identity = \"AX\"\nroom = \"20%\"",
            "shoal.toml:2: [[quota]] identity is \"AX\", which is the access_key of no [[identity]] | add its [[identity]], or leave it out",
        ),
        (
            "prefix = \"b/x\"\nroom = \"20%\"",
            "shoal.toml:2: [[quota]] prefix cannot be \"b/x\": it does not begin with s3:// | write s3://bucket/prefix/",
        ),
        (
            "identity = \"AK\"\nroom = \"0%\"",
            "shoal.toml:3: [[quota]] room is nothing | write a size such as \"100GiB\" or a part such as \"20%\", or leave it out: then the room is not limited",
        ),
        (
            "identity = \"AK\"\nroom = \"7MiB\"",
            "shoal.toml:3: [[quota]] room is less than 2 blocks of [store] block_size | write more, or lower [store] block_size: nothing would be cached",
        ),
        (
            "identity = \"AK\"\nroom = \"101%\"",
            "shoal.toml:3: [[quota]] room is more than [store] capacity | write less, or leave it out: then the room is not limited",
        ),
        (
            "identity = \"AK\"\nroom = \"20\"",
            "shoal.toml:3: [[quota]] room cannot be \"20\" | write a size such as \"100GiB\", or a part of [store] capacity such as \"20%\"",
        ),
        (
            "identity = \"AK\"\nbandwidth = \"0Mbit\"",
            "shoal.toml:3: [[quota]] bandwidth is nothing | write a rate such as \"1Gbit\", or leave it out: then the rate is not limited",
        ),
        (
            "identity = \"AK\"\nbandwidth = \"1Gbit shared\"",
            "shoal.toml:3: [[quota]] bandwidth cannot be shared | write the rate of each node, without \"shared\": each node counts what it reads from the lake itself",
        ),
        (
            "identity = \"AK\"\nroom = \"20%\"\n[[quota]]\nidentity = \"AK\"\nroom = \"30%\"",
            "shoal.toml:5: [[quota]] identity \"AK\" is written twice | the first stands at shoal.toml:2",
        ),
        (
            "prefix = \"s3://b/x/\"\nroom = \"20%\"\n[[quota]]\nprefix = \"s3://b/x/\"\nroom = \"30%\"",
            "shoal.toml:5: [[quota]] prefix \"s3://b/x/\" is written twice | the first stands at shoal.toml:2",
        ),
    ] {
        let problems = desk(&format!("[[quota]]\n{quota}")).problems();
        let problems: Vec<_> = problems
            .iter()
            .map(|problem| problem.replace("at /", "at "))
            .collect();
        assert_eq!(problems.len(), 1, "{quota}: {problems:#?}");
        assert_eq!(problems[0], problem, "{quota}");
    }
}

#[test]
fn a_role_and_any_key_of_a_service_may_have_a_quota() {
    let role = "[[quota]]\nidentity = \"arn:aws:iam::1:role/r\"\nroom = \"20%\"";
    assert_eq!(
        desk(role).problems().len(),
        1,
        "no client can have keys of the role"
    );
    let secret = "[cooperation]\nsecret_key = \"a long enough secret of a cluster\"";
    let sts = format!("{role}\n[sts]\nroles = [\"*\"]\n{secret}");
    assert_eq!(desk(&sts).config().quotas.len(), 1);
    let service = "[[quota]]\nidentity = \"AX\"\nroom = \"20%\"\n\
                   [[key_source]]\nkind = \"http\"\nurl = \"https://keys:8443/v1\"";
    assert_eq!(desk(service).config().quotas.len(), 1);
}

#[test]
fn a_rate_of_less_than_a_block_a_second_is_warned_of() {
    let slow = desk("[[quota]]\nidentity = \"AK\"\nbandwidth = \"10Mbit\"").warnings();
    let warning = "shoal.toml:3: bandwidth of a [[quota]] is less than one block a second";
    assert!(slow.iter().any(|found| found.starts_with(warning)), "{slow:#?}");
    let quick = desk("[[quota]]\nidentity = \"AK\"\nbandwidth = \"1Gbit\"").warnings();
    assert!(
        !quick.iter().any(|found| found.contains("[[quota]]")),
        "{quick:#?}"
    );
}
