//! The files in which `s3s-fs` stores an object: its bytes under its own name, and its attributes in two
//! files next to the buckets. This module creates, replaces and removes them together.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use md5::{Digest, Md5};
use s3s::{S3Error, S3Result, s3_error};
use shoal_base::hex;

/// Bucket of incomplete objects. No client can name it: bucket names do not begin with a dot.
pub(super) const STAGING: &str = ".staging";

/// File name of an object whose key ends with a slash, because a folder cannot hold bytes.
const FOLDER_OBJECT: &str = ".folder";

/// Maximum length of file names, which is 255 bytes on all common file systems.
const NAME_BYTES_MAX: usize = 255;

/// The folder of a lake.
#[derive(Debug)]
pub(super) struct Layout {
    root: PathBuf,
    staged: AtomicU64,
}

/// An object in [`STAGING`], removed on drop unless it was committed.
pub(super) struct Staged<'a> {
    layout: &'a Layout,
    pub(super) key: String,
}

impl Layout {
    /// Opens a lake's folder and removes the incomplete objects that a crash left behind.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let layout = Self {
            root: root.canonicalize()?,
            staged: AtomicU64::new(0),
        };
        let staging = layout.root.join(STAGING);
        fs::remove_dir_all(&staging).or_else(unless_absent)?;
        fs::create_dir(&staging)?;
        let prefix = format!(".bucket-{}.", URL_SAFE_NO_PAD.encode(STAGING));
        for entry in fs::read_dir(&layout.root)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // Multipart uploads survive a restart; their attributes are kept under the upload's name.
            if name.starts_with(&prefix) && !name.contains(".upload-") {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(layout)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the file name of a key, or an error if the key cannot be stored.
    pub(super) fn name_of(&self, bucket: &str, key: &str) -> S3Result<String> {
        let name = if key.ends_with('/') {
            format!("{key}{FOLDER_OBJECT}")
        } else {
            key.to_string()
        };
        let is_file_name = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= NAME_BYTES_MAX;
        if !name.split('/').all(is_file_name) || name.contains('\0') {
            return Err(s3_error!(
                InvalidArgument,
                "The development lake keeps objects as files: it has no keys with empty, . or .. or very long parts"
            ));
        }
        let longest = self
            .sidecars(bucket, &name)
            .map(|path| path.file_name().map_or(0, OsStr::len));
        if longest.iter().any(|length| *length > NAME_BYTES_MAX) {
            return Err(s3_error!(
                KeyTooLongError,
                "The development lake has no keys as long as this one"
            ));
        }
        Ok(name)
    }

    /// Returns the key of a file name.
    pub(super) fn key_of(name: &str) -> &str {
        let folder = name.strip_suffix(FOLDER_OBJECT);
        folder.filter(|folder| folder.ends_with('/')).unwrap_or(name)
    }

    pub(super) fn has_bucket(&self, bucket: &str) -> bool {
        self.root.join(bucket).is_dir()
    }

    /// Returns the file with the bytes of an object. A folder above other objects is not an object.
    pub(super) fn find(&self, bucket: &str, name: &str) -> S3Result<PathBuf> {
        let path = self.body(bucket, name);
        match (path.is_file(), self.has_bucket(bucket)) {
            (true, _) => Ok(path),
            (false, true) => Err(s3_error!(NoSuchKey, "The specified key does not exist.")),
            (false, false) => Err(s3_error!(NoSuchBucket, "The specified bucket does not exist")),
        }
    }

    /// Creates a staging key for an object that clients must not see until it is complete.
    pub(super) fn stage(&self) -> Staged<'_> {
        Staged {
            layout: self,
            key: self.staged.fetch_add(1, Ordering::Relaxed).to_string(),
        }
    }

    /// Creates a staging key that later requests derive again.
    pub(super) fn stage_as(&self, key: String) -> Staged<'_> {
        Staged { layout: self, key }
    }

    /// Removes an object, if present, and the folders that become empty.
    pub(super) fn remove(&self, bucket: &str, name: &str) -> io::Result<()> {
        let body = self.body(bucket, name);
        if body.is_dir() {
            return Ok(());
        }
        for path in [body.as_path()]
            .into_iter()
            .chain(self.sidecars(bucket, name).iter().map(PathBuf::as_path))
        {
            fs::remove_file(path).or_else(unless_absent)?;
        }
        let bucket = self.root.join(bucket);
        let parents = body.ancestors().skip(1).take_while(|parent| *parent != bucket);
        // Stops at the first folder that is not empty.
        parents.map(fs::remove_dir).find(Result::is_err);
        Ok(())
    }

    /// Returns the unquoted ETag of an object. A file created or changed by hand gets the ETag that S3 would
    /// compute. Must not run concurrently with [`Staged::commit`].
    pub(super) fn etag(&self, bucket: &str, name: &str) -> io::Result<String> {
        let [_, internal] = self.sidecars(bucket, name);
        let body = self.body(bucket, name);
        let body_time = fs::metadata(&body)?.modified()?;
        let known = fs::metadata(&internal).and_then(|metadata| metadata.modified());
        if known.is_ok_and(|known| known >= body_time) {
            let text = fs::read(&internal)?;
            let info: serde_json::Value = serde_json::from_slice(&text)?;
            if let Some(etag) = info["e_tag"].as_str() {
                return Ok(etag.into());
            }
        }
        let etag = hash(&body)?;
        if fs::metadata(&body)?.modified()? != body_time {
            // Another process is still writing the file: the ETag is valid now, but must not be stored.
            return Ok(etag);
        }
        let aside = self
            .root
            .join(STAGING)
            .join(format!("adopt-{}", self.staged.fetch_add(1, Ordering::Relaxed)));
        fs::write(&aside, serde_json::json!({ "e_tag": etag }).to_string())?;
        fs::rename(&aside, &internal)?;
        Ok(etag)
    }

    /// Returns the sizes of an upload's parts by number; fails if there is no such upload.
    pub(super) fn parts(&self, upload: &str) -> S3Result<Vec<(i32, u64)>> {
        let plain = upload.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !plain || !self.root.join(format!(".upload-{upload}.json")).exists() {
            return Err(s3_error!(NoSuchUpload, "The specified upload does not exist"));
        }
        let prefix = format!(".upload_id-{upload}.part-");
        let mut parts = Vec::new();
        for entry in fs::read_dir(&self.root).map_err(S3Error::internal_error)? {
            let entry = entry.map_err(S3Error::internal_error)?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(&prefix));
            if let Some(number) = number.and_then(|number| number.parse().ok()) {
                parts.push((number, entry.metadata().map_err(S3Error::internal_error)?.len()));
            }
        }
        parts.sort_unstable();
        Ok(parts)
    }

    fn body(&self, bucket: &str, name: &str) -> PathBuf {
        self.root.join(bucket).join(name)
    }

    /// Returns the files that `s3s-fs` writes about an object: its attributes, and its ETag with its
    /// checksums.
    fn sidecars(&self, bucket: &str, name: &str) -> [PathBuf; 2] {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let stem = format!(".bucket-{}.object-{}", encode(bucket), encode(name));
        ["metadata", "internal"].map(|kind| self.root.join(format!("{stem}.{kind}.json")))
    }
}

