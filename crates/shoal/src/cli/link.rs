//! The metered link to the lake, as one node sees it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::output::counted;

/// The part of `/status` about the link.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct LinkPage {
    /// Configured bandwidth of each direction, in bytes a second.
    pub(super) bandwidth_bytes_per_second: u64,
    /// `node` or `cluster`.
    pub(super) scope: String,
    /// Number of nodes that share it.
    pub(super) nodes: u64,
    pub(super) down: LanePage,
    pub(super) up: LanePage,
}

/// One direction.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct LanePage {
    /// This node's share, in bytes a second.
    pub(super) share_bytes_per_second: u64,
    /// Current rate, in bytes a second.
    pub(super) rate_bytes_per_second: u64,
    pub(super) classes: BTreeMap<String, ClassPage>,
}

/// The transfers of a class in one direction.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct ClassPage {
    pub(super) rate_bytes_per_second: u64,
    pub(super) waiting: u64,
    #[serde(default)]
    pub(super) bytes: u64,
}

/// The classes in display order.
const CLASSES: [&str; 4] = ["client", "planned", "prefetch", "cleaning"];

impl LinkPage {
    /// Describes the bandwidth, its use, and the use by class.
    pub(super) fn words(&self) -> String {
        let mut text = format!("link of {} each way", rate(self.bandwidth_bytes_per_second));
        if self.scope == "cluster" {
            let _ = write!(text, " for {}", counted(self.nodes, "node"));
        }
        for (name, lane) in [("down", &self.down), ("up", &self.up)] {
            let _ = write!(text, "; {name} {}", lane.words());
            if self.scope == "cluster" {
                let _ = write!(text, ", share {}", rate(lane.share_bytes_per_second));
            }
        }
        text
    }
}

impl LanePage {
    fn words(&self) -> String {
        let mut text = rate(self.rate_bytes_per_second);
        let used = CLASSES
            .into_iter()
            .filter_map(|name| Some((name, self.classes.get(name)?)));
        let used = used.filter(|(_, class)| class.rate_bytes_per_second > 0 || class.waiting > 0);
        let used = used.map(|(name, class)| match class.waiting {
            0 => format!("{name} {}", rate(class.rate_bytes_per_second)),
            waiting => format!("{name} {}, {waiting} waiting", rate(class.rate_bytes_per_second)),
        });
        let used: Vec<_> = used.collect();
        if !used.is_empty() {
            let _ = write!(text, " ({})", used.join("; "));
        }
        text
    }
}

/// Formats a rate in bits a second, the unit in which links are sold, with three digits.
fn rate(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
    let mut rate = bytes as f64 * 8.0 / 1e3;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        // A rate that would round to 1000 uses the next unit.
        if rate < 999.5 {
            break;
        }
        (rate, unit) = (rate / 1e3, next);
    }
    let decimals = if rate < 9.995 {
        2
    } else {
        usize::from(rate < 99.95)
    };
    format!("{rate:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::{ClassPage, LanePage, LinkPage, rate};

    #[test]
    fn rates_have_three_digits() {
        for (bytes, text) in [
            (0, "0.00 kbit/s"),
            (125_000, "1.00 Mbit/s"),
            (124_960, "1.00 Mbit/s"),
            (1_250_000_000, "10.0 Gbit/s"),
            (115_400_000, "923 Mbit/s"),
        ] {
            assert_eq!(rate(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn a_link_is_told_by_direction_and_class() {
        let class = |rate_bytes_per_second, waiting| ClassPage {
            rate_bytes_per_second,
            waiting,
            bytes: 0,
        };
        let down = LanePage {
            share_bytes_per_second: 60_000_000,
            rate_bytes_per_second: 50_000_000,
            classes: [
                ("prefetch".to_owned(), class(30_000_000, 3)),
                ("client".to_owned(), class(20_000_000, 0)),
                ("planned".to_owned(), class(0, 0)),
            ]
            .into(),
        };
        let mut link = LinkPage {
            bandwidth_bytes_per_second: 125_000_000,
            scope: "node".into(),
            nodes: 1,
            down,
            up: LanePage::default(),
        };
        let expected = "link of 1.00 Gbit/s each way; down 400 Mbit/s (client 160 Mbit/s; prefetch 240 Mbit/s, 3 waiting); up 0.00 kbit/s";
        assert_eq!(link.words(), expected);
        link.scope = "cluster".into();
        link.nodes = 3;
        assert!(
            link.words()
                .starts_with("link of 1.00 Gbit/s each way for 3 nodes; down 400")
        );
        assert!(link.words().ends_with("up 0.00 kbit/s, share 0.00 kbit/s"));
    }
}
