//! The facet `shoal`: what OpenLineage lacks. Jobs and runs have it, and datasets.

use serde_json::Value;
use shoal_base::words;

use crate::event::{EventError, cut, millis, text};
use crate::location::Dataset;

/// Maximum number of stages that one event announces, and of paths of a stage.
const STAGES_MAX: usize = 256;
const PATHS_MAX: usize = 1_000;

/// The highest priority.
pub const PRIORITY_MAX: u8 = 100;

words! {
    /// How long the objects that a run writes are of use.
    pub enum Life {
        /// As long as the run, with the runs around it and the readers behind it that are announced.
        Run = "run",
    }
}

/// A stage of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// The paths that it reads: `s3://bucket/key`.
    pub reads: Vec<String>,
    /// The paths that it writes.
    pub writes: Vec<String>,
    /// How long what it writes is of use; `None` if nothing is said.
    pub life: Option<Life>,
    /// Which stage goes first: the one with the highest. `None`: that of the run.
    pub priority: Option<u8>,
    /// The size of what it reads of other runs, as far as it is expected.
    pub bytes: Option<u64>,
}

/// The facet of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunFacet {
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) submit_ms: Option<u64>,
    pub(crate) priority: u8,
    pub(crate) stages: Vec<Stage>,
}

/// The facet of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatasetFacet {
    pub(crate) life: Option<Life>,
    pub(crate) bytes: Option<u64>,
}

impl RunFacet {
    /// Reads the facet from the facets of a run, or else of a job.
    pub(crate) fn of(run_facets: &Value, job_facets: &Value) -> Result<Self, EventError> {
        let facet = [run_facets, job_facets]
            .into_iter()
            .find_map(|facets| facets.get("shoal"));
        let Some(facet) = facet else {
            return Ok(Self::default());
        };
        let stages = facet
            .get("stages")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let stages: Vec<Stage> = stages
            .take(STAGES_MAX + 1)
            .enumerate()
            .map(|(place, stage)| stage_of(place, stage))
            .collect::<Result<_, _>>()?;
        if stages.len() > STAGES_MAX {
            return Err(EventError::new(format!("it has more than {STAGES_MAX} stages")));
        }
        Ok(Self {
            deadline_ms: text(facet, "/deadline").and_then(millis),
            submit_ms: text(facet, "/submit").and_then(millis),
            priority: priority(facet)?.unwrap_or_default(),
            stages,
        })
    }
}

impl DatasetFacet {
    /// Reads the facet of a dataset.
    pub(crate) fn of(dataset: &Dataset) -> Result<Self, EventError> {
        let Some(facet) = dataset.facets.get("shoal") else {
            return Ok(Self::default());
        };
        Ok(Self {
            life: life(facet)?,
            bytes: bytes(facet)?,
        })
    }
}

fn stage_of(place: usize, stage: &Value) -> Result<Stage, EventError> {
    let places = |key: &str| {
        let paths = stage.get(key).and_then(Value::as_array).into_iter().flatten();
        let paths = paths.filter_map(|path| {
            let dataset = Dataset {
                name: path.as_str()?.to_owned(),
                ..Dataset::default()
            };
            dataset.path(&[])
        });
        paths.take(PATHS_MAX).collect()
    };
    Ok(Stage {
        name: text(stage, "/name").map_or_else(|| place.to_string(), |name| cut(name).to_owned()),
        reads: places("reads"),
        writes: places("writes"),
        life: life(stage)?,
        priority: priority(stage)?,
        bytes: bytes(stage)?,
    })
}

// A value that is no such word or number is an error: the sender relies on it.

fn life(facet: &Value) -> Result<Option<Life>, EventError> {
    let known = |life: &Value| Life::ALL.into_iter().find(|known| life == known.as_str());
    read(facet, "life", known, "none of run")
}

fn priority(facet: &Value) -> Result<Option<u8>, EventError> {
    let fits = |priority: &u8| *priority <= PRIORITY_MAX;
    let number = |value: &Value| u8::try_from(value.as_u64()?).ok().filter(fits);
    read(facet, "priority", number, "no number from 0 to 100")
}

fn bytes(facet: &Value) -> Result<Option<u64>, EventError> {
    read(facet, "bytes", Value::as_u64, "no number of bytes")
}

fn read<T>(
    facet: &Value,
    key: &str,
    read: impl Fn(&Value) -> Option<T>,
    complaint: &str,
) -> Result<Option<T>, EventError> {
    let Some(value) = facet.get(key).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let wrong = || {
        let value = value.to_string();
        EventError::new(format!(
            "{key} in its facet shoal is {}, {complaint}",
            cut(&value)
        ))
    };
    read(value).ok_or_else(wrong).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{DatasetFacet, Life, RunFacet, STAGES_MAX};
    use crate::location::Dataset;

    fn of(facet: &Value) -> Result<RunFacet, String> {
        let facets = json!({ "shoal": facet });
        RunFacet::of(&Value::Null, &facets).map_err(|error| error.to_string())
    }

    #[test]
    fn stages_say_how_long_what_they_write_lives_what_goes_first_and_how_much_they_read() {
        let facet = of(&json!({ "priority": 7, "stages": [
            { "name": "s", "writes": ["s3://b/tmp"], "life": "run", "priority": 100, "bytes": 5 },
            { "life": null },
        ] }));
        let facet = facet.unwrap();
        assert_eq!(facet.priority, 7);
        let [first, second] = &facet.stages[..] else {
            panic!("{facet:?}")
        };
        assert_eq!(
            (first.life, first.priority, first.bytes),
            (Some(Life::Run), Some(100), Some(5))
        );
        assert_eq!(
            (&*second.name, second.life, second.priority, second.bytes),
            ("1", None, None, None)
        );
        let dataset: Dataset =
            serde_json::from_value(json!({ "facets": { "shoal": { "life": "run", "bytes": 3 } } })).unwrap();
        let facet = DatasetFacet {
            life: Some(Life::Run),
            bytes: Some(3),
        };
        assert_eq!(DatasetFacet::of(&dataset), Ok(facet));
    }

    #[test]
    fn a_mark_that_nodes_do_not_know_is_refused_and_not_left_out() {
        let many = vec![json!({}); STAGES_MAX + 1];
        for (facet, why) in [
            (
                json!({ "stages": [{ "life": "long" }] }),
                r#"life in its facet shoal is "long", none of run"#,
            ),
            (
                json!({ "priority": 101 }),
                "priority in its facet shoal is 101, no number from 0 to 100",
            ),
            (
                json!({ "stages": [{ "priority": -1 }] }),
                "is -1, no number from 0 to 100",
            ),
            (
                json!({ "stages": [{ "bytes": "1 GiB" }] }),
                r#"is "1 GiB", no number of bytes"#,
            ),
            (json!({ "stages": many }), "more than 256 stages"),
        ] {
            let error = of(&facet).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
