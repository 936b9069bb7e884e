//! Checks `[lake] bandwidth`.

use super::Check;
use crate::config::{BandwidthScope, Config, CooperationMode};

impl Check<'_> {
    pub(super) fn link(&mut self) {
        let Config {
            lake, cooperation, ..
        } = self.config;
        if lake
            .bandwidth
            .is_some_and(|bandwidth| bandwidth.bytes_per_second == 0)
        {
            let hint = "write what the link carries, or leave it out: then nothing is metered";
            self.refuse("lake", "bandwidth", "is nothing", hint);
        }
        let is_shared = lake
            .bandwidth
            .is_some_and(|bandwidth| bandwidth.scope == BandwidthScope::Cluster);
        if is_shared && cooperation.mode == CooperationMode::Solo {
            let hint = "write [cooperation] mode, or this node's part without \"shared\"";
            self.refuse(
                "lake",
                "bandwidth",
                "is shared, and this node knows no other: [cooperation] mode is solo",
                hint,
            );
        }
    }

    pub(super) fn advise_on_link(&mut self) {
        let Config { lake, store, .. } = self.config;
        let Some(bandwidth) = lake.bandwidth else { return };
        if bandwidth.bytes_per_second >= store.block_bytes {
            return;
        }
        let provenance = self.located.draft.provenance("lake", "bandwidth");
        self.warn(
            provenance,
            "[lake] bandwidth is less than one block a second: a cold read of a few bytes takes as long as its block",
            "write what the link carries (kbit, Mbit and Gbit count bits), or lower [store] block_size",
        );
    }
}
