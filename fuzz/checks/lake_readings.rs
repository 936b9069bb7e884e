//! How lakes read the bytes of a request: written apart from the product, after what their sources and
//! answers show. Each looks for sub-resources in an order of its own, and takes what it does not find for a
//! plain request.

/// The bytes that are sent to a lake.
pub(crate) struct Sent<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) headers: Vec<&'a str>,
    pub(crate) copy_source: Option<&'a [u8]>,
}

/// Kinds of readers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lake {
    /// Splits path and pairs, then decodes them. The first of two parameters counts.
    SplitsFirst,
    /// Decodes the path, then splits it; decodes a pair, then splits it. The last of two parameters counts,
    /// an empty one is none, and a name ends at a NUL. So does Ceph RGW.
    DecodesFirst,
    /// Looks for all parameters of an operation together, trims a version and has headers of its own. So does
    /// MinIO.
    RoutesByPairs,
    /// Names of parameters in any letters, and a semicolon between two of them.
    AnyCase,
}

/// The request as a lake has read it.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) bucket: Vec<u8>,
    pub(crate) key: Vec<u8>,
    parameters: Vec<(Vec<u8>, Vec<u8>)>,
    /// A GET or HEAD of the bytes of an object.
    pub(crate) is_plain_read: bool,
    pub(crate) change: Change,
    /// Bucket and key that are copied.
    pub(crate) copied: Option<(Vec<u8>, Vec<u8>)>,
    last_wins: bool,
}

/// The things that a request changes and that a cached answer may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    Object,
    OtherObjects,
}

impl Lake {
    pub(crate) const ALL: [Self; 4] = [
        Self::SplitsFirst,
        Self::DecodesFirst,
        Self::RoutesByPairs,
        Self::AnyCase,
    ];

    pub(crate) fn read(self, sent: &Sent<'_>) -> Reading {
        let (path, query) = match sent.target.find('?') {
            Some(mark) => (&sent.target[..mark], &sent.target[mark + 1..]),
            None => (sent.target, ""),
        };
        let (bucket, key) = self.place(path.as_bytes());
        let mut reading = Reading {
            parameters: self.parameters(query.as_bytes()),
            last_wins: matches!(self, Self::DecodesFirst),
            is_plain_read: false,
            change: Change::Nothing,
            copied: None,
            bucket,
            key,
        };
        reading.is_plain_read = self.is_plain_read(sent, &reading);
        reading.change = self.change(sent, &reading);
        if sent.method == "PUT" {
            reading.copied = sent.copy_source.and_then(|source| self.copied(source));
        }
        reading
    }

    fn place(self, path: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (bucket, key) = match self {
            Self::DecodesFirst | Self::RoutesByPairs => {
                let path = unescape(path, false);
                let (bucket, key) = cut(&path[1..], b'/');
                (bucket.to_vec(), key.to_vec())
            }
            Self::SplitsFirst | Self::AnyCase => {
                let (bucket, key) = cut(&path[1..], b'/');
                (unescape(bucket, false), unescape(key, false))
            }
        };
        match self {
            Self::DecodesFirst => (until_nul(bucket), until_nul(key)),
            _ => (bucket, key),
        }
    }

    fn parameters(self, query: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let separators: &[u8] = if matches!(self, Self::AnyCase) {
            b"&;"
        } else {
            b"&"
        };
        let pairs = query
            .split(|byte| separators.contains(byte))
            .filter(|pair| !pair.is_empty());
        let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
        pairs
            .map(|pair| match self {
                Self::DecodesFirst => owned(cut(&unescape(pair, true), b'=')),
                Self::SplitsFirst => {
                    let (name, value) = cut(pair, b'=');
                    (unescape(name, true), unescape(value, true))
                }
                Self::RoutesByPairs => {
                    let (name, value) = cut(pair, b'=');
                    let (name, value) = (unescape(name, true), unescape(value, true));
                    match &*name {
                        b"versionId" => (name, value.trim_ascii().to_vec()),
                        _ => (name, value),
                    }
                }
                Self::AnyCase => {
                    let (name, value) = cut(pair, b'=');
                    (unescape(name, true).to_ascii_lowercase(), unescape(value, true))
                }
            })
            .collect()
    }

    fn is_plain_read(self, sent: &Sent<'_>, reading: &Reading) -> bool {
        let of_object = matches!(sent.method, "GET" | "HEAD") && !reading.key.is_empty();
        let reads_inside = matches!(self, Self::RoutesByPairs) && sent.headers.contains(&"x-minio-extract");
        of_object && !reads_inside && !SUB_RESOURCES.iter().any(|name| self.finds(reading, name))
    }

