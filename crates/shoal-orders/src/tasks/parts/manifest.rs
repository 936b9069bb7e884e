//! A list of objects as operators send it, as nodes keep it, and as S3 announces uploads.
//!
//! Operators write one URI a line, as it is. Nodes keep one name a line: the bucket, a slash, and the key
//! with all bytes percent-encoded that could be mistaken. Both are read line by line, so that no list is ever
//! in memory as a whole.

use std::fmt::Display;

use http::StatusCode;
use percent_encoding::percent_decode;
use serde::Deserialize;
use shoal_s3::object::ObjectName;
use shoal_s3::target;
use shoal_s3::uri::S3Uri;

use crate::tasks::refusal::TaskRefusal;

/// Maximum number of objects of a list.
pub const OBJECTS_MAX: u64 = 4_000_000;

/// Maximum number of bytes of a list, as nodes keep it.
pub const BYTES_MAX: u64 = 1 << 30;

/// The longest line in bytes: a bucket and a key of 1024 bytes, with room to spare.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Returns the refusal of a list that is longer than nodes take.
pub fn too_long() -> TaskRefusal {
    let why =
        format!("the list has more than {OBJECTS_MAX} objects, or more than 1 GiB\nhint: send it in parts");
    TaskRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, why)
}

fn empty() -> TaskRefusal {
    TaskRefusal::bad("the list names no object\nhint: write one URI a line, such as s3://bucket/key")
}

/// Turns the lines of an operator into the lines that nodes keep, as they come.
#[derive(Debug, Default)]
pub struct Lines {
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
    /// The lines that were read, empty ones included.
    read: u64,
    /// The objects that they named.
    pub objects: u64,
}

impl Lines {
    /// Reads the next bytes. Returns the lines that end in them.
    ///
    /// # Errors
    ///
    /// Fails at a line that is not the URI of an object.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<u8>, TaskRefusal> {
        let mut out = Vec::new();
        let mut parts = bytes.split(|byte| *byte == b'\n');
        let last = parts.next_back().expect("a split has a last part");
        for part in parts {
            let mut line = std::mem::take(&mut self.rest);
            line.extend_from_slice(part);
            self.line(&line, &mut out)?;
        }
        self.rest.extend_from_slice(last);
        if self.rest.len() > LINE_BYTES_MAX {
            return Err(self.bad(&"it is too long"));
        }
        Ok(out)
    }

    /// Reads the last line, which may have no end, and returns it.
    ///
    /// # Errors
    ///
    /// Fails if that is not the URI of an object, or if there was none at all.
    pub fn end(&mut self) -> Result<Vec<u8>, TaskRefusal> {
        let (line, mut out) = (std::mem::take(&mut self.rest), Vec::new());
        self.line(&line, &mut out)?;
        if self.objects == 0 {
            return Err(empty());
        }
        Ok(out)
    }

    fn line(&mut self, line: &[u8], out: &mut Vec<u8>) -> Result<(), TaskRefusal> {
        self.read += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A comment, or nothing.
        if line.is_empty() || line[0] == b'#' {
            return Ok(());
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(self.bad(&"it is too long"));
        }
        let (bucket, key) = split(line).ok_or_else(|| self.bad(&"it does not begin with s3://"))?;
        // The key may be any bytes; what else a URI has to be does not depend on it.
        let shape = format!("s3://{}/", String::from_utf8_lossy(bucket));
        let S3Uri { bucket, .. } = shape.parse().map_err(|error| self.bad(&error))?;
        if key.is_empty() {
            return Err(self.bad(&"it names a bucket"));
        }
        if key.len() > 1024 {
            return Err(self.bad(&"its key is longer than 1024 bytes"));
        }
        write_name(&bucket, key, out);
        self.objects += 1;
        if self.objects > OBJECTS_MAX {
            return Err(too_long());
        }
        Ok(())
    }

    fn bad(&self, why: &dyn Display) -> TaskRefusal {
        let (line, hint) = (self.read.max(1), "write one URI a line, such as s3://bucket/key");
        let why = format!("line {line} is not the URI of an object: {why}\nhint: {hint}");
        TaskRefusal::bad(why)
    }
}

/// Splits a URI into its bucket and its key.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let path = line.strip_prefix(b"s3://")?;
    let slash = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
    Some((&path[..slash], path.get(slash + 1..).unwrap_or_default()))
}

/// Adds a line as nodes keep it.
fn write_name(bucket: &str, key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(bucket.as_bytes());
    out.push(b'/');
    out.extend_from_slice(target::key(key).as_bytes());
    out.push(b'\n');
}

