//! Names of datasets become places in S3.

use std::str::FromStr as _;

use serde::Deserialize;
use serde_json::Value;
use shoal_s3::uri::S3Uri;

/// The schemes under which programs name the same lake.
const SCHEMES: [&str; 3] = ["s3://", "s3a://", "s3n://"];

/// A dataset of an event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Dataset {
    /// The source: `s3://bucket`, or a catalog such as `trino://host:8080`.
    pub namespace: String,
    /// The name within it: a path, or `catalog.schema.table`.
    pub name: String,
    /// Facts about the dataset, of which other names for it are read.
    pub facets: Value,
    /// Facts about the dataset as an input.
    #[serde(rename = "inputFacets")]
    pub input_facets: Value,
}

/// Where the tables of a catalog are, as an operator gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The beginning of `namespace/name`, such as `trino://host:8080/hive.sales.`
    pub names: String,
    /// The place that replaces it: `s3://bucket/warehouse/sales/`.
    pub location: String,
}

impl Dataset {
    /// Returns the place of the dataset in S3 as `s3://bucket/key`, without a slash at its end: by its own
    /// name, by another name in its facet `symlinks`, or by one of `tables`. `None` if it is not in S3.
    pub fn path(&self, tables: &[Table]) -> Option<String> {
        let of = |namespace: &str, name: &str| in_s3(namespace, name);
        let links = self.facets.pointer("/symlinks/identifiers");
        let links = links.and_then(Value::as_array).into_iter().flatten();
        let mut links =
            links.filter_map(|link| Some((link.get("namespace")?.as_str()?, link.get("name")?.as_str()?)));
        of(&self.namespace, &self.name)
            .or_else(|| links.find_map(|(namespace, name)| of(namespace, name)))
            .or_else(|| self.in_table(tables))
    }

    /// Returns the bytes of the dataset that a run read, if the event says so.
    pub fn bytes(&self) -> Option<u64> {
        let statistics = self.input_facets.get("inputStatistics")?;
        ["size", "bytes"]
            .iter()
            .find_map(|key| statistics.get(key)?.as_u64())
    }

    fn in_table(&self, tables: &[Table]) -> Option<String> {
        let full = format!("{}/{}", self.namespace, self.name);
        let fitting = tables.iter().filter(|table| full.starts_with(&table.names));
        let table = fitting.max_by_key(|table| table.names.len())?;
        // The parts of a table's name are folders.
        let rest = full[table.names.len()..].replace('.', "/");
        normal(&format!("{}{rest}", table.location))
    }
}

/// Returns the place that a namespace and a name mean together, if it is in S3.
fn in_s3(namespace: &str, name: &str) -> Option<String> {
    if let Some(scheme) = SCHEMES.iter().find(|scheme| namespace.starts_with(**scheme)) {
        let root = namespace[scheme.len()..].trim_end_matches('/');
        // Some programs repeat the whole path in the name.
        return match SCHEMES.iter().find(|scheme| name.starts_with(**scheme)) {
            Some(scheme) => normal(&format!("s3://{}", &name[scheme.len()..])),
            None => normal(&format!("s3://{root}/{}", name.trim_start_matches('/'))),
        };
    }
    let scheme = SCHEMES.iter().find(|scheme| name.starts_with(**scheme))?;
    normal(&format!("s3://{}", &name[scheme.len()..]))
}

/// Returns a place as it is compared; `None` if it names no object and no prefix.
fn normal(uri: &str) -> Option<String> {
    let uri = S3Uri::from_str(uri.trim_end_matches('/')).ok()?;
    // A whole bucket is no input that anybody wants warm.
    (!uri.key.is_empty() && !uri.key.contains('*')).then(|| uri.to_string())
}

#[cfg(test)]
mod tests {
    use super::{Dataset, Table};

    fn path(json: &str) -> Option<String> {
        let tables = [
            Table {
                names: "trino://t:8080/".into(),
                location: "s3://lake/other/".into(),
            },
            Table {
                names: "trino://t:8080/hive.sales.".into(),
                location: "s3://lake/sales/".into(),
            },
        ];
        serde_json::from_str::<Dataset>(json).unwrap().path(&tables)
    }

    #[test]
    fn datasets_are_places_in_s3_whatever_the_program_calls_them() {
        let cases = [
            (r#"{"namespace":"s3://b","name":"a/t"}"#, Some("s3://b/a/t")),
            (r#"{"namespace":"s3a://b","name":"/a/t/"}"#, Some("s3://b/a/t")),
            (r#"{"namespace":"s3://b/","name":"a"}"#, Some("s3://b/a")),
            (r#"{"namespace":"s3","name":"s3n://b/a"}"#, Some("s3://b/a")),
            (r#"{"namespace":"s3://b","name":"s3a://b/a"}"#, Some("s3://b/a")),
            (
                r#"{"namespace":"trino://t:8080","name":"hive.sales.orders"}"#,
                Some("s3://lake/sales/orders"),
            ),
            (
                r#"{"namespace":"trino://t:8080","name":"c.s.t"}"#,
                Some("s3://lake/other/c/s/t"),
            ),
            (
                r#"{"namespace":"hive://m:9083","name":"db.t","facets":{"symlinks":{"identifiers":[
                    {"namespace":"x","name":"y","type":"TABLE"},
                    {"namespace":"s3a://b","name":"db.db/t","type":"LOCATION"}]}}}"#,
                Some("s3://b/db.db/t"),
            ),
            (r#"{"namespace":"file","name":"/data/t"}"#, None),
            (r#"{"namespace":"s3://b","name":"/"}"#, None),
            (r#"{"namespace":"s3://b"}"#, None),
            (r#"{"namespace":"s3://my bucket","name":"k"}"#, None),
            (r#"{"namespace":"s3://b","name":"a/*"}"#, None),
        ];
        for (json, expected) in cases {
            assert_eq!(path(json).as_deref(), expected, "{json}");
        }
    }
}
