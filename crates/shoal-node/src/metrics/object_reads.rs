//! Counts reads of objects by how many of their blocks were near.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use shoal_policy::Found;

use super::MetricRegistry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    blocks: &'static str,
    found: &'static str,
}

/// Counters of reads, indexed by outcome, because every response updates them.
#[derive(Debug)]
pub(super) struct ObjectReads {
    of_one: [Counter; Found::ALL.len()],
    of_several: [Counter; Found::ALL.len()],
}

impl ObjectReads {
    pub(super) fn new(registry: &mut MetricRegistry) -> Self {
        let reads: Family<Labels, Counter> = registry.metric(
            "object_reads",
            "Reads of objects, by the number of blocks that they wanted (one or several) and by how much of these was near, on this node or another one or in a tier: complete, partial or none.",
        );
        let counters = |blocks| {
            Found::ALL.map(|found| {
                reads.get_or_create_owned(&Labels {
                    blocks,
                    found: found.as_str(),
                })
            })
        };
        Self {
            of_one: counters("one"),
            of_several: counters("several"),
        }
    }

    pub(super) fn count(&self, found: Found, are_several: bool) {
        let counters = if are_several {
            &self.of_several
        } else {
            &self.of_one
        };
        counters[found as usize].inc();
    }

    pub(super) fn of_several(&self) -> [(Found, u64); Found::ALL.len()] {
        Found::ALL.map(|found| (found, self.of_several[found as usize].get()))
    }
}