/// Reads a line that a node has kept, without its end.
pub fn read_name(line: &[u8]) -> Option<ObjectName> {
    let slash = line.iter().position(|byte| *byte == b'/')?;
    let key: Vec<u8> = percent_decode(&line[slash + 1..]).collect();
    let bucket = std::str::from_utf8(&line[..slash]).ok()?;
    let is_name = !bucket.is_empty() && !key.is_empty();
    is_name.then(|| ObjectName {
        bucket: bucket.into(),
        key: key.into(),
        version: None,
    })
}

/// An announcement of S3 that objects were written or removed, as queues and topics deliver it.
#[derive(Debug, Deserialize)]
struct Notification {
    #[serde(rename = "Records")]
    records: Vec<NotificationRecord>,
}

#[derive(Debug, Deserialize)]
struct NotificationRecord {
    #[serde(rename = "eventName")]
    event: Option<String>,
    s3: NotifiedObject,
}

impl NotificationRecord {
    /// Returns true if the event has removed the object. The end of its life is `LifecycleExpiration` at AWS,
    /// and at Ceph also `ObjectLifecycle:Expiration`. Some begin the name with `s3:`.
    fn removes(&self) -> bool {
        const REMOVALS: [&str; 3] = [
            "ObjectRemoved:",
            "LifecycleExpiration:",
            "ObjectLifecycle:Expiration:",
        ];
        let event = self.event.as_deref().unwrap_or_default();
        let event = event.strip_prefix("s3:").unwrap_or(event);
        REMOVALS.iter().any(|removal| event.starts_with(removal))
    }
}

#[derive(Debug, Deserialize)]
struct NotifiedObject {
    bucket: NotifiedBucket,
    object: NotifiedKey,
}

#[derive(Debug, Deserialize)]
struct NotifiedBucket {
    name: String,
}

#[derive(Debug, Deserialize)]
struct NotifiedKey {
    key: String,
}

/// Returns true if a document in JSON announces objects.
pub fn is_notification(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct AnyRecords {
        #[serde(rename = "Records")]
        _records: serde::de::IgnoredAny,
    }
    serde_json::from_slice::<AnyRecords>(body).is_ok()
}

