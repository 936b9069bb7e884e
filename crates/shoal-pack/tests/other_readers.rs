//! Other programs open packs: Info-ZIP, Python and Java find each member and its bytes, and write nothing
//! outside of their folder. Without a program its test passes.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops where it cannot go on, helpers included"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use serde_json::Value;
use shoal_base::hex;
use shoal_pack::{Description, MEMBERS_MAX, PackBuilder, Part};
use tempfile::TempDir;
use ulid::Ulid;

/// Names and bytes of members, as a program found them.
type Found = Vec<(Vec<u8>, Vec<u8>)>;

/// A pack in a folder, and the bytes of each key.
struct Sample {
    folder: TempDir,
    objects: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Sample {
    fn new(objects: BTreeMap<Vec<u8>, Vec<u8>>, describe: fn(&[u8]) -> Description) -> Self {
        let mut builder = PackBuilder::default();
        for (key, bytes) in &objects {
            builder
                .add(key, &describe(bytes), Bytes::copy_from_slice(bytes))
                .unwrap();
        }
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("pack.zip"), builder.finish().pieces.concat()).unwrap();
        Self { folder, objects }
    }

    /// Keys that are hard to unpack, each with bytes of its own.
    fn hard() -> Self {
        let mut keys: Vec<Vec<u8>> = (0..128)
            .flat_map(|byte: u8| {
                [
                    vec![b'c', byte],
                    vec![byte, b'c'],
                    vec![b'c', byte, b'c'],
                    vec![byte],
                ]
            })
            .map(|key| [b"ascii/", &key[..]].concat())
            .collect();
        let texts = [
            "/etc/passwd",
            "../up",
            "../../up",
            "a/../../up",
            "..",
            ".",
            "/",
            "//",
            "a//b",
            "C:\\up",
            "C:/up",
            "\\up",
            "día/日本語/\u{1f41f}",
            "e\u{301}",
            "\u{feff}a",
            "\u{2028}",
            "\u{85}",
            "Case",
            "case",
            "CASE/file",
            "file",
            "file/below",
            "file/below/it",
            "marker/with bytes/",
            "_renamed/00000-a",
            "_RENAMED",
            "v;1",
            "v;1/a;b",
            "-rf",
            "~",
            "~/a",
            "@a",
            "$HOME",
            "`id`",
            "a\0b",
            "con",
            "x/",
            "META-INF/MANIFEST.MF",
            "a.zip",
        ];
        keys.extend(texts.map(|key| key.as_bytes().to_vec()));
        keys.push(b"caf\xe9".to_vec());
        let segment = |bytes| "s".repeat(bytes).into_bytes();
        keys.extend([
            segment(255),
            segment(256),
            vec![segment(255); 4].join(&b'/'),
            segment(1024),
        ]);
        keys.push(vec![b"d".to_vec(); 512].join(&b'/'));
        let objects = keys.into_iter().map(|key| {
            // Programs that search for records find some.
            let bytes = [&key, &b"\nPK\x05\x06\0\0\0\0PK\x01\x02PK\x03\x04\0\xff"[..]].concat();
            (key, bytes)
        });
        let empty = ["empty", "marker/", "marker/marker/", "file/"];
        let empty = empty.map(|key| (key.as_bytes().to_vec(), Vec::new()));
        Self::new(objects.chain(empty).collect(), description)
    }

    /// As many members as a pack can have.
    fn full() -> Self {
        let keys = (0..MEMBERS_MAX).map(|number| format!("many/{}/{number}", number / 1000).into_bytes());
        let bare = |bytes: &[u8]| Description {
            writer: String::new(),
            etag: String::new(),
            headers: HeaderMap::new(),
            of_reads: HeaderMap::new(),
            parts: Vec::new(),
            ..description(bytes)
        };
        Self::new(keys.map(|key| (key.clone(), key)).collect(), bare)
    }

