//! The metered link to the lake and the quotas, as one node sees them.

use std::fmt::Write as _;

use shoal_base::terminal;
use shoal_node::admin::status::{BandwidthScope, LaneFigures, LinkFigures, QuotaPage};

use crate::cli::output::{bytes, counted, scaled};

/// The classes in display order.
const CLASSES: [&str; 4] = ["client", "planned", "prefetch", "cleaning"];

/// Describes the bandwidth, its use, and the use by class.
pub(crate) fn link_words(link: &LinkFigures) -> String {
    let is_shared = link.scope == BandwidthScope::Cluster;
    let mut text = format!("link of {} each way", rate(link.bandwidth_bytes_per_second));
    if is_shared {
        let _ = write!(text, " for {}", counted(link.nodes, "node"));
    }
    for (name, lane) in [("down", &link.down), ("up", &link.up)] {
        let _ = write!(text, "; {name} {}", lane_words(lane));
        if is_shared {
            let _ = write!(text, ", share {}", rate(lane.share_bytes_per_second));
        }
    }
    text
}

fn lane_words(lane: &LaneFigures) -> String {
    let mut text = rate(lane.rate_bytes_per_second);
    let used = CLASSES
        .into_iter()
        .filter_map(|name| Some((name, lane.classes.get(name)?)));
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

/// Describes what a quota allows, and what of that is used.
pub(crate) fn quota_words(quota: &QuotaPage) -> String {
    let mut text = format!("quota of {}", terminal::line(&quota.name));
    let mut separator = ": ";
    if let Some(room) = quota.room_bytes {
        let _ = write!(text, "{separator}{} of {}", bytes(quota.used_bytes), bytes(room));
        separator = "; ";
    }
    if let Some(most) = quota.bandwidth_bytes_per_second {
        let (read, most) = (bytes(quota.lake_bytes), rate(most));
        let _ = write!(text, "{separator}{read} from the lake, at most {most}");
    }
    text
}

/// Formats a rate in bits a second, the unit in which links are sold, with three digits.
fn rate(bytes: u64) -> String {
    let units = ["kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
    let (rate, unit) = scaled(bytes as f64 * 8.0 / 1e3, 1e3, &units);
    let decimals = if rate < 9.995 {
        2
    } else {
        usize::from(rate < 99.95)
    };
    format!("{rate:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use shoal_node::admin::status::{BandwidthScope, ClassFigures, LaneFigures, LinkFigures, QuotaPage};

    use super::{link_words, quota_words, rate};

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
    fn a_quota_is_told_by_what_it_limits() {
        let mut quota = QuotaPage {
            name: "s3://b/x/".into(),
            room_bytes: Some(2 << 30),
            used_bytes: 1 << 30,
            ..QuotaPage::default()
        };
        assert_eq!(quota_words(&quota), "quota of s3://b/x/: 1.0 GiB of 2.0 GiB");
        quota.bandwidth_bytes_per_second = Some(125_000_000);
        let both = "quota of s3://b/x/: 1.0 GiB of 2.0 GiB; 0 B from the lake, at most 1.00 Gbit/s";
        assert_eq!(quota_words(&quota), both);
        quota.room_bytes = None;
        let rate = "quota of s3://b/x/: 0 B from the lake, at most 1.00 Gbit/s";
        assert_eq!(quota_words(&quota), rate);
    }

    #[test]
    fn a_link_is_told_by_direction_and_class() {
        let class = |rate_bytes_per_second, waiting| ClassFigures {
            rate_bytes_per_second,
            waiting,
            ..ClassFigures::default()
        };
        let down = LaneFigures {
            share_bytes_per_second: 60_000_000,
            rate_bytes_per_second: 50_000_000,
            classes: [
                ("prefetch".to_owned(), class(30_000_000, 3)),
                ("client".to_owned(), class(20_000_000, 0)),
                ("planned".to_owned(), class(0, 0)),
            ]
            .into(),
            ..LaneFigures::default()
        };
        let mut link = LinkFigures {
            bandwidth_bytes_per_second: 125_000_000,
            scope: BandwidthScope::Node,
            nodes: 1,
            down,
            up: LaneFigures::default(),
        };
        let expected = "link of 1.00 Gbit/s each way; down 400 Mbit/s (client 160 Mbit/s; prefetch 240 Mbit/s, 3 waiting); up 0.00 kbit/s";
        assert_eq!(link_words(&link), expected);
        link.scope = BandwidthScope::Cluster;
        link.nodes = 3;
        assert!(link_words(&link).starts_with("link of 1.00 Gbit/s each way for 3 nodes; down 400"));
        assert!(link_words(&link).ends_with("up 0.00 kbit/s, share 0.00 kbit/s"));
    }
}
