//! The formats of recordings by name.

use std::str::FromStr;

use serde::Deserialize;
use shoal_base::spelling::unknown;
use shoal_base::words;
use shoal_base::words::Word as _;

use crate::block::Granularity;

words! {
    /// The format of a recording.
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Format {
        /// Comma-separated values with a header line: `object`, `bytes` and more.
        Csv = "csv",
        /// Binary records of 24 bytes, as libCacheSim writes them.
        OracleGeneral = "oracle-general",
        /// Server access log of Amazon S3 and of stores with the same format.
        S3Log = "s3-log",
        /// Access log of a Shoal node in JSON.
        AccessLog = "access-log",
        /// Tab-separated Hadoop jobs of SWIM.
        Swim = "swim",
        /// A workflow as WfCommons JSON 1.5.
        WfCommons = "wf-commons",
    }
}

impl Format {
    /// All names, for messages.
    pub fn names() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }

    /// The default unit of caching: 4 MiB as on a node, and whole objects for traces of objects or of jobs
    /// whose inputs have terabytes.
    pub fn granularity(self) -> Granularity {
        match self {
            Self::OracleGeneral | Self::Swim => Granularity::Objects,
            _ => Granularity::blocks(4 << 20),
        }
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::named(text).ok_or_else(|| unknown("format", text, Self::ALL.map(Self::as_str)))
    }
}