    fn pack(&self) -> PathBuf {
        self.folder.path().join("pack.zip")
    }

    /// An empty folder beside the pack.
    fn target(&self) -> PathBuf {
        let target = self.folder.path().join("target");
        fs::create_dir(&target).unwrap();
        target
    }

    /// Checks that a program has unpacked each object, and nothing outside of its folder.
    fn check_unpacked(&self, target: &Path) {
        let mut found = Vec::new();
        walk(target, target, &mut found);
        // A folder is a member only if an empty object says so.
        found.retain(|(path, _)| !path.ends_with(b"/") || self.objects.get(path).is_some_and(Vec::is_empty));
        self.check(found);
        let beside = fs::read_dir(self.folder.path()).unwrap();
        let beside: BTreeSet<_> = beside.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(beside, ["pack.zip".into(), "target".into()].into());
    }

    /// Checks that these are the objects, under their keys or new names.
    fn check(&self, found: Found) {
        let keys: BTreeMap<_, _> = self.objects.iter().map(|(key, bytes)| (bytes, key)).collect();
        let mut names = BTreeSet::new();
        for (name, bytes) in found {
            let key = if bytes.is_empty() { &name } else { keys[&bytes] };
            assert_eq!(self.objects.get(key), Some(&bytes), "{}", name.escape_ascii());
            assert!(
                name == *key || name.starts_with(b"_renamed/"),
                "{}",
                name.escape_ascii()
            );
            assert!(names.insert(key.clone()), "{}", name.escape_ascii());
        }
        assert!(names.iter().eq(self.objects.keys()), "an object is missing");
    }
}

fn description(bytes: &[u8]) -> Description {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert("x-amz-meta-raw", HeaderValue::from_bytes(b"caf\xe9").unwrap());
    let mut of_reads = HeaderMap::new();
    of_reads.insert("x-amz-checksum-crc32", HeaderValue::from_static("AAAAAA=="));
    Description {
        sequence: bytes.len() as u64,
        id: Ulid(7),
        writer: "AKIAEXAMPLE".into(),
        modified: SystemTime::UNIX_EPOCH + Duration::from_millis(1_800_000_000_500),
        etag: "\"etag\"".into(),
        headers,
        of_reads,
        parts: vec![Part {
            number: 1,
            size_bytes: bytes.len() as u64,
            md5: [7; 16],
            checksum: vec![1, 2],
        }],
    }
}

/// Collects the files below a folder, and its folders with a slash.
fn walk(root: &Path, folder: &Path, found: &mut Found) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mut name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
        if path.is_dir() {
            walk(root, &path, found);
            name.push(b'/');
            found.push((name, Vec::new()));
        } else {
            found.push((name, fs::read(path).unwrap()));
        }
    }
}

/// Returns false where one of the programs is not installed.
fn are_installed(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| {
        let found = Command::new("which").arg(program).output();
        !found.unwrap().status.success()
    });
    missing
        .inspect(|program| eprintln!("skipped: {program} is not installed"))
        .is_none()
}

/// Runs a program in a folder and returns its output.
fn run(folder: &Path, program: &str, arguments: &[&Path]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder);
    // Names of files are UTF-8, and times UTC.
    let output = command
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{program}: {}\n{errors}",
        output.status
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Reads lines of a name and bytes in hexadecimal digits.
fn of_lines(lines: &str) -> Found {
    let decoded = |digits: &str| {
        let pairs = digits.as_bytes().chunks(2);
        let bytes = pairs.map(|pair| hex::decode::<1>(pair).unwrap()[0]);
        bytes.collect::<Vec<_>>()
    };
    let pairs = lines.lines().map(|line| line.split_once(' ').unwrap());
    pairs
        .map(|(name, bytes)| (decoded(name), decoded(bytes)))
        .collect()
}

fn readers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers")
}

