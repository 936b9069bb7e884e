//! Spans of time, one row for each thing: a Gantt chart.

use super::axis::Axis;
use super::{BOTTOM, Drawing, LEFT, RIGHT, TOP, colour, escaped};

/// Letters of a name that fit beside the plot. If one is longer, all names stand in the plot.
const MARGIN_LETTERS: usize = 12;
/// Letters of a name that fit into the plot.
const ROW_LETTERS: usize = 75;

/// A plot of spans of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Spans {
    /// The text above the plot.
    pub title: String,
    /// The unit of the horizontal axis.
    pub x_label: String,
    /// The name of what a row is.
    pub y_label: String,
    /// From top to bottom: a name, and its spans.
    pub rows: Vec<(String, Vec<Span>)>,
    /// The names of the kinds of spans, in the order of the legend.
    pub kinds: Vec<String>,
}

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The start; not negative.
    pub from: f64,
    /// The end.
    pub until: f64,
    /// The position of its kind.
    pub kind: usize,
    /// Its share of the row's height, from 0 to 1.
    pub height: f64,
}

impl Spans {
    /// Returns the plot as SVG.
    pub fn svg(&self) -> String {
        let mut drawing = Drawing::new(&self.title, &self.x_label, &self.y_label);
        let ends = self
            .rows
            .iter()
            .flat_map(|(_, spans)| spans.iter().map(|span| span.until));
        let axis = Axis::to_greatest(ends);
        for (value, _) in axis.ticks() {
            let x = axis.place(value, LEFT, RIGHT);
            drawing.add(format_args!(
                "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{BOTTOM}\" stroke=\"#ddd\"/>"
            ));
        }
        drawing.x_axis(&axis);
        let height = (BOTTOM - TOP) / self.rows.len().max(1) as f64;
        let font = height.clamp(3.0, 11.0);
        let are_long = self
            .rows
            .iter()
            .any(|(name, _)| name.chars().count() > MARGIN_LETTERS);
        for (number, (name, spans)) in self.rows.iter().enumerate() {
            let bottom = TOP + height * (number + 1) as f64;
            for span in spans {
                let [from, until] = [span.from, span.until].map(|time| axis.place(time, LEFT, RIGHT));
                let tall = (height * 0.9 * span.height.clamp(0.05, 1.0)).max(0.5);
                drawing.add(format_args!(
                    "<rect class=\"span\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\" fill=\"{}\"/>",
                    bottom - tall,
                    (until - from).max(0.5),
                    colour(span.kind)
                ));
            }
            let (x, anchor) = if are_long {
                (LEFT + 4.0, "start")
            } else {
                (LEFT - 6.0, "end")
            };
            drawing.add(format_args!(
                "<text x=\"{x}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-size=\"{font:.1}\">{}</text>",
                bottom - height / 2.0 + font / 3.0,
                escaped(&shortened(name))
            ));
        }
        for (number, kind) in self.kinds.iter().enumerate() {
            drawing.legend(number, kind);
        }
        drawing.finish()
    }
}

/// Returns the end of a long name: paths differ there.
fn shortened(name: &str) -> String {
    let more = name.chars().count().saturating_sub(ROW_LETTERS);
    if more == 0 {
        return name.to_owned();
    }
    let end: String = name.chars().skip(more).collect();
    format!("\u{2026}{end}")
}

#[cfg(test)]
mod tests {
    use super::{Span, Spans};

    #[test]
    fn a_span_lies_in_its_row_where_its_time_says() {
        let span = |from, until, kind| Span {
            from,
            until,
            kind,
            height: 1.0,
        };
        let plot = Spans {
            title: "t".to_owned(),
            x_label: "seconds".to_owned(),
            y_label: "file".to_owned(),
            rows: vec![
                ("a<b".to_owned(), vec![span(0.0, 5.0, 0)]),
                ("c".to_owned(), vec![span(5.0, 10.0, 1)]),
            ],
            kinds: vec!["fetch".to_owned(), "cached".to_owned()],
        };
        let svg = plot.svg();
        // The left half of the upper row, and the right half of the lower one.
        assert!(
            svg.contains("x=\"80.0\" y=\"65.0\" width=\"255.0\" height=\"135.0\" fill=\"#4477AA\""),
            "{svg}"
        );
        assert!(svg.contains("x=\"335.0\" y=\"215.0\" width=\"255.0\""), "{svg}");
        assert!(svg.contains("a&lt;b") && svg.contains("fetch") && svg.contains("cached"));
        assert!(svg.contains("text-anchor=\"end\" font-size=\"11.0\">c<"), "{svg}");
    }

    #[test]
    fn long_names_stand_in_the_plot_and_show_their_end() {
        let path = format!("s3://lake/{}/dt=2026-11-20/", "a".repeat(90));
        let plot = Spans {
            title: "t".to_owned(),
            x_label: "seconds".to_owned(),
            y_label: "file".to_owned(),
            rows: vec![(path, Vec::new()), ("s3://lake/dimension".to_owned(), Vec::new())],
            kinds: Vec::new(),
        };
        let svg = plot.svg();
        assert!(
            svg.contains("a/dt=2026-11-20/</text>") && !svg.contains(">s3://lake/a"),
            "{svg}"
        );
        assert!(
            svg.contains("text-anchor=\"start\" font-size=\"11.0\">s3://lake/dimension<"),
            "{svg}"
        );
    }
}
