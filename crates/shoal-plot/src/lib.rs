//! Plots as SVG: lines, grouped bars and spans of time, with a title, axes, units and a legend. The same
//! numbers give the same file.

mod axis;
mod bars;
mod lines;
mod spans;

use std::fmt::Write as _;

pub use self::bars::{Bars, Spread};
pub use self::lines::{Line, Lines};
pub use self::spans::{Span, Spans};

/// Paul Tol's "bright" colours, which colour-blind readers can distinguish, also in print.
const COLOURS: [&str; 7] = [
    "#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#888888",
];

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
/// The edges of the plotted area.
const LEFT: f64 = 80.0;
const RIGHT: f64 = 590.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 350.0;

/// Returns one drawing with all of these below each other.
pub fn stacked(drawings: &[String]) -> String {
    let height = HEIGHT * drawings.len() as f64;
    let mut svg = format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\">\n");
    for (number, drawing) in drawings.iter().enumerate() {
        let y = HEIGHT * number as f64;
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<svg y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\">\n{drawing}</svg>"
        );
    }
    svg + "</svg>\n"
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// A drawing with its frame.
struct Drawing {
    svg: String,
}

impl Drawing {
    fn new(title: &str, x_label: &str, y_label: &str) -> Self {
        let mut drawing = Self {
            svg: format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
                 font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
            ),
        };
        drawing.add(format_args!(
            "<text x=\"{}\" y=\"28\" text-anchor=\"middle\" font-size=\"15\">{}</text>",
            f64::midpoint(LEFT, RIGHT),
            escaped(title)
        ));
        drawing.add(format_args!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(LEFT, RIGHT),
            BOTTOM + 75.0,
            escaped(x_label)
        ));
        let middle = f64::midpoint(TOP, BOTTOM);
        drawing.add(format_args!(
            "<text x=\"20\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 20 {middle})\">{}</text>",
            escaped(y_label)
        ));
        drawing
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.svg, "{element}");
    }

    /// Draws horizontal lines with their values.
    fn y_axis(&mut self, axis: &axis::Axis) {
        for (value, text) in axis.ticks() {
            let y = axis.place(value, BOTTOM, TOP);
            self.add(format_args!(
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
            ));
            self.add(format_args!(
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                LEFT - 6.0,
                y + 4.0
            ));
        }
    }

    /// Draws values below the plotted area.
    fn x_axis(&mut self, axis: &axis::Axis) {
        for (value, text) in axis.ticks() {
            let x = axis.place(value, LEFT, RIGHT);
            self.add(format_args!(
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
                BOTTOM + 18.0
            ));
        }
    }

    fn legend(&mut self, number: usize, name: &str) {
        let y = TOP + 18.0 * number as f64;
        self.add(format_args!(
            "<rect x=\"{}\" y=\"{y:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/>",
            RIGHT + 15.0,
            colour(number)
        ));
        self.add(format_args!(
            "<text x=\"{}\" y=\"{:.1}\">{}</text>",
            RIGHT + 33.0,
            y + 11.0,
            escaped(name)
        ));
    }

    fn finish(mut self) -> String {
        self.add(format_args!(
            "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#333\"/>\n</svg>",
            RIGHT - LEFT,
            BOTTOM - TOP
        ));
        self.svg
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Bars, Line, Lines, Spread, stacked};

    #[test]
    fn drawings_below_each_other_are_one() {
        let svg = stacked(&["<svg>1</svg>".to_owned(), "<svg>2</svg>".to_owned()]);
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 880\">\n"));
        assert!(
            svg.contains("<svg y=\"440\" width=\"760\" height=\"440\">\n<svg>2</svg></svg>\n</svg>\n"),
            "{svg}"
        );
    }

    #[test]
    fn a_plot_says_what_it_shows() {
        let bars = Bars {
            title: "a < b & c".to_owned(),
            y_label: "seconds".to_owned(),
            groups: vec!["static".to_owned(), "adaptive".to_owned()],
            series: vec![(
                "run time".to_owned(),
                vec![
                    Spread::from_values([1.0, 3.0].into_iter()),
                    Spread::from_values([1.5].into_iter()),
                ],
            )],
        };
        let svg = bars.svg();
        for text in ["a &lt; b &amp; c", "seconds", "static", "adaptive", "run time"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg, bars.svg());
        // Two bars, the mark of one spread, a legend, a background, a frame.
        assert_eq!(svg.matches("class=\"bar\"").count(), 2);
        assert_eq!(svg.matches("class=\"spread\"").count(), 1);
    }

    #[test]
    fn points_lie_where_the_axes_say() {
        let lines = Lines {
            title: "t".to_owned(),
            x_label: "seconds".to_owned(),
            y_label: "GiB".to_owned(),
            lines: vec![Line {
                name: "node 0".to_owned(),
                points: vec![(0.0, 0.0), (10.0, 5.0)],
            }],
        };
        // From the lower left corner to the upper right one.
        assert!(
            lines.svg().contains("points=\"80.0,350.0 590.0,50.0\""),
            "{}",
            lines.svg()
        );
    }
}
