//! Advice as a plot and in words.

use std::fmt::Write as _;

use shoal_policy::Found;

use super::{Advice, Choice, Mode, ModeOutcome, WholeChoice};
use crate::compare::{Contender, Row};
use crate::plot::{Line, Lines};
use crate::policy::PolicyName;
use crate::units::{counted, human_bytes};

/// Miss ratios that differ by less count as equal: those of the same clients differ as much from day to day.
const TIE: f64 = 0.005;

/// Splits whose costs differ by less than this share of the least count as equal.
const COST_TIE: f64 = 0.01;

impl Advice {
    /// The miss-ratio curve as a plot.
    pub fn plot(&self) -> Lines {
        let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
        Lines {
            title: "Miss ratio by size of the cache (LRU)".to_owned(),
            x_label: "GiB".to_owned(),
            y_label: "share of the blocks asked for that miss".to_owned(),
            lines: vec![Line {
                name: "LRU".to_owned(),
                points: self
                    .curve
                    .iter()
                    .map(|&(size, ratio)| (gib(size), ratio))
                    .collect(),
            }],
        }
    }

    /// The whole advice in plain words.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write_trace(&mut text);
        self.write_capacity(&mut text);
        self.write_policies(&mut text);
        self.write_splits(&mut text);
        self.write_modes(&mut text);
        self.write_whole_objects(&mut text);
        self.write_missing_clients(&mut text);
        text
    }

    fn write_trace(&self, text: &mut String) {
        let set = &self.working_set;
        // Writing to a string cannot fail; the same below.
        let _ = writeln!(
            text,
            "The trace has {} of {} ({}) by {}. The working set is {} of {}, {} in all.\n\
             {:.1}% of the reads are of something read before; no cache can serve more than that.",
            counted(set.requests, "read"),
            if set.requests == 1 { "a block" } else { "blocks" },
            human_bytes(set.request_bytes),
            counted(set.clients, "client"),
            counted(set.blocks, "block"),
            counted(set.objects, "object"),
            human_bytes(set.bytes),
            set.reuse() * 100.0
        );
    }

    fn write_capacity(&self, text: &mut String) {
        let why = if self.capacity_was_given {
            "as asked"
        } else {
            "the least that misses hardly more than a cache for everything"
        };
        let _ = writeln!(
            text,
            "\nA cache of {} ({why}), under LRU:",
            human_bytes(self.capacity_bytes)
        );
        let lru = |row: &&Row| row.policy == Contender::policy(PolicyName::LRU);
        for (row, name) in self
            .policies
            .iter()
            .filter(lru)
            .zip(["half of it", "this size", "twice as much"])
        {
            let room = human_bytes(row.capacity_bytes);
            let _ = writeln!(text, "  {name:<14} {room:>10}  {}", misses(row));
        }
    }

    fn write_policies(&self, text: &mut String) {
        let mut rows: Vec<_> = self
            .policies
            .iter()
            .filter(|row| row.capacity_bytes == self.capacity_bytes)
            .collect();
        rows.sort_by(|a, b| a.byte_miss_ratio.total_cmp(&b.byte_miss_ratio));
        let Some(best) = rows.first() else { return };
        let more = |row: &Row| row.byte_miss_ratio - best.byte_miss_ratio;
        let ties: Vec<_> = rows
            .iter()
            .filter(|row| more(row) < TIE)
            .map(|row| format!("`{}`", row.policy))
            .collect();
        let heading = match ties.as_slice() {
            [only] => format!("Of the policies, {only} reads least from the lake at this size"),
            ties => format!(
                "{} policies read least from the lake at this size, within {} points of each other: take any of {}",
                ties.len(),
                TIE * 100.0,
                list(ties)
            ),
        };
        let _ = writeln!(text, "\n{heading}.");
        for row in &rows {
            let _ = writeln!(text, "  {:<14} {}", row.policy.to_string(), misses(row));
        }
        let followed = PolicyName::of_nodes();
        let Some(row) = rows.iter().find(|row| row.policy == Contender::policy(followed)) else {
            return;
        };
        let _ = match more(row) {
            less_than_a_tie if less_than_a_tie < TIE => {
                writeln!(
                    text,
                    "A node follows `{followed}` by default, which is one of these."
                )
            }
            more => writeln!(
                text,
                "A node follows `{followed}` by default, which misses {:.1} points more of the bytes than `{}`.",
                more * 100.0,
                best.policy
            ),
        };
    }

    fn write_splits(&self, text: &mut String) {
        let Some(best) = self.splits.iter().min_by(|a, b| a.cost.total_cmp(&b.cost)) else {
            return;
        };
        let ties: Vec<_> = self
            .splits
            .iter()
            .filter(|split| split.cost <= best.cost * (1.0 + COST_TIE))
            .map(|split| format!("{:.0}%", split.l1_share * 100.0))
            .collect();
        let heading = match ties.as_slice() {
            [only] => format!("{only} of each node's room for its own clients (L1) costs least"),
            ties => format!(
                "{} of each node's room for its own clients (L1) cost the same within {}%: take any",
                list(ties),
                COST_TIE * 100.0
            ),
        };
        let _ = writeln!(
            text,
            "\nDivided among {} nodes in two layers under LRU, {heading}.",
            self.nodes
        );
        for split in &self.splits {
            let total = split.sources.total().requests.max(1) as f64;
            let percent = |requests: u64| requests as f64 / total * 100.0;
            let _ = writeln!(
                text,
                "  L1 {:3.0}%        local {:5.1}%  peer {:5.1}%  lake {:5.1}%  mean cost {:.3}",
                split.l1_share * 100.0,
                percent(split.sources.local.requests),
                percent(split.sources.peer.requests),
                percent(split.sources.lake.requests),
                split.cost
            );
        }
    }

    fn write_modes(&self, text: &mut String) {
        let (Some(choice), [hierarchy, directory, duel]) = (self.choice, self.modes.as_slice()) else {
            return;
        };
        let _ = writeln!(
            text,
            "\nThe same {} nodes as a hierarchy, with the cheapest of these splits, or with a directory. A block costs\n\
             nothing where it is held, 1 from node to node, and {} from the lake.",
            self.nodes, self.lake_cost
        );
        for tried in &self.modes {
            let _ = writeln!(
                text,
                "  {:<15} local {:5.1}%  lake {:>10}  between nodes {:>10}  mean cost {:.3}",
                tried.mode.as_str(),
                local_percent(tried),
                human_bytes(tried.sources.lake.bytes),
                human_bytes(tried.between_nodes.bytes),
                tried.cost
            );
        }
        let _ = match choice {
            Choice::Tie => writeln!(
                text,
                "The costs of hierarchy and directory are too close to choose by: take `mode = \"hierarchy\"`, which needs no\n\
                 Redis."
            ),
            Choice::Clear { mode, cheaper_by } => {
                let (chosen, other, settings) = match mode {
                    Mode::Hierarchy => (hierarchy, directory, "`mode = \"hierarchy\"` below [cooperation]"),
                    Mode::Directory => (directory, hierarchy, "`mode = \"directory\"` below [cooperation]"),
                    Mode::DirectoryDuel => (
                        duel,
                        hierarchy,
                        "`mode = \"directory\"` below [cooperation] and `policy = \"duel\"` below [store]",
                    ),
                };
                writeln!(
                    text,
                    "Choose {settings}: it costs {:.1}% less than {}.\n{}",
                    cheaper_by * 100.0,
                    if mode == Mode::Hierarchy {
                        "a directory"
                    } else {
                        "the hierarchy"
                    },
                    difference(chosen, other)
                )
            }
        };
        let _ = writeln!(
            text,
            "Nodes with a directory evict by `gwf`, which keeps last copies in preference to others, unless [store] policy\n\
             says otherwise."
        );
    }

    fn write_whole_objects(&self, text: &mut String) {
        let (Some(outcomes), Some(choice)) = (self.whole_objects, self.whole_choice) else {
            return;
        };
        if choice == WholeChoice::NoneWanted {
            return;
        }
        let [alone, above] = outcomes;
        let _ = writeln!(
            text,
            "\n{} several blocks. A reader waits for the slowest of them. If all room of the {} nodes is for\n\
             blocks that are at home there (no L1), a node holds parts of objects, and such reads find:",
            match alone.reads() {
                1 => "1 read wants".to_owned(),
                reads => format!("{reads} reads want"),
            },
            self.nodes
        );
        for outcome in outcomes {
            let percent = |found| outcome.share(found) * 100.0;
            let _ = writeln!(
                text,
                "  {:<15} all {:5.1}%  a part {:5.1}%  nothing {:5.1}%  lake {:>10}",
                outcome.policy.to_string(),
                percent(Found::Complete),
                percent(Found::Partial),
                percent(Found::Nothing),
                human_bytes(outcome.lake.bytes)
            );
        }
        let points = (above.share(Found::Complete) - alone.share(Found::Complete)) * 100.0;
        let (less, more) = (alone.lake.bytes, above.lake.bytes);
        let word = if more > less { "more" } else { "less" };
        let lake = (more.abs_diff(less)) as f64 / less.max(1) as f64 * 100.0;
        let _ = match choice {
            WholeChoice::Take => writeln!(
                text,
                "Choose `policy = \"{}\"` below [store]: {points:.1} points more of these reads find all, and the lake sends\n\
                 {lake:.1}% {word}.",
                above.policy
            ),
            WholeChoice::Weigh => writeln!(
                text,
                "With `policy = \"{}\"` below [store], {points:.1} points more of these reads find all, but the lake sends {lake:.1}%\n\
                 {word}: take it only if readers need whole objects and the lake has time.",
                above.policy
            ),
            WholeChoice::Keep | WholeChoice::NoneWanted => writeln!(
                text,
                "Keep `{}`: `{}` would hardly help these reads ({points:+.1} points find all), and the lake would send\n\
                 {lake:.1}% {word}.",
                alone.policy, above.policy
            ),
        };
    }

    fn write_missing_clients(&self, text: &mut String) {
        let clients = self.working_set.clients;
        if self.nodes > 1 && clients < u64::from(self.nodes) {
            let _ = writeln!(
                text,
                "\nThe trace has {} for {} nodes, and a node without a client asks for nothing: this says little about nodes\n\
                 that all have clients.",
                counted(clients, "client"),
                self.nodes
            );
        }
    }
}

