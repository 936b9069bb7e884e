//! A picture of hints over time: when each was announced, when its bytes came and were first used, and until
//! when they were kept.

use shoal_orders::{HintUse, Moment, TaskState};
use shoal_plot::{Span, Spans};

use super::bytes;

/// Maximum number of hints in a picture, the latest ones; more would not be legible.
const ROWS_MAX: usize = 60;

/// The kinds of spans, in the order of the legend.
const KINDS: [&str; 5] = [
    "on its way",
    "never used",
    "in use",
    "waits for its reader",
    "brought nothing",
];
const ON_ITS_WAY: usize = 0;
const NEVER_USED: usize = 1;
const IN_USE: usize = 2;
const WAITS: usize = 3;
const BROUGHT_NOTHING: usize = 4;

/// Draws hints, of which the latest is the first.
pub(super) fn picture(hints: &[HintUse], now: Moment) -> String {
    let mut shown: Vec<&HintUse> = hints.iter().take(ROWS_MAX).collect();
    let created = |hint: &HintUse| hint.task.order.created.millis();
    shown.sort_by_key(|hint| {
        (
            created(hint),
            hint.task.order.hint.as_ref().map(|facts| facts.stage),
        )
    });
    let first = shown.first().map_or(0, |hint| created(hint));
    let since_first = |moment: Moment| moment.millis().saturating_sub(first) as f64 / 1e3;
    let rows = shown.iter().filter_map(|hint| {
        let spans = spans(hint, now).into_iter();
        let spans = spans.map(|(kind, from, until)| Span {
            from: since_first(from),
            until: since_first(until),
            kind,
            height: if kind == ON_ITS_WAY { 0.4 } else { 0.9 },
        });
        Some((name(hint)?, spans.collect()))
    });
    let others = if shown.len() < hints.len() {
        format!(", the latest {ROWS_MAX}")
    } else {
        String::new()
    };
    Spans {
        title: format!("Hints, and what became of the bytes that they brought{others}"),
        x_label: "seconds since the first of these hints was announced".to_owned(),
        y_label: "hint".to_owned(),
        rows: rows.collect(),
        kinds: KINDS.map(str::to_owned).into(),
    }
    .svg()
}

/// Returns the spans of a hint: their kinds, beginnings and ends.
fn spans(hint: &HintUse, now: Moment) -> Vec<(usize, Moment, Moment)> {
    let (order, progress) = (&hint.task.order, &hint.task.progress);
    let announced = order.created;
    let released = match progress.state {
        TaskState::Cancelled | TaskState::Failed => progress.ended,
        TaskState::Done if !hint.keeps => order.request.until,
        TaskState::Queued | TaskState::Running | TaskState::Done => None,
    };
    let released = released.map_or(now, |released| released.min(now));
    let mut spans = match hint.first_used {
        // Readers may still come for what a hint has brought after it is over.
        Some(used) => vec![(WAITS, announced, used), (IN_USE, used, released.max(used))],
        None if hint.brought_bytes == 0 => vec![(BROUGHT_NOTHING, announced, released)],
        None if hint.keeps || progress.state == TaskState::Running => vec![(WAITS, announced, released)],
        None => vec![(NEVER_USED, announced, released)],
    };
    if hint.brought_bytes > 0 {
        spans.push((ON_ITS_WAY, announced, hint.brought.unwrap_or(released)));
    }
    spans
}

