//! Lines over a common axis.

use super::axis::Axis;
use super::{BOTTOM, Drawing, LEFT, RIGHT, TOP, colour};

/// A plot of lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// The text above the plot.
    pub title: String,
    /// The quantity of the horizontal axis, with its unit.
    pub x_label: String,
    /// The quantity of the vertical axis, with its unit.
    pub y_label: String,
    /// In the order of the legend.
    pub lines: Vec<Line>,
}

/// One line of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// Points from left to right; no coordinate is negative.
    pub points: Vec<(f64, f64)>,
}

impl Lines {
    /// Returns the plot as SVG.
    pub fn svg(&self) -> String {
        let mut drawing = Drawing::new(&self.title, &self.x_label, &self.y_label);
        let points = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        let x_axis = Axis::to_greatest(points().map(|(x, _)| x));
        let y_axis = Axis::to_rounded(points().map(|(_, y)| y));
        drawing.y_axis(&y_axis);
        drawing.x_axis(&x_axis);
        for (number, line) in self.lines.iter().enumerate() {
            let place = |&(x, y): &(f64, f64)| {
                let (x, y) = (x_axis.place(x, LEFT, RIGHT), y_axis.place(y, BOTTOM, TOP));
                format!("{x:.1},{y:.1}")
            };
            let points: Vec<_> = line.points.iter().map(place).collect();
            drawing.add(format_args!(
                "<polyline fill=\"none\" stroke-width=\"1.8\" stroke=\"{}\" points=\"{}\"/>",
                colour(number),
                points.join(" ")
            ));
            drawing.legend(number, &line.name);
        }
        drawing.finish()
    }
}