    fn change(self, sent: &Sent<'_>, reading: &Reading) -> Change {
        let object = !reading.key.is_empty();
        match sent.method {
            "GET" | "HEAD" | "OPTIONS" => Change::Nothing,
            _ if reading.bucket.is_empty() => Change::Nothing,
            "PUT" | "POST" | "DELETE" if object => self.change_of_object(sent, reading),
            _ => Change::OtherObjects,
        }
    }

    fn change_of_object(self, sent: &Sent<'_>, reading: &Reading) -> Change {
        let has = |name: &str| self.finds(reading, name);
        let of_minio = |name: &str| matches!(self, Self::RoutesByPairs) && sent.headers.contains(&name);
        if reading.has_header(sent, "x-amz-rename-source")
            || of_minio("x-amz-meta-snowball-auto-extract")
            || of_minio("x-minio-force-delete")
        {
            return Change::OtherObjects;
        }
        // A sub-resource comes before an upload here, and there the other way round.
        let is_upload = match self {
            Self::RoutesByPairs => has("uploadId") && (sent.method != "PUT" || has("partNumber")),
            Self::DecodesFirst => reading.says("uploadId"),
            Self::SplitsFirst | Self::AnyCase => has("uploadId") && !has("acl") && !has("tagging"),
        };
        match sent.method {
            "PUT" | "DELETE" if is_upload => Change::Nothing,
            "POST" if is_upload => Change::Object,
            "POST" if has("uploads") => Change::Nothing,
            "POST" if has("restore") => Change::Object,
            "POST" if has("select") && reading.parameter("select-type") == Some("2") => Change::Nothing,
            "POST" if has("select") => Change::Object,
            // A form, which names its key in the body.
            "POST" => Change::OtherObjects,
            _ => Change::Object,
        }
    }

    fn finds(self, reading: &Reading, name: &str) -> bool {
        let name = match self {
            Self::AnyCase => name.to_ascii_lowercase(),
            _ => name.to_owned(),
        };
        reading
            .parameters
            .iter()
            .any(|(given, _)| given == name.as_bytes())
    }

    /// The object that a source names, unless only a lake can know it.
    fn copied(self, source: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (path, _) = cut(source, b'?');
        // As in a path, or as in a form.
        let decoded = unescape(path, matches!(self, Self::SplitsFirst | Self::AnyCase));
        let decoded = decoded.strip_prefix(b"/").unwrap_or(&decoded);
        let (bucket, key) = cut(decoded, b'/');
        (!key.is_empty()).then(|| (bucket.to_vec(), key.to_vec()))
    }
}

/// Parameters that turn a read of an object into one of something else.
const SUB_RESOURCES: [&str; 10] = [
    "acl",
    "tagging",
    "uploadId",
    "attributes",
    "legal-hold",
    "retention",
    "torrent",
    "uploads",
    "policy",
    "delete",
];

impl Reading {
    /// A parameter of S3 in its own letters, as this lake reads it.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let mut named = self
            .parameters
            .iter()
            .filter(|(given, _)| given.eq_ignore_ascii_case(name.as_bytes()));
        let (_, value) = if self.last_wins {
            named.next_back()
        } else {
            named.next()
        }?;
        std::str::from_utf8(value).ok()
    }

    fn says(&self, name: &str) -> bool {
        self.parameter(name).is_some_and(|value| !value.is_empty())
    }

    /// Whether it is there, also in the query, where presigned URLs may carry it.
    fn has_header(&self, sent: &Sent<'_>, name: &str) -> bool {
        sent.headers.contains(&name) || self.parameter(name).is_some()
    }
}

/// Byte by byte; what is no escape stands for itself.
fn unescape(text: &[u8], plus_is_blank: bool) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let escaped = text
            .get(at + 1..at + 3)
            .filter(|_| text[at] == b'%')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        plain.push(match (text[at], escaped) {
            (_, Some(byte)) => byte,
            (b'+', _) if plus_is_blank => b' ',
            (byte, _) => byte,
        });
        at += if escaped.is_some() { 3 } else { 1 };
    }
    plain
}

fn cut(text: &[u8], at: u8) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| *byte == at) {
        Some(place) => (&text[..place], &text[place + 1..]),
        None => (text, b""),
    }
}

fn until_nul(mut name: Vec<u8>) -> Vec<u8> {
    if let Some(nul) = name.iter().position(|byte| *byte == 0) {
        name.truncate(nul);
    }
    name
}
