//! Checks `[lake] bandwidth` and `[lake] bandwidth_scope`.

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
        if lake.bandwidth_scope == BandwidthScope::Node {
            return;
        }
        if lake.bandwidth.is_none() {
            let hint = "write bandwidth, what the link of the whole cluster carries";
            self.refuse(
                "lake",
                "bandwidth_scope",
                "is cluster, and there is no bandwidth",
                hint,
            );
        }
        if cooperation.mode == CooperationMode::Solo {
            let hint =
                "write [cooperation] mode, or bandwidth_scope = \"node\" and this node's part as bandwidth";
            self.refuse(
                "lake",
                "bandwidth_scope",
                "is cluster, and this node knows no other: [cooperation] mode is solo",
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
