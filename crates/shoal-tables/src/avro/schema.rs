//! The schema of a container file, as far as its records have to be read or skipped.

use std::collections::HashMap;

use serde_json::Value as Json;

use crate::bounds::Budget;
use crate::error::TableError;

/// Maximum depth of a schema. Those of manifests have about ten levels.
const DEPTH_MAX: usize = 32;

/// Maximum number of types in a schema. A table of a thousand columns has a few thousand.
const TYPES_MAX: usize = 20_000;

/// A type, and the place of its values among the wanted ones.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) shape: Shape,
    /// The index of the wanted field whose value this is.
    pub(super) slot: Option<usize>,
}

/// The form in which a value is written.
#[derive(Debug)]
pub(super) enum Shape {
    Null,
    /// A number of bytes that is fixed.
    Fixed(usize),
    /// A number in as many bytes as it needs.
    Number,
    /// A length, and as many bytes.
    Bytes,
    Array(Box<Node>),
    /// The keys are texts.
    Map(Box<Node>),
    Union(Vec<Node>),
    Record(Vec<Node>),
}

/// Reads a schema. Wanted fields are named by their path from the record, such as `data_file.file_path`.
pub(super) fn read(schema: &[u8], wanted: &[&str]) -> Result<Node, TableError> {
    let schema: Json =
        serde_json::from_slice(schema).map_err(|_| TableError::Damaged("a schema is no JSON"))?;
    let mut compiler = Compiler {
        wanted,
        named: HashMap::new(),
        types: Budget::new(TYPES_MAX, "too many types in a schema"),
    };
    let place = Place {
        path: Some(""),
        depth: 0,
    };
    compiler.node(&schema, place)
}

struct Compiler<'a> {
    wanted: &'a [&'a str],
    /// Types by the last part of their names; `None` while they are read: a type within itself has no end.
    named: HashMap<&'a str, Option<&'a Json>>,
    types: Budget,
}

/// Where a type is in the schema.
#[derive(Clone, Copy)]
struct Place<'p> {
    /// The path of its field; `None` if no wanted field can be here.
    path: Option<&'p str>,
    depth: usize,
}

impl Place<'_> {
    /// Returns the place of types within this one that are no fields.
    const fn within(self) -> Self {
        Self {
            depth: self.depth + 1,
            ..self
        }
    }

    /// Returns the place of items, of which there may be many.
    const fn of_items(self) -> Self {
        Self {
            path: None,
            depth: self.depth + 1,
        }
    }
}

const UNKNOWN: TableError = TableError::Unknown("a type of Avro");

impl<'a> Compiler<'a> {
    fn node(&mut self, schema: &'a Json, place: Place<'_>) -> Result<Node, TableError> {
        if place.depth > DEPTH_MAX {
            return Err(TableError::TooLarge("a schema that is too deep"));
        }
        self.types.take(1)?;
        let shape = match schema {
            Json::String(name) => match of_word(name) {
                Some(shape) => shape,
                None => return self.reference(name, place),
            },
            Json::Array(branches) => {
                let branches = branches.iter().map(|branch| self.node(branch, place.within()));
                Shape::Union(branches.collect::<Result<_, _>>()?)
            }
            Json::Object(_) => return self.complex(schema, place),
            _ => return Err(UNKNOWN),
        };
        Ok(self.with_slot(shape, place))
    }

    /// Reads a type that is an object of JSON.
    fn complex(&mut self, schema: &'a Json, place: Place<'_>) -> Result<Node, TableError> {
        let shape = match schema["type"].as_str() {
            Some("array") => Shape::Array(Box::new(self.node(&schema["items"], place.of_items())?)),
            Some("map") => Shape::Map(Box::new(self.node(&schema["values"], place.of_items())?)),
            Some("record" | "enum" | "fixed") => return self.named(schema, place),
            // A word, or another type within.
            _ => return self.node(&schema["type"], place.within()),
        };
        Ok(self.with_slot(shape, place))
    }

    /// Reads a type that has a name. Where another type is used that defines it, it is defined once more.
    fn named(&mut self, schema: &'a Json, place: Place<'_>) -> Result<Node, TableError> {
        let name = last_part(schema["name"].as_str().ok_or(UNKNOWN)?);
        match self.named.insert(name, None) {
            Some(known) if !known.is_some_and(|known| std::ptr::eq(known, schema)) => {
                return Err(TableError::Unknown("a schema with two types of one name"));
            }
            _ => {}
        }
        let node = self.definition(schema, place)?;
        self.named.insert(name, Some(schema));
        Ok(node)
    }

    fn definition(&mut self, schema: &'a Json, place: Place<'_>) -> Result<Node, TableError> {
        let shape = match schema["type"].as_str() {
            Some("record") => Shape::Record(self.fields(&schema["fields"], place)?),
            Some("enum") => Shape::Number,
            _ => {
                let bytes = schema["size"]
                    .as_u64()
                    .and_then(|bytes| usize::try_from(bytes).ok());
                Shape::Fixed(bytes.ok_or(UNKNOWN)?)
            }
        };
        Ok(self.with_slot(shape, place))
    }

    /// Reads a type that was defined before.
    fn reference(&mut self, name: &str, place: Place<'_>) -> Result<Node, TableError> {
        let known = self.named.get(last_part(name)).copied().flatten();
        self.named(known.ok_or(UNKNOWN)?, place)
    }

    fn fields(&mut self, fields: &'a Json, place: Place<'_>) -> Result<Vec<Node>, TableError> {
        let fields = fields.as_array().ok_or(UNKNOWN)?;
        let nodes = fields.iter().map(|field| {
            let name = field["name"].as_str().ok_or(UNKNOWN)?;
            let path = place.path.map(|path| match path {
                "" => name.to_owned(),
                path => format!("{path}.{name}"),
            });
            let place = Place {
                path: path.as_deref(),
                depth: place.depth + 1,
            };
            self.node(&field["type"], place)
        });
        nodes.collect()
    }

    fn with_slot(&self, shape: Shape, place: Place<'_>) -> Node {
        let is_value = matches!(shape, Shape::Number | Shape::Bytes);
        let path = place.path.filter(|_| is_value);
        Node {
            slot: path.and_then(|path| self.wanted.iter().position(|wanted| *wanted == path)),
            shape,
        }
    }
}

fn of_word(word: &str) -> Option<Shape> {
    Some(match word {
        "null" => Shape::Null,
        "boolean" => Shape::Fixed(1),
        "int" | "long" => Shape::Number,
        "float" => Shape::Fixed(4),
        "double" => Shape::Fixed(8),
        "bytes" | "string" => Shape::Bytes,
        _ => return None,
    })
}

/// Returns a name without its namespace.
fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
