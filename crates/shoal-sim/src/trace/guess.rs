//! Recognizes the format of a file by its name, or else by its beginning.

use std::path::Path;

use shoal_logs::{AccessLog, FileError};

use super::error::TraceError;
use super::format::Format;
use super::opened;

impl Format {
    /// The format of the file at `path`.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or unpacked, or has an unknown format.
    pub fn of_file(path: &Path) -> Result<Self, TraceError> {
        let (start, _) = opened(path)?;
        Ok(Self::guess(&path.to_string_lossy(), &start)?)
    }

    /// Recognizes the format of a file by its name first and then by its beginning.
    pub(super) fn guess(name: &str, start: &[u8]) -> Result<Self, FileError> {
        by_name(&name.to_lowercase())
            .or_else(|| by_start(&String::from_utf8_lossy(start)))
            .ok_or_else(|| FileError::UnknownFormat {
                name: name.to_owned(),
                known: Self::names(),
            })
    }
}

fn by_name(name: &str) -> Option<Format> {
    let ends = [
        (".csv", Format::Csv),
        (".oraclegeneral", Format::OracleGeneral),
        (".oraclegeneral.bin", Format::OracleGeneral),
        (".tsv", Format::Swim),
    ];
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    ends.iter()
        .find(|(end, _)| name.ends_with(end))
        .map(|(_, format)| *format)
}

fn by_start(start: &str) -> Option<Format> {
    let line = start.lines().next()?;
    match AccessLog::guess(line) {
        Some(AccessLog::Node) => Some(Format::AccessLog),
        Some(AccessLog::S3Server) => Some(Format::S3Log),
        None => line.starts_with('{').then_some(Format::WfCommons),
    }
}

#[cfg(test)]
mod tests {
    use super::Format;

    fn guess(name: &str, start: &[u8]) -> Result<Format, String> {
        Format::guess(name, start).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_or_a_beginning_tells_the_format() {
        assert_eq!(guess("a.CSV", b"x"), Ok(Format::Csv));
        assert_eq!(guess("a.csv.zst", b"x"), Ok(Format::Csv));
        assert_eq!(guess("w.oracleGeneral", b"x"), Ok(Format::OracleGeneral));
        assert_eq!(guess("fb.tsv", b"x"), Ok(Format::Swim));
        assert_eq!(
            guess("a.log", b"{\"target\":\"shoal::access\"}"),
            Ok(Format::AccessLog)
        );
        assert_eq!(guess("a.json", b"{\n \"workflow\": {}"), Ok(Format::WfCommons));
        let s3 = b"79a5 bucket [06/Feb/2019:00:00:38 +0000] 192.0.2.3 79a5 3E57 REST.GET.OBJECT k";
        assert_eq!(guess("2019-02-06", s3), Ok(Format::S3Log));
        assert!(guess("a", b"hello").unwrap_err().contains("--format"));
    }
}
