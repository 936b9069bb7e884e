//! The paths of a history and the prefixes they lie in, each taken apart once.

use super::{DATES_MAX, Dated, Grain, Padding, PathDate, generalized, parent};
use crate::interned::Interned;

/// A path or a prefix, by its number. Paths of the history keep the numbers that they have there.
pub(crate) type PathId = u32;

/// Stands for "has none", in place of a number.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Parts {
    shape: u32,
    /// The shape without ids and numbers.
    general: u32,
    /// The prefix that it lies in.
    parent: u32,
    dates: [PathDate; DATES_MAX],
    dates_len: u8,
    padding: Padding,
}

/// Paths, taken apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    texts: Interned,
    shapes: Interned,
    generals: Interned,
    parts: Vec<Parts>,
}

impl Paths {
    /// Takes apart the paths of a history.
    pub(crate) fn of(texts: &Interned) -> Self {
        let mut paths = Self {
            texts: texts.clone(),
            ..Self::default()
        };
        let mut at = 0;
        // Parents are added while this goes on, and have parents themselves.
        while at < paths.texts.len() {
            let text = paths.texts.text(at as u32).to_owned();
            let dated = Dated::of(&text);
            let mut dates = [PathDate {
                grain: Grain::Day,
                count: 0,
            }; DATES_MAX];
            dates[..dated.dates.len()].copy_from_slice(&dated.dates);
            let parts = Parts {
                shape: paths.shapes.number(&dated.shape),
                general: paths.generals.number(&generalized(&dated.shape)),
                parent: parent(&text).map_or(NONE, |parent| paths.texts.number(parent)),
                dates,
                dates_len: dated.dates.len() as u8,
                padding: dated.padding,
            };
            paths.parts.push(parts);
            at += 1;
        }
        paths
    }

    /// The path as text.
    pub(crate) fn text(&self, path: PathId) -> &str {
        self.texts.text(path)
    }

    /// The number of a path or prefix, if it is in the table.
    pub(crate) fn find(&self, text: &str) -> Option<PathId> {
        self.texts.find(text)
    }

    /// The number of its shape.
    pub(crate) fn shape(&self, path: PathId) -> u32 {
        self.parts[path as usize].shape
    }

    /// The shape with this number.
    pub(crate) fn shape_text(&self, shape: u32) -> &str {
        self.shapes.text(shape)
    }

    /// The number of its shape without ids and numbers.
    pub(crate) fn general(&self, path: PathId) -> u32 {
        self.parts[path as usize].general
    }

    /// Its dates.
    pub(crate) fn dates(&self, path: PathId) -> &[PathDate] {
        let parts = &self.parts[path as usize];
        &parts.dates[..usize::from(parts.dates_len)]
    }

    /// The digits of its dates.
    pub(crate) fn padding(&self, path: PathId) -> Padding {
        self.parts[path as usize].padding
    }

    /// The prefix that it lies in; `None` for a prefix directly below a bucket.
    pub(crate) fn parent(&self, path: PathId) -> Option<PathId> {
        let parent = self.parts[path as usize].parent;
        (parent != NONE).then_some(parent)
    }

    /// Whether it is a prefix, not an object.
    pub(crate) fn is_prefix(&self, path: PathId) -> bool {
        self.text(path).ends_with('/')
    }
}

#[cfg(test)]
mod tests {
    use super::Paths;
    use crate::interned::Interned;

    #[test]
    fn prefixes_of_paths_are_in_the_table() {
        let mut texts = Interned::default();
        let path = texts.number("s3://b/t/dt=2026-11-20/part-00000.parquet");
        let paths = Paths::of(&texts);
        let day = paths.parent(path).unwrap();
        assert_eq!(paths.text(day), "s3://b/t/dt=2026-11-20/");
        assert!(paths.is_prefix(day) && !paths.is_prefix(path));
        let table = paths.parent(day).unwrap();
        assert_eq!((paths.text(table), paths.parent(table)), ("s3://b/t/", None));
        assert_eq!((paths.dates(day).len(), paths.dates(table).len()), (1, 0));
        assert_eq!(paths.find("s3://b/t/"), Some(table));
    }
}
