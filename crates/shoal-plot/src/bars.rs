//! Groups of bars. A bar is a mean, with a mark for the spread of its values.

use super::axis::Axis;
use super::{BOTTOM, Drawing, LEFT, RIGHT, TOP, colour, escaped};

/// A plot of grouped bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// The text above the plot.
    pub title: String,
    /// The quantity of the vertical axis, with its unit.
    pub y_label: String,
    /// Labels below the bars.
    pub groups: Vec<String>,
    /// In the order of the legend: a name, and a value for each group.
    pub series: Vec<(String, Vec<Spread>)>,
}

/// The spread of several values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// Their mean.
    pub mean: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of `values`; zero if there are none.
    pub fn from_values(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<_> = values.collect();
        if values.is_empty() {
            return Self::default();
        }
        Self {
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            mean: values.iter().sum::<f64>() / values.len() as f64,
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

impl Bars {
    /// Returns the plot as SVG.
    pub fn svg(&self) -> String {
        let mut drawing = Drawing::new(&self.title, "", &self.y_label);
        let axis = Axis::to_rounded(
            self.series
                .iter()
                .flat_map(|(_, values)| values.iter().map(|value| value.max)),
        );
        drawing.y_axis(&axis);
        let group_width = (RIGHT - LEFT) / self.groups.len().max(1) as f64;
        let bar_width = group_width * 0.8 / self.series.len().max(1) as f64;
        for (number, group) in self.groups.iter().enumerate() {
            let middle = LEFT + group_width * (number as f64 + 0.5);
            let y = BOTTOM + 16.0;
            drawing.add(format_args!(
                "<text x=\"{middle:.1}\" y=\"{y}\" text-anchor=\"end\" transform=\"rotate(-25 {middle:.1} {y})\">{}</text>",
                escaped(group)
            ));
        }
        for (number, (name, values)) in self.series.iter().enumerate() {
            drawing.legend(number, name);
            for (group, value) in values.iter().enumerate() {
                let x = LEFT + group_width * (group as f64 + 0.1) + bar_width * number as f64;
                bar(&mut drawing, &axis, x, bar_width, value, colour(number));
            }
        }
        drawing.finish()
    }
}

fn bar(drawing: &mut Drawing, axis: &Axis, x: f64, width: f64, value: &Spread, colour: &str) {
    let [min, mean, max] = [value.min, value.mean, value.max].map(|value| axis.place(value, BOTTOM, TOP));
    drawing.add(format_args!(
        "<rect class=\"bar\" x=\"{x:.1}\" y=\"{mean:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
        width * 0.95,
        BOTTOM - mean
    ));
    if value.max > value.min {
        let middle = x + width * 0.475;
        drawing.add(format_args!(
            "<line class=\"spread\" x1=\"{middle:.1}\" y1=\"{min:.1}\" x2=\"{middle:.1}\" y2=\"{max:.1}\" stroke=\"#222\"/>"
        ));
    }
}