/// Describes what a policy misses.
fn misses(row: &Row) -> String {
    let (blocks, bytes) = (row.miss_ratio * 100.0, row.byte_miss_ratio * 100.0);
    format!("misses {blocks:5.1}% of the blocks, {bytes:5.1}% of the bytes")
}

/// The share of blocks that the answering nodes held, in percent.
fn local_percent(tried: &ModeOutcome) -> f64 {
    tried.sources.local.requests as f64 / tried.sources.total().requests.max(1) as f64 * 100.0
}

/// Describes how much less or more `chosen` reads and sends than `other`.
fn difference(chosen: &ModeOutcome, other: &ModeOutcome) -> String {
    let bytes = |ours: u64, theirs: u64| {
        let word = if ours > theirs { "more" } else { "less" };
        format!("{} {word}", human_bytes(ours.abs_diff(theirs)))
    };
    let points = local_percent(chosen) - local_percent(other);
    let word = if points < 0.0 { "fewer" } else { "more" };
    format!(
        "It reads {} from the lake and sends {} between nodes, with {:.1} points {word} local hits.",
        bytes(chosen.sources.lake.bytes, other.sources.lake.bytes),
        bytes(chosen.between_nodes.bytes, other.between_nodes.bytes),
        points.abs()
    )
}

/// Formats `a, b and c`.
fn list(words: &[String]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        words => words.concat(),
    }
}