/// Returns the text of a row. A long one shows its end.
fn name(hint: &HintUse) -> Option<String> {
    let facts = hint.task.order.hint.as_deref()?;
    let [brought, used, wasted] = [hint.brought_bytes, hint.used_bytes, hint.wasted_bytes].map(bytes);
    Some(format!(
        "{}, stage {}: {}: {used} of {brought} used, {wasted} wasted",
        facts.reader.name,
        facts.stage,
        super::inputs(facts)
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shoal_orders::{HintUse, Moment};

    use super::{BROUGHT_NOTHING, IN_USE, NEVER_USED, ON_ITS_WAY, WAITS, picture, spans};

    /// A time of the day in seconds.
    fn at(seconds: u32) -> Moment {
        format!("2026-11-30T10:00:{seconds:02}Z").parse().unwrap()
    }

    /// A hint that was announced after ten seconds.
    fn hint(state: &str, ended: Option<u32>, other: &Value) -> HintUse {
        let mut hint = json!({
            "task": {
                "id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "kind": "hint", "created": at(10), "accepted_by": "n0",
                "forgotten": at(59), "until": at(50), "state": state, "ended": ended.map(at),
                "hint": {
                    "run": "r", "reader": { "namespace": "etl", "name": "join" }, "stage": 1,
                    "inputs": ["s3://b/x", "s3://b/y"],
                },
                "objects": { "total": 1, "done": 1, "unchanged": 0, "skipped": 0, "failed": 0 },
                "bytes": {
                    "total": 2048, "done": 2048, "cached": 0, "from_lake": 2048, "from_peers": 0, "pinned": 0,
                    "removed": 0,
                },
            },
            "keeps": false, "brought_bytes": 2048, "used_bytes": 0, "evicted_bytes": 0, "wasted_bytes": 0,
            "early_ms": null, "brought": null, "first_used": null,
        });
        for (name, value) in other.as_object().unwrap() {
            hint[name] = value.clone();
        }
        serde_json::from_value(hint).unwrap()
    }

    #[test]
    fn the_spans_of_a_hint_say_what_became_of_it() {
        let used = json!({ "brought": at(12), "first_used": at(20), "used_bytes": 2048 });
        let on_its_way = |until| (ON_ITS_WAY, at(10), at(until));
        for (hint, expected) in [
            (
                hint("cancelled", Some(30), &used),
                vec![(WAITS, at(10), at(20)), (IN_USE, at(20), at(30)), on_its_way(12)],
            ),
            // The reader came after the end.
            (
                hint("cancelled", Some(15), &used),
                vec![(WAITS, at(10), at(20)), (IN_USE, at(20), at(20)), on_its_way(12)],
            ),
            (
                hint("cancelled", Some(30), &json!({ "brought": at(12) })),
                vec![(NEVER_USED, at(10), at(30)), on_its_way(12)],
            ),
            (
                hint("done", Some(12), &json!({ "brought": at(12), "keeps": true })),
                vec![(WAITS, at(10), at(40)), on_its_way(12)],
            ),
            (
                hint("running", None, &json!({})),
                vec![(WAITS, at(10), at(40)), on_its_way(40)],
            ),
            (
                hint("failed", Some(11), &json!({ "brought_bytes": 0 })),
                vec![(BROUGHT_NOTHING, at(10), at(11))],
            ),
        ] {
            assert_eq!(spans(&hint, at(40)), expected, "{hint:?}");
        }
        // It was kept until its time, which is over.
        let late = hint("done", Some(12), &json!({ "brought": at(12) }));
        assert_eq!(spans(&late, at(55))[0], (NEVER_USED, at(10), at(50)));
    }

    #[test]
    fn a_picture_has_a_row_for_each_of_the_latest_hints() {
        let hints = vec![hint("cancelled", Some(30), &json!({ "wasted_bytes": 2048 })); 61];
        let mut early = hint("cancelled", Some(30), &json!({}));
        early.task.order.created = at(5);
        let rows = picture(&[hints[0].clone(), early], at(40));
        // The second one was announced first: it begins at the left edge, in the upper row.
        assert!(
            rows.contains("x=\"80.0\" y=\"78.5\"") && !rows.contains("x=\"80.0\" y=\"228.5\""),
            "{rows}"
        );
        let one = picture(&hints[..1], at(40));
        for text in [
            "join, stage 1: s3://b/x +1: 0 B of 2.0 KiB used, 2.0 KiB wasted",
            "never used",
            "seconds since the first",
        ] {
            assert!(one.contains(text), "{one}");
        }
        assert!(!one.contains("the latest"), "{one}");
        let all = picture(&hints, at(40));
        assert_eq!(all.matches("join, stage 1").count(), 60);
        assert!(all.contains("the latest 60"), "{all}");
    }
}