impl Staged<'_> {
    /// Publishes the object, replacing any previous one. Must not run concurrently with reads, because its
    /// three files are renamed one after another.
    pub(super) fn commit(self, bucket: &str, name: &str) -> S3Result<()> {
        debug_assert_ne!(bucket, STAGING, "an object is published in a bucket of clients");
        let body = self.layout.body(bucket, name);
        let parent = body.parent().expect("a body lies in a bucket");
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists | io::ErrorKind::IsADirectory => {
                s3_error!(
                    InvalidRequest,
                    "The development lake keeps objects as files: a key and a key below it (a and a/b) cannot both exist"
                )
            }
            _ => S3Error::internal_error(error),
        };
        fs::create_dir_all(parent).map_err(refused)?;
        fs::rename(self.layout.body(STAGING, &self.key), &body).map_err(refused)?;
        let from = self.layout.sidecars(STAGING, &self.key);
        for (from, to) in from.iter().zip(self.layout.sidecars(bucket, name)) {
            match fs::rename(from, &to) {
                // A copy of a file created by hand has no attributes; those of the replaced object must be
                // removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::remove_file(&to).or_else(unless_absent)
                }
                done => done,
            }
            .map_err(S3Error::internal_error)?;
        }
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.layout.remove(STAGING, &self.key) {
            tracing::warn!(%error, "could not remove an unfinished object of the development lake");
        }
    }
}

fn unless_absent(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound {
        Ok(())
    } else {
        Err(error)
    }
}

fn hash(path: &Path) -> io::Result<String> {
    let (mut file, mut hasher) = (fs::File::open(path)?, Md5::new());
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex::text(&hasher.finalize())),
            length => hasher.update(&buffer[..length]),
        }
    }
}