/// Returns the objects that a document of S3 announces, one a line as nodes keep them, and their number.
/// Those that were removed are left out, which may be all of them. Keys are encoded there as in a query.
///
/// # Errors
///
/// Fails if it is no such document, or announces nothing.
pub fn of_notification(body: &[u8]) -> Result<(Vec<u8>, u64), TaskRefusal> {
    let misread = |why: &dyn Display| {
        let hint = "send the document of S3 as it is, with its Records";
        TaskRefusal::bad(format!("the notification is not understood: {why}\nhint: {hint}"))
    };
    let notification: Notification = serde_json::from_slice(body).map_err(|error| misread(&error))?;
    if notification.records.is_empty() {
        return Err(empty());
    }
    let (mut out, mut objects) = (Vec::new(), 0);
    let there = notification.records.iter().filter(|record| !record.removes());
    for NotificationRecord { s3, .. } in there {
        let key: Vec<u8> = percent_decode(s3.object.key.replace('+', " ").as_bytes()).collect();
        let shape = format!("s3://{}/", s3.bucket.name);
        let S3Uri { bucket, .. } = shape.parse().map_err(|error| misread(&error))?;
        if key.is_empty() || key.len() > 1024 {
            return Err(misread(&"a key is empty or too long"));
        }
        write_name(&bucket, &key, &mut out);
        objects += 1;
    }
    Ok((out, objects))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};

    use super::{Lines, TaskRefusal, empty, is_notification, of_notification, read_name};

    /// Returns the names in a list that comes in pieces of `piece` bytes.
    fn names(list: &[u8], piece: usize) -> Result<Vec<(String, Vec<u8>)>, TaskRefusal> {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for piece in list.chunks(piece.max(1)) {
            out.extend(lines.push(piece)?);
        }
        out.extend(lines.end()?);
        let kept: Vec<_> = out
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .collect();
        assert_eq!(kept.len() as u64, lines.objects);
        let names = kept
            .into_iter()
            .map(|line| read_name(line).expect("it was written here"));
        Ok(names
            .map(|name| (name.bucket.to_string(), name.key.to_vec()))
            .collect())
    }

    #[test]
    fn a_list_has_one_object_a_line() {
        let list = b"s3://b/a\r\n\n# a comment\ns3://c/x y%20+/\xff\x07\ns3://b//";
        for piece in [1, 3, 1000] {
            let names = names(list, piece).unwrap();
            let expected: [(&str, &[u8]); 3] = [("b", b"a"), ("c", b"x y%20+/\xff\x07"), ("b", b"/")];
            assert!(
                names.iter().map(|(bucket, key)| (&**bucket, &**key)).eq(expected),
                "{names:?}"
            );
        }
    }

    #[test]
    fn the_error_about_a_line_that_names_no_object_has_its_number() {
        let long = format!("s3://b/{}", "k".repeat(1025));
        let endless = "x".repeat(5000);
        for (list, line, why) in [
            ("s3://b/a\nb/a\n", 2, "does not begin"),
            ("s3://b/a\n\ns3://b\n", 3, "names a bucket"),
            ("s3://b/", 1, "names a bucket"),
            ("s3:///a", 1, "names no bucket"),
            ("s3://a b/a", 1, "a bucket name"),
            (&long, 1, "longer than 1024"),
            (&endless, 1, "too long"),
        ] {
            let error = names(list.as_bytes(), 100).unwrap_err();
            let begins = format!("line {line} is not the URI of an object: ");
            assert!(
                error.why.starts_with(&begins) && error.why.contains(why),
                "{error}"
            );
            assert!(error.to_string().contains("\nhint: "));
        }
        assert_eq!(names(b"\n# nothing\n", 9), Err(empty()));
    }

    #[test]
    fn an_announcement_of_s3_is_a_list() {
        let document = br#"{"Records": [
            {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "b", "arn": "x"}, "object": {"key": "a+b%2Bc%0A", "size": 7}}},
            {"s3": {"bucket": {"name": "c"}, "object": {"key": "d/e"}}}
        ]}"#;
        assert!(is_notification(document) && !is_notification(br#"{"kind": "prefetch"}"#));
        let (lines, objects) = of_notification(document).unwrap();
        let mut kept = lines.split(|byte| *byte == b'\n');
        assert_eq!(objects, 2);
        assert_eq!(&*read_name(kept.next().unwrap()).unwrap().key, b"a b+c\n");
        assert_eq!(&*read_name(kept.next().unwrap()).unwrap().bucket, "c");
        for bad in [
            "{\"Records\": []}",
            "{\"Records\": [{}]}",
            "{\"Records\": 1}",
            "[]",
            "{\"Records\": [{\"s3\": {\"bucket\": {\"name\": \"a b\"}, \"object\": {\"key\": \"k\"}}}]}",
        ] {
            let error = of_notification(bad.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("\nhint: "), "{error}");
        }
    }

    #[test]
    fn objects_that_an_announcement_of_s3_removes_are_left_out() {
        let record = |event: &str, key: &str| {
            serde_json::json!({
                "eventName": event, "s3": { "bucket": { "name": "b" }, "object": { "key": key } },
            })
        };
        let removals = [
            "ObjectRemoved:Delete",
            "ObjectRemoved:DeleteMarkerCreated",
            "s3:ObjectRemoved:Delete",
            "LifecycleExpiration:Delete",
            "s3:LifecycleExpiration:DeleteMarkerCreated",
            "s3:ObjectLifecycle:Expiration:Current",
        ];
        for event in removals {
            let records = [record(event, "gone")];
            let document = serde_json::json!({ "Records": records }).to_string();
            assert_eq!(
                of_notification(document.as_bytes()).unwrap(),
                (vec![], 0),
                "{event}"
            );
            let records = [record(event, "gone"), record("s3:ObjectCreated:Copy", "here")];
            let document = serde_json::json!({ "Records": records }).to_string();
            let (lines, objects) = of_notification(document.as_bytes()).unwrap();
            assert_eq!((&lines[..], objects), (&b"b/here\n"[..], 1), "{event}");
        }
        for event in ["ObjectRestore:Completed", "s3:ObjectLifecycle:Transition:Current"] {
            let document = serde_json::json!({ "Records": [record(event, "k")] }).to_string();
            assert_eq!(of_notification(document.as_bytes()).unwrap().1, 1, "{event}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(list in vec(any::<u8>(), 0..300), piece in 1..50_usize) {
            let _ = names(&list, piece);
            let _ = of_notification(&list);
            let _ = read_name(&list);
        }

        #[test]
        fn any_key_without_a_line_end_comes_back(key in vec(any::<u8>(), 1..60)) {
            let key: Vec<u8> = key.into_iter().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
            if !key.is_empty() {
                let list = [b"s3://b/", &key[..], b"\n"].concat();
                assert_eq!(names(&list, 7).unwrap(), [("b".to_owned(), key)]);
            }
        }
    }
}
