//! Checks of `[[quota]]`.

use shoal_s3::identity::Caller;

use super::lists::{access_keys, known_identity};
use super::rules::{Rule, faults, rules};
use super::{Check, Fault};
use crate::config::{BandwidthScope, Config, QuotaConfig, QuotaScope};

/// A quota with less room would often hold nothing.
const ROOM_BLOCKS_MIN: u64 = 2;

rules! {
    /// The rules for each `[[quota]]`.
    QUOTA_RULES: fn(&QuotaConfig, &Config) -> Vec<Fault>;

    quota identity: |quota, config| unknown_identity(quota, config)
            .map(|unknown| format!("is {unknown:?}, which is the access_key of no [[identity]]")),
        known_identity(unknown_identity(quota, config), config);
    quota room: |quota, _| (room_bytes(quota, 1 << 40) == Some(0)).then_some("is nothing"),
        "write a size such as \"100GiB\" or a part such as \"20%\", or leave it out: then the room is not limited";
    quota room: |quota, config| room_bytes(quota, config.store.capacity_bytes)
            .filter(|bytes| (1..ROOM_BLOCKS_MIN * config.store.block_bytes).contains(bytes))
            .map(|_| format!("is less than {ROOM_BLOCKS_MIN} blocks of [store] block_size")),
        "write more, or lower [store] block_size: nothing would be cached";
    quota room: |quota, config| room_bytes(quota, config.store.capacity_bytes)
            .is_some_and(|bytes| bytes > config.store.capacity_bytes)
            .then_some("is more than [store] capacity"),
        "write less, or leave it out: then the room is not limited";
    quota bandwidth: |quota, _| quota.bandwidth.is_some_and(|rate| rate.bytes_per_second == 0)
            .then_some("is nothing"),
        "write a rate such as \"1Gbit\", or leave it out: then the rate is not limited";
    quota bandwidth: |quota, _| quota.bandwidth.is_some_and(|rate| rate.scope == BandwidthScope::Cluster)
            .then_some("cannot be shared"),
        "write the rate of each node, without \"shared\": each node counts what it reads from the lake itself";
}

impl Check<'_> {
    pub(super) fn quotas(&mut self) {
        let config = self.config;
        for (quota, entry) in self.list("[[quota]]", &config.quotas) {
            for row in QUOTA_RULES {
                self.refuse(entry, row.key, (row.faults)(quota, config));
            }
        }
        let quotas = || self.list("[[quota]]", &config.quotas);
        let prefixes: Vec<_> = quotas()
            .filter_map(|(quota, entry)| match &quota.scope {
                QuotaScope::Prefix(prefix) => Some((prefix.as_str(), entry)),
                QuotaScope::Identity(_) => None,
            })
            .collect();
        let identities: Vec<_> = quotas()
            .filter_map(|(quota, entry)| match &quota.scope {
                QuotaScope::Identity(name) => Some((name, entry)),
                QuotaScope::Prefix(_) => None,
            })
            .collect();
        self.prefixes(prefixes.into_iter());
        self.written_once("identity", identities);
    }

    /// Warns of rates at which a cold read takes long.
    pub(super) fn advise_on_quotas(&mut self) {
        let block_bytes = self.config.store.block_bytes;
        let quotas = self.list("[[quota]]", &self.config.quotas);
        for (_, entry) in quotas.filter(|(quota, _)| {
            let rate = quota.bandwidth.map(|rate| rate.bytes_per_second);
            rate.is_some_and(|rate| rate < block_bytes)
        }) {
            let what = "bandwidth of a [[quota]] is less than one block a second: a cold read of a few bytes \
                        takes as long as its block";
            let hint = "write more (kbit, Mbit and Gbit count bits), or lower [store] block_size";
            self.warn(entry.origin("bandwidth"), what, hint);
        }
    }
}

fn room_bytes(quota: &QuotaConfig, capacity_bytes: u64) -> Option<u64> {
    Some(quota.room?.bytes(capacity_bytes))
}

/// Returns the identity of a quota if no caller can have its name. Services may know any access key.
fn unknown_identity<'q>(quota: &'q QuotaConfig, config: &Config) -> Option<&'q str> {
    let QuotaScope::Identity(name) = &quota.scope else {
        return None;
    };
    let is_role = config.sts.is_on() && name.starts_with("arn:");
    let is_of_no_identity = [Caller::Anonymous, Caller::Unverified]
        .iter()
        .any(|caller| caller.name() == name);
    let is_known = access_keys(config).any(|key| key == name);
    let may_come = is_role || is_of_no_identity || is_known || !config.key_sources.is_empty();
    (!may_come).then_some(name)
}
