//! The formats of histories, and their detection.

use std::path::Path;
use std::str::FromStr;

use shoal_base::spelling::unknown;
use shoal_base::words;
use shoal_base::words::Word as _;
use shoal_logs::AccessLog;

words! {
    /// The format of a history.
    pub enum Format {
        /// Comma-separated values with a header line, one row per input of a run.
        Csv = "csv",
        /// One JSON object a line, one per run.
        Jsonl = "jsonl",
        /// Event log of a Spark application.
        Spark = "spark",
        /// Requests: the access log of a node or of Amazon S3.
        S3 = "s3",
        /// Hadoop jobs of SWIM.
        Swim = "swim",
    }
}

impl Format {
    /// Returns all names, for messages.
    pub fn names() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }

    /// Guesses the format of a file from its name and its first bytes. The bytes decide, because logs of
    /// Spark and S3 can have any name.
    pub fn guess(name: &str, start: &[u8]) -> Option<Self> {
        let start = String::from_utf8_lossy(start);
        let line = start.lines().find(|line| !line.trim().is_empty())?;
        let log = AccessLog::guess(line);
        if line.starts_with('{') {
            return Some(if line.contains("\"Event\":") {
                Self::Spark
            } else if log.is_some() {
                Self::S3
            } else {
                Self::Jsonl
            });
        }
        if log.is_some() {
            return Some(Self::S3);
        }
        if line.split('\t').count() >= 6 {
            return Some(Self::Swim);
        }
        let is_header = line.split(',').any(|column| column.trim() == "submitted");
        let is_named = Path::new(name)
            .extension()
            .is_some_and(|end| end.eq_ignore_ascii_case("csv"));
        (is_header || is_named).then_some(Self::Csv)
    }
}

/// Number of bytes from which the format is guessed.
pub(crate) const START_BYTES: usize = 8_192;

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || ["auto"].into_iter().chain(Self::ALL.map(Self::as_str));
        Self::named(text).ok_or_else(|| unknown("format", text, names()))
    }
}

#[cfg(test)]
mod tests {
    use super::Format;

    #[test]
    fn the_beginning_of_a_file_tells_its_format() {
        for (start, format) in [
            ("name,submitted,input\n", Some(Format::Csv)),
            ("{\"name\":\"a\",\"submitted\":1}\n", Some(Format::Jsonl)),
            ("{\"Event\":\"SparkListenerLogStart\"}\n", Some(Format::Spark)),
            (
                "{\"timestamp\":\"x\",\"target\":\"shoal::access\"}",
                Some(Format::S3),
            ),
            (
                "79a5 bucket [06/Feb/2019:00:00:38 +0000] 192.0.2.3 79a5 3E57 REST.GET.OBJECT k",
                Some(Format::S3),
            ),
            ("job0\t1\t1\t100\t0\t0\n", Some(Format::Swim)),
            ("hello\n", None),
            ("", None),
        ] {
            assert_eq!(Format::guess("file", start.as_bytes()), format, "{start}");
        }
    }

    #[test]
    fn an_unknown_format_is_told_with_the_one_that_was_probably_meant() {
        let told = "sparc".parse::<Format>().unwrap_err();
        assert!(told.contains("did you mean `spark`?"), "{told}");
        assert_eq!("S3".parse(), Ok(Format::S3));
    }
}
