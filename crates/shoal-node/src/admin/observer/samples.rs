//! `/history`, made of a snapshot: the counters from which a console draws rates.

use super::snapshot::Snapshot;

impl Snapshot {
    /// Returns the counters, with their names. A node has the same ones as long as it runs.
    pub(super) fn samples(&self) -> Vec<(String, u64)> {
        let metrics = &self.core.metrics;
        let lake = self.core.lake.counters();
        let written_back = self.node.write_back.figures().page;
        let oldest = written_back.tiers.iter().filter_map(|tier| tier.oldest_seconds);
        let mut samples = vec![
            (
                "requests".to_owned(),
                metrics.requests().into_iter().map(|(_, count)| count).sum(),
            ),
            ("lake_requests".to_owned(), lake.requests.counts().values().sum()),
            ("lake_bytes".to_owned(), lake.bytes_received.get()),
            ("resident_bytes".to_owned(), self.store.resident_bytes),
            ("dirty_bytes".to_owned(), written_back.bytes),
            ("tier_oldest_seconds".to_owned(), oldest.max().unwrap_or_default()),
        ];
        let sources = metrics.read_bytes();
        samples.extend(
            sources
                .into_iter()
                .map(|(source, bytes)| (format!("read_bytes/{source}"), bytes)),
        );
        for layer in self.core.split.requests() {
            samples.push((format!("layer_requests/{}/hit", layer.layer), layer.hits));
            samples.push((format!("layer_requests/{}/miss", layer.layer), layer.misses));
        }
        let lanes = self.link.iter();
        for (direction, lane) in lanes.flat_map(|link| [("down", &link.down), ("up", &link.up)]) {
            let classes = lane.classes.iter();
            samples.extend(
                classes.map(|(class, figures)| (format!("link_bytes/{direction}/{class}"), figures.bytes)),
            );
        }
        samples
    }
}