#[test]
fn unzip_unpacks_each_object_with_its_time() {
    if !are_installed(&["unzip"]) {
        return;
    }
    let sample = Sample::hard();
    let target = sample.target();
    run(&target, "unzip", &[Path::new("-q"), &sample.pack()]);
    sample.check_unpacked(&target);
    let folder = fs::metadata(target.join("marker")).unwrap();
    assert_eq!(
        folder.permissions().mode() & 0o700,
        0o700,
        "its owner may enter it"
    );
    let modified = fs::metadata(target.join("empty")).unwrap().modified().unwrap();
    assert_eq!(modified, SystemTime::UNIX_EPOCH + Duration::from_hours(500_000));
    let full = Sample::full();
    run(full.folder.path(), "unzip", &[Path::new("-tqq"), &full.pack()]);
}

#[test]
fn python_reads_and_unpacks_each_object() {
    if !are_installed(&["python3"]) {
        return;
    }
    let sample = Sample::hard();
    let target = sample.target();
    let program = readers().join("read_pack.py");
    let lines = run(&target, "python3", &[&program, &sample.pack(), &target]);
    sample.check(of_lines(&lines));
    sample.check_unpacked(&target);
    let full = Sample::full();
    let [module, test] = ["-mzipfile", "-t"].map(Path::new);
    run(full.folder.path(), "python3", &[module, test, &full.pack()]);
}

#[test]
fn java_reads_each_object_by_the_directory_and_as_a_stream() {
    if !are_installed(&["java", "javac"]) {
        return;
    }
    for sample in [Sample::hard(), Sample::full()] {
        let program = readers().join("ReadPack.java");
        let lines = run(sample.folder.path(), "java", &[&program, &sample.pack()]);
        let (of_file, of_stream) = lines.split_once("stream\n").unwrap();
        sample.check(of_lines(of_file));
        sample.check(of_lines(of_stream));
    }
}

#[test]
fn jar_unpacks_each_object() {
    if !are_installed(&["jar"]) {
        return;
    }
    let sample = Sample::hard();
    let target = sample.target();
    run(&target, "jar", &[Path::new("xf"), &sample.pack()]);
    sample.check_unpacked(&target);
}

/// The page promises that its program prints all that a pack says.
#[test]
fn the_program_of_the_documentation_prints_each_key_and_description() {
    if !are_installed(&["python3"]) {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/pack-format.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, program) = page.split_once("```python\n").unwrap();
    let (program, _) = program.split_once("```").unwrap();
    let sample = Sample::hard();
    let path = sample.folder.path().join("objects.py");
    fs::write(&path, program).unwrap();
    let lines = run(sample.folder.path(), "python3", &[&path, &sample.pack()]);
    let documents: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(documents.len(), sample.objects.len());
    for (mut document, (key, bytes)) in documents.into_iter().zip(&sample.objects) {
        let of_document = document.as_object_mut().unwrap();
        assert_eq!(
            decoded(of_document.remove("key").unwrap().as_str().unwrap()),
            *key
        );
        of_document.remove("name").unwrap();
        let expected = serde_json::json!({
            "sequence": bytes.len(),
            "id": format!("{:032x}", 7),
            "writer": "AKIAEXAMPLE",
            "modified": 1_800_000_000.5,
            "etag": "\"etag\"",
            "headers": [["content-type", "text/plain"], ["x-amz-meta-raw", "caf\u{e9}"]],
            "headers_of_reads": [["x-amz-checksum-crc32", "AAAAAA=="]],
            "parts": [{"number": 1, "bytes": bytes.len(), "md5": "07".repeat(16), "checksum": "0102"}],
        });
        assert_eq!(document, expected);
    }
}

/// Decodes a percent-encoded key.
fn decoded(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let first = parts.next().unwrap().as_bytes().to_vec();
    parts.fold(first, |mut key, part| {
        let (digits, rest) = part.as_bytes().split_at(2);
        key.extend(hex::decode::<1>(digits).unwrap());
        key.extend(rest);
        key
    })
}
