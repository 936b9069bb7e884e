//! The paths of a history and their prefixes, each parsed once.

use std::ops::Index;

use super::{DATES_MAX, Dated, Padding, PathDate, generalized, parent};
use crate::run::interned::Interned;

/// Id of a path or a prefix. Paths of the history keep their ids.
pub(crate) type PathId = u32;

/// A parsed path.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// Id of its shape.
    pub(crate) shape: u32,
    /// Id of its shape without ids and numbers.
    pub(crate) general: u32,
    /// Its parent prefix; `None` if that is a whole bucket.
    pub(crate) parent: Option<PathId>,
    /// Its dates.
    pub(crate) dates: Box<[PathDate]>,
    /// The digits of its dates.
    pub(crate) padding: Padding,
}

/// Parsed paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    texts: Interned,
    shapes: Interned,
    generals: Interned,
    parts: Vec<Parts>,
}

impl Index<PathId> for Paths {
    type Output = Parts;

    fn index(&self, path: PathId) -> &Parts {
        &self.parts[path as usize]
    }
}

impl Paths {
    /// Parses the paths of a history and their prefixes.
    pub(crate) fn new(texts: &Interned) -> Self {
        let mut paths = Self {
            texts: texts.clone(),
            ..Self::default()
        };
        let mut at = 0;
        // The loop also visits the parents it adds.
        while at < paths.texts.len() {
            let text = paths.texts.text(at as u32).to_owned();
            let dated = Dated::from_path(&text);
            assert!(dated.dates.len() <= DATES_MAX, "further dates stay in the shape");
            let parts = Parts {
                shape: paths.shapes.number(&dated.shape),
                general: paths.generals.number(&generalized(&dated.shape)),
                parent: parent(&text).map(|parent| paths.texts.number(parent)),
                dates: dated.dates.into(),
                padding: dated.padding,
            };
            paths.parts.push(parts);
            at += 1;
        }
        paths
    }

    /// Returns the path as text.
    pub(crate) fn text(&self, path: PathId) -> &str {
        self.texts.text(path)
    }

    /// Returns the id of a path or prefix, if it is in the table.
    pub(crate) fn find(&self, text: &str) -> Option<PathId> {
        self.texts.find(text)
    }

    /// Returns the text of a shape.
    pub(crate) fn shape_text(&self, shape: u32) -> &str {
        self.shapes.text(shape)
    }

    /// Returns true if it is a prefix and not an object.
    pub(crate) fn is_prefix(&self, path: PathId) -> bool {
        self.text(path).ends_with('/')
    }
}

#[cfg(test)]
mod tests {
    use super::Paths;
    use crate::run::interned::Interned;

    #[test]
    fn prefixes_of_paths_are_in_the_table() {
        let mut texts = Interned::default();
        let path = texts.number("s3://b/t/dt=2026-11-20/part-00000.parquet");
        let paths = Paths::new(&texts);
        let day = paths[path].parent.unwrap();
        assert_eq!(paths.text(day), "s3://b/t/dt=2026-11-20/");
        assert!(paths.is_prefix(day) && !paths.is_prefix(path));
        let table = paths[day].parent.unwrap();
        assert_eq!((paths.text(table), paths[table].parent), ("s3://b/t/", None));
        assert_eq!((paths[day].dates.len(), paths[table].dates.len()), (1, 0));
        assert_eq!(paths.find("s3://b/t/"), Some(table));
    }
}
