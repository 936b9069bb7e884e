//! Checks of the split's settings.

use std::time::Duration;

use shoal_policy::eviction::layered::LAYERS_MAX;

use super::Check;
use crate::config::{CooperationConfig, CooperationMode, SplitRule};

/// A shorter period would have too few samples.
const PERIOD_MIN: Duration = Duration::from_secs(1);

impl Check<'_> {
    pub(super) fn split(&mut self) {
        let CooperationConfig {
            mode,
            layers,
            period,
            split,
            ..
        } = &self.config.cooperation;
        if *period < PERIOD_MIN {
            let hint = "write at least 1s; in 90s the requests of most clusters say enough";
            self.refuse("cooperation", "period", "is too short to learn from", hint);
        }
        let SplitRule::Fixed(percents) = split else {
            return;
        };
        let sum: u32 = percents.iter().map(|&percent| u32::from(percent)).sum();
        if sum != 100 {
            let hint = "name a percentage for each layer from L1 outwards, such as [50, 50]";
            self.refuse("cooperation", "split", &format!("adds up to {sum} percent"), hint);
        } else if percents.len() > LAYERS_MAX {
            let what = format!("names {} layers", percents.len());
            let hint = format!("a node has at most {LAYERS_MAX}");
            self.refuse("cooperation", "split", &what, &hint);
        } else if *mode == CooperationMode::Hierarchy && percents.len() != layers.len() {
            let what = format!("names {} shares for {} layers", percents.len(), layers.len());
            let hint = "name a percentage for each of layers, from L1 outwards";
            self.refuse("cooperation", "split", &what, hint);
        }
    }
}
