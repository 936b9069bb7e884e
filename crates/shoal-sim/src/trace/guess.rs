//! Recognizes the format of a file by its name, or else by its beginning.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::error::TraceError;
use super::format::Format;

impl Format {
    /// The format of the file at `path`.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is compressed, or has an unknown format.
    pub fn of_file(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|source| TraceError::Io {
            path: path.to_owned(),
            source,
        })?;
        Self::guess(path, &mut BufReader::new(file))
    }

    /// Recognizes the format of the file at `path` by its name first and then by its beginning. Consumes
    /// nothing from `file`.
    pub(super) fn guess(path: &Path, file: &mut impl BufRead) -> Result<Self, TraceError> {
        let start = file.fill_buf().map_err(|source| TraceError::Io {
            path: path.to_owned(),
            source,
        })?;
        if let Some(command) = unpacks(start) {
            return Err(TraceError::Compressed {
                path: path.to_owned(),
                command,
            });
        }
        let name = path.to_string_lossy().to_lowercase();
        by_name(&name)
            .or_else(|| by_start(&String::from_utf8_lossy(&start[..start.len().min(4096)])))
            .ok_or_else(|| TraceError::UnknownFormat(path.to_owned()))
    }
}

fn unpacks(start: &[u8]) -> Option<&'static str> {
    let marks: [(&[u8], _); 3] = [
        (b"\x1f\x8b", "gzip -dc"),
        (b"\x28\xb5\x2f\xfd", "zstd -dc"),
        (b"\xfd7zXZ", "xz -dc"),
    ];
    let (_, command) = marks.iter().find(|(mark, _)| start.starts_with(mark))?;
    Some(command)
}

fn by_name(name: &str) -> Option<Format> {
    let ends = [
        (".csv", Format::Csv),
        (".oraclegeneral", Format::OracleGeneral),
        (".oraclegeneral.bin", Format::OracleGeneral),
        (".tsv", Format::Swim),
    ];
    ends.iter()
        .find(|(end, _)| name.ends_with(end))
        .map(|(_, format)| *format)
}

fn by_start(start: &str) -> Option<Format> {
    let line = start.lines().next()?;
    if line.starts_with('{') {
        let log = line.contains("\"target\":");
        return Some(if log { Format::AccessLog } else { Format::WfCommons });
    }
    let is_s3 = line.contains(" [") && ["REST.", "BATCH.", "S3."].iter().any(|word| line.contains(word));
    is_s3.then_some(Format::S3Log)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Format;

    fn guess(name: &str, start: &[u8]) -> Result<Format, String> {
        Format::guess(Path::new(name), &mut &*start).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_or_a_beginning_tells_the_format() {
        assert_eq!(guess("a.CSV", b"x"), Ok(Format::Csv));
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

    #[test]
    fn a_compressed_trace_is_refused_with_the_command_that_unpacks_it() {
        let told = guess("a.csv.zst", b"\x28\xb5\x2f\xfd").unwrap_err();
        assert!(told.contains("zstd -dc a.csv.zst"), "{told}");
    }
}
