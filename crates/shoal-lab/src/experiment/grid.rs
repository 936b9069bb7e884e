//! The `[grid]` of an experiment: the varied settings, in every combination.
//!
//! Each array under a key of the settings is an axis: `cluster.policy = ["lru", "sieve"]`. The axis `variant`
//! is special: its points are tables with a `name` and any settings, for variations that change several
//! settings at once.

use toml::{Table, Value};

/// A point on an axis of the grid.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Label {
    /// The varied setting, or `variant`.
    pub axis: String,
    /// Its value at this point, or the name of the variant.
    pub point: String,
}

/// The labels and the settings of one cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Point {
    pub(super) labels: Vec<Label>,
    /// Settings that replace those of the experiment.
    pub(super) patch: Table,
}

/// Returns every combination: axes in the order of their names, the last one changing fastest; their points
/// in the order of the file. Without a grid, returns one point without labels.
pub(super) fn points(grid: Option<Value>) -> Result<Vec<Point>, String> {
    let mut points = vec![Point::default()];
    let grid = match grid {
        None => return Ok(points),
        Some(Value::Table(grid)) => grid,
        Some(_) => {
            return Err("`grid` is not a table\nhint: write [grid] and below it what is varied".to_owned());
        }
    };
    let mut axes = Vec::new();
    collect(&grid, &mut Vec::new(), &mut axes)?;
    for axis in axes {
        let extended = points
            .iter()
            .flat_map(|point| axis.iter().map(move |next| point.and(next)));
        points = extended.collect();
    }
    Ok(points)
}

/// Merges `patch` into `table`. Tables are merged, unless the patch sets the kind of the table; all other
/// values are replaced.
pub(super) fn merge(table: &mut Table, patch: Table) {
    for (key, value) in patch {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(patch)) if !has_kind(&patch) => merge(inner, patch),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

/// Returns true if a table sets a kind. Tables of another kind have other keys, so those of the previous kind
/// must not stay.
fn has_kind(table: &Table) -> bool {
    table.contains_key("kind") || table.contains_key("by")
}

impl Point {
    fn and(&self, next: &Self) -> Self {
        let mut patch = self.patch.clone();
        merge(&mut patch, next.patch.clone());
        Self {
            labels: [&self.labels[..], &next.labels].concat(),
            patch,
        }
    }
}

/// Collects the axes below `table`, whose keys start with `path`.
fn collect(table: &Table, path: &mut Vec<String>, axes: &mut Vec<Vec<Point>>) -> Result<(), String> {
    for (key, value) in table {
        path.push(key.clone());
        match value {
            Value::Table(inner) => collect(inner, path, axes)?,
            Value::Array(values) if path.as_slice() == ["variant"] => {
                axes.push(values.iter().map(variant).collect::<Result<_, _>>()?);
            }
            Value::Array(values) => axes.push(values.iter().map(|value| setting(path, value)).collect()),
            other => {
                let key = path.join(".");
                return Err(format!(
                    "`grid.{key}` is {other}\nhint: write the values to try: {key} = [{other}]"
                ));
            }
        }
        path.pop();
    }
    Ok(())
}

fn variant(value: &Value) -> Result<Point, String> {
    let named = |table: &Table| {
        let mut patch = table.clone();
        match patch.remove("name")? {
            Value::String(name) => Some((name, patch)),
            _ => None,
        }
    };
    let (point, patch) = value.as_table().and_then(named).ok_or(
        "a variant of the grid has no name\nhint: write [[grid.variant]], name = \"...\" and the settings it changes",
    )?;
    let axis = "variant".to_owned();
    Ok(Point {
        labels: vec![Label { axis, point }],
        patch,
    })
}

fn setting(path: &[String], value: &Value) -> Point {
    let point = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let nested = path.iter().rev().fold(value.clone(), |inner, key| {
        Value::Table(Table::from_iter([(key.clone(), inner)]))
    });
    let patch = match nested {
        Value::Table(patch) => patch,
        _ => Table::new(),
    };
    Point {
        labels: vec![Label {
            axis: path.join("."),
            point,
        }],
        patch,
    }
}

#[cfg(test)]
mod tests {
    use toml::Table;

    use super::merge;

    #[test]
    fn a_patch_changes_what_it_names_and_replaces_what_has_another_kind() {
        let merged = |patch: &str| {
            let mut table: Table = "a = 1\ns = { kind = \"x\", n = 1, m = 2 }".parse().unwrap();
            merge(&mut table, patch.parse().unwrap());
            table
        };
        assert_eq!(
            merged("s.n = 5"),
            "a = 1\ns = { kind = \"x\", n = 5, m = 2 }".parse().unwrap()
        );
        assert_eq!(
            merged("s = { kind = \"y\", k = 3 }"),
            "a = 1\ns = { kind = \"y\", k = 3 }".parse().unwrap()
        );
    }
}
