//! A reader of API descriptions that knows the words that ours uses, and no others.
//!
//! Objects are closed, so that a field which is not described is found, unless `additionalProperties` says
//! something else.

use std::collections::{BTreeMap, BTreeSet};

use http::{Method, StatusCode};
use serde_json::{Map, Value};

/// Words that constrain no value.
const PROSE: [&str; 4] = ["description", "examples", "default", "format"];

/// A document.
pub(super) struct Document(Value);

/// A described response.
pub(super) struct Response {
    /// `get /tasks 200`
    pub(super) name: String,
    pub(super) said: Value,
}

impl Document {
    pub(super) fn parse(text: &str) -> Self {
        let document: Value = serde_saphyr::from_str(text).expect("the description is YAML");
        assert_eq!(document["openapi"], "3.1.0");
        Self(document)
    }

    pub(super) fn paths(&self) -> BTreeSet<String> {
        self.0["paths"].as_object().unwrap().keys().cloned().collect()
    }

    pub(super) fn schemas(&self) -> &Map<String, Value> {
        self.0["components"]["schemas"].as_object().unwrap()
    }

    fn operation(&self, method: &Method, path: &str) -> &Value {
        &self.0["paths"][path][method.as_str().to_ascii_lowercase()]
    }

    pub(super) fn has(&self, method: &Method, path: &str) -> bool {
        !self.operation(method, path).is_null()
    }

    pub(super) fn query_parameters(&self, method: &Method, path: &str) -> BTreeSet<String> {
        let parameters = self.operation(method, path)["parameters"].as_array().unwrap();
        let in_query = parameters.iter().filter(|parameter| parameter["in"] == "query");
        in_query
            .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The names of all responses.
    pub(super) fn responses(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (path, methods) in self.0["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let responses = operation["responses"].as_object().into_iter();
                let statuses = responses.flat_map(Map::keys);
                names.extend(statuses.map(|status| format!("{method} {path} {status}")));
            }
        }
        names
    }

    /// The response to a request for a path like `/tasks/01J`.
    pub(super) fn response(&self, method: &Method, path: &str, status: StatusCode) -> Response {
        let is_like = |template: &String| {
            let parts: (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
            let mut pairs = parts.0.iter().zip(&parts.1);
            parts.0.len() == parts.1.len() && pairs.all(|(one, other)| one.starts_with('{') || one == other)
        };
        let path = self.paths().into_iter().find(is_like);
        let path = path.unwrap_or_else(|| panic!("no path is described for {method} {status}"));
        let name = format!(
            "{} {path} {}",
            method.as_str().to_ascii_lowercase(),
            status.as_u16()
        );
        let said = &self.operation(method, &path)["responses"][status.as_str()];
        assert!(!said.is_null(), "{name} is not described");
        Response {
            name,
            said: self.resolved(said).clone(),
        }
    }

    /// The value that `$ref` points to, or the value itself if it has no `$ref`.
    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value.get("$ref").and_then(Value::as_str) {
            None => value,
            Some(reference) => {
                let pointer = reference
                    .strip_prefix('#')
                    .expect("references stay in the document");
                let found = self.0.pointer(pointer);
                found.unwrap_or_else(|| panic!("{reference} names nothing"))
            }
        }
    }

    /// Checks a value against a schema.
    pub(super) fn check(&self, value: &Value, schema: &Value) -> Result<(), String> {
        let schema = self.resolved(schema).as_object().expect("a schema is an object");
        for (word, said) in schema {
            let is_right = match word.as_str() {
                "type" => is_of_type(value, said),
                "enum" => said.as_array().unwrap().contains(value),
                "minimum" => value.as_f64() >= said.as_f64(),
                "maximum" => value.as_f64() <= said.as_f64(),
                "pattern" => is_ulid(value.as_str().unwrap_or_default()),
                "oneOf" => {
                    let choices = said.as_array().unwrap().iter();
                    choices.filter(|choice| self.check(value, choice).is_ok()).count() == 1
                }
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        self.check(item, said)?;
                    }
                    true
                }
                "required" => value.as_object().is_none_or(|fields| {
                    let mut names = said.as_array().unwrap().iter();
                    names.all(|name| fields.contains_key(name.as_str().unwrap()))
                }),
                "properties" => {
                    self.check_fields(value, said, schema.get("additionalProperties"))?;
                    true
                }
                "additionalProperties" => {
                    if !schema.contains_key("properties") {
                        self.check_fields(value, &Value::Object(Map::new()), Some(said))?;
                    }
                    true
                }
                "$ref" => true,
                word if PROSE.contains(&word) => true,
                word => panic!("the reader of this test does not know {word:?}"),
            };
            if !is_right {
                return Err(format!("{value} is not of {word}: {said}"));
            }
        }
        Ok(())
    }

    fn check_fields(&self, value: &Value, known: &Value, others: Option<&Value>) -> Result<(), String> {
        let known: BTreeMap<_, _> = known.as_object().unwrap().iter().collect();
        for (name, field) in value.as_object().into_iter().flatten() {
            let result = match (known.get(name), others) {
                (Some(schema), _) => self.check(field, schema),
                (None, Some(Value::Object(_))) => self.check(field, others.unwrap()),
                (None, Some(Value::Bool(true))) => Ok(()),
                (None, _) => Err("it is not described".into()),
            };
            result.map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(())
    }
}

fn is_of_type(value: &Value, said: &Value) -> bool {
    let is = |word: &str| match word {
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        word => panic!("no type is called {word:?}"),
    };
    match said {
        Value::Array(words) => words.iter().any(|word| is(word.as_str().unwrap())),
        word => is(word.as_str().unwrap()),
    }
}

/// The only pattern of answers.
fn is_ulid(text: &str) -> bool {
    text.len() == 26
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() && !"ILOU".contains(c))
}
