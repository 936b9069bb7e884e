//! The deletion of many objects at once: the client's request and the lake's answer.

use super::{Document, Element, ErrorDocument, Malformed, Reader, set};

/// The maximum number of objects per request in S3.
pub const KEYS_MAX: usize = 1_000;

/// A client's request to remove objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// The keys, in the order of the request.
    pub keys: Vec<Key>,
    /// True if the client wants only failures in the answer.
    pub is_quiet: bool,
}

/// One object, or one version of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// Its key.
    pub key: String,
    /// The version, if one is named.
    pub version: Option<String>,
    /// Delete it only if it has this ETag.
    pub etag: Option<String>,
    /// Delete it only if it was modified at this time.
    pub last_modified: Option<String>,
    /// Delete it only if it has this size in bytes.
    pub size: Option<String>,
}

/// A lake's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletionResult {
    /// The root, without the elements that this node understands.
    root: Element,
    /// One result for each object, in the order of the lake.
    pub results: Vec<Deleted>,
}

/// The result for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Its key.
    pub key: String,
    /// The version that was named.
    pub version: Option<String>,
    /// True if it was deleted.
    pub is_deleted: bool,
    /// The lake's own element.
    element: Element,
}

/// Returns true if a version is the one of an object without versioning.
fn is_current(version: Option<&str>) -> bool {
    version.is_none_or(|version| version == "null")
}

impl Deletion {
    /// Parses the body of a request with at least one key and at most [`KEYS_MAX`].
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if this is not such a document, or if it has no key or too many.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let document = Document::parse(bytes)?;
        let mut reader = document.request("Delete")?;
        let (mut keys, mut is_quiet) = (Vec::new(), None);
        while let Some(tag) = reader.child()? {
            match tag.name() {
                "Quiet" => set(&mut is_quiet, boolean(&reader.text()?)?)?,
                "Object" if keys.len() < KEYS_MAX => keys.push(Key::read(&mut reader)?),
                _ => return Err(Malformed),
            }
        }
        reader.end()?;
        if keys.is_empty() {
            return Err(Malformed);
        }
        Ok(Self {
            keys,
            is_quiet: is_quiet.unwrap_or_default(),
        })
    }

    /// The body of an equivalent request.
    pub fn write(&self) -> String {
        let quiet = self.is_quiet.then(|| Element::leaf("Quiet", "true"));
        Element::root("Delete")
            .with_all(quiet)
            .with_all(self.keys.iter().map(Key::to_element))
            .to_document()
    }
}

impl Key {
    /// Returns true if this names the current object and not one of its versions.
    pub fn is_current(&self) -> bool {
        is_current(self.version.as_deref())
    }

    /// Returns true if the deletion has conditions.
    pub fn is_conditional(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some() || self.size.is_some()
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (mut key, mut version, mut etag) = (None, None, None);
        let (mut last_modified, mut size) = (None, None);
        while let Some(tag) = reader.child()? {
            let text = reader.text()?;
            match tag.name() {
                "Key" => set(&mut key, text)?,
                "VersionId" => set(&mut version, text.trim().to_owned())?,
                "ETag" => set(&mut etag, text.trim().to_owned())?,
                "LastModifiedTime" => set(&mut last_modified, text.trim().to_owned())?,
                "Size" => set(&mut size, text.trim().to_owned())?,
                _ => return Err(Malformed),
            }
        }
        // An empty element counts as absent.
        let stated = |text: &String| !text.is_empty();
        Ok(Self {
            key: key.filter(stated).ok_or(Malformed)?,
            version: version.filter(stated),
            etag: etag.filter(stated),
            last_modified: last_modified.filter(stated),
            size: size.filter(stated),
        })
    }

    fn to_element(&self) -> Element {
        let optional = [
            ("VersionId", &self.version),
            ("ETag", &self.etag),
            ("LastModifiedTime", &self.last_modified),
            ("Size", &self.size),
        ];
        let stated = optional
            .into_iter()
            .filter_map(|(name, text)| Some(Element::leaf(name, text.as_deref()?)));
        Element::new("Object")
            .with_leaf("Key", &self.key)
            .with_all(stated)
    }
}

impl DeletionResult {
    /// Parses the answer. Further elements are kept.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if this is not such a document.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let document = Document::parse(bytes)?;
        let (tag, mut reader) = document.answer()?;
        if tag.name() != "DeleteResult" {
            return Err(Malformed);
        }
        let (mut root, mut results) = (tag.to_element()?, Vec::new());
        while let Some(tag) = reader.child()? {
            let is_deleted = tag.name() == "Deleted";
            let is_result = is_deleted || tag.name() == "Error";
            let element = reader.element(&tag)?;
            // An error may concern no object.
            match element.text_of("Key").filter(|_| is_result) {
                Some(key) => results.push(Deleted {
                    key,
                    version: element.text_of("VersionId").filter(|version| !version.is_empty()),
                    is_deleted,
                    element,
                }),
                None => root = root.with(element),
            }
        }
        reader.end()?;
        Ok(Self { root, results })
    }

    /// Returns true if the answer reports that an object was deleted, and nothing else about it.
    pub fn is_removed(&self, key: &Key) -> bool {
        self.about(key).next().is_some() && !self.is_refused(key)
    }

    /// Returns true if the answer reports that an object was not deleted.
    pub fn is_refused(&self, key: &Key) -> bool {
        self.about(key).any(|result| !result.is_deleted)
    }

    /// The lake's reason why an object is not removed.
    pub fn refusal(&self, key: &Key) -> Option<ErrorDocument> {
        let refused = self.about(key).find(|result| !result.is_deleted)?;
        Some(ErrorDocument {
            code: refused.element.text_of("Code").unwrap_or_default(),
            message: refused.element.text_of("Message").unwrap_or_default(),
        })
    }

    fn about(&self, key: &Key) -> impl Iterator<Item = &Deleted> {
        self.results.iter().filter(move |result| result.is_about(key))
    }

    /// Returns true if the removal of an object has left a delete marker.
    pub fn is_marked(&self, key: &Key) -> bool {
        self.about(key)
            .any(|result| result.element.text_of("DeleteMarker").is_some())
    }

    /// Records that an object was removed.
    pub fn remove(&mut self, key: &Key) {
        let element = Element::new("Deleted").with_leaf("Key", &key.key);
        self.results.push(Deleted {
            key: key.key.clone(),
            version: None,
            is_deleted: true,
            element: element.inside(&self.root),
        });
    }

    /// Records that an object was not removed, and why; this replaces all earlier results for it.
    pub fn refuse(&mut self, key: &Key, code: &str, message: &str) {
        self.results.retain(|result| !result.is_about(key));
        let version = key
            .version
            .iter()
            .map(|version| Element::leaf("VersionId", version));
        let error = ErrorDocument::write(code, message);
        self.results.push(Deleted {
            key: key.key.clone(),
            version: key.version.clone(),
            is_deleted: false,
            element: error
                .with_leaf("Key", &key.key)
                .with_all(version)
                .inside(&self.root),
        });
    }

    /// The answer for the client; a quiet one omits removed objects.
    pub fn write(&self, is_quiet: bool) -> String {
        let results = self
            .results
            .iter()
            .filter(|result| !(is_quiet && result.is_deleted));
        let results = results.map(|result| result.element.clone());
        self.root.clone().with_all(results).to_document()
    }
}

impl Default for DeletionResult {
    fn default() -> Self {
        Self {
            root: Element::root("DeleteResult"),
            results: Vec::new(),
        }
    }
}

impl Deleted {
    /// Where versions are not kept, an object has the version `null`, which lakes name or leave out.
    fn is_about(&self, key: &Key) -> bool {
        let is_same = self.version == key.version;
        self.key == key.key && (is_same || (key.is_current() && is_current(self.version.as_deref())))
    }
}

fn boolean(text: &str) -> Result<bool, Malformed> {
    match text.trim() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Deletion, DeletionResult, KEYS_MAX, Key};
    use crate::xml::Malformed;

    fn keys(document: &str) -> Result<Vec<String>, Malformed> {
        let deletion = Deletion::read(document.as_bytes())?;
        Ok(deletion.keys.into_iter().map(|key| key.key).collect())
    }

    #[test]
    fn each_key_is_read_once_and_with_what_is_said_of_it() {
        let document = "<Delete><Object><Key>a&amp;b</Key></Object><Object><VersionId></VersionId><Key> c</Key></Object>\
            <Quiet>true</Quiet><Object><Key>d</Key><VersionId>null</VersionId><ETag>\"e\"</ETag><Size>1</Size>\
            <LastModifiedTime>t</LastModifiedTime></Object><Object><Key>f</Key><VersionId>1</VersionId></Object></Delete>";
        let deletion = Deletion::read(document.as_bytes()).unwrap();
        let [ab, c, d, f] = &deletion.keys[..] else {
            panic!("four keys")
        };
        assert!(deletion.is_quiet);
        assert_eq!((&*ab.key, &*c.key, &*d.key, &*f.key), ("a&b", " c", "d", "f"));
        assert!(ab.is_current() && c.is_current() && d.is_current() && !f.is_current());
        assert!(!ab.is_conditional() && d.is_conditional());
        assert_eq!(Deletion::read(deletion.write().as_bytes()), Ok(deletion));
    }

    #[test]
    fn a_document_that_is_no_deletion_is_refused() {
        for document in [
            "",
            "<Delete/>",
            "<Delete><Quiet>true</Quiet></Delete>",
            "<Delete><Object/></Delete>",
            "<Delete><Object><Key/></Object></Delete>",
            "<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>",
            "<Delete><Object><Key>a</Key><Name>b</Name></Object></Delete>",
            "<Delete><Key>a</Key></Delete>",
            "<Delete><Object><Key>a</Key></Object><Quiet>yes</Quiet></Delete>",
            "<Delete><Object><Key>a</Key></Object><Quiet>true</Quiet><Quiet>true</Quiet></Delete>",
            "<Deletion><Object><Key>a</Key></Object></Deletion>",
        ] {
            assert_eq!(keys(document), Err(Malformed), "{document}");
        }
        let many = |number: usize| {
            format!(
                "<Delete>{}</Delete>",
                "<Object><Key>a</Key></Object>".repeat(number)
            )
        };
        assert_eq!(keys(&many(KEYS_MAX)).unwrap().len(), KEYS_MAX);
        assert_eq!(keys(&many(KEYS_MAX + 1)), Err(Malformed));
    }

    #[test]
    fn a_result_says_what_was_removed_and_is_told_as_the_client_wants() {
        let answer = "<DeleteResult xmlns=\"u\"><Deleted><Key>a</Key><New>n</New></Deleted><Deleted><Key>b</Key>\
            <VersionId>1</VersionId></Deleted><Error><Key>c</Key><Code>AccessDenied</Code></Error><Deleted><Key>d</Key></Deleted>\
            <Error><Key>d</Key><Code>InternalError</Code></Error><Error><Code>SlowDown</Code></Error></DeleteResult>";
        let mut result = DeletionResult::read(answer.as_bytes()).unwrap();
        let key = |key: &str| Key {
            key: key.into(),
            ..Key::default()
        };
        let removed = ["a", "b", "c", "d", "e"].map(|name| result.is_removed(&key(name)));
        assert_eq!(removed, [true, false, false, false, false]);
        let refusal = |name: &str| result.refusal(&key(name)).map(|error| error.code);
        assert_eq!(
            (refusal("c").as_deref(), refusal("a")),
            (Some("AccessDenied"), None)
        );
        assert!(
            result
                .write(false)
                .contains("<Deleted><Key>a</Key><New>n</New></Deleted>")
        );
        result.refuse(&key("a"), "PreconditionFailed", "m");
        assert!(result.is_refused(&key("a")) && !result.write(false).contains("<New>"));
        let quiet = result.write(true);
        assert!(!quiet.contains("<Deleted>"), "{quiet}");
        for error in [
            "<Key>c</Key>",
            "<Code>SlowDown</Code>",
            "<Code>PreconditionFailed</Code>",
        ] {
            assert!(quiet.contains(error), "{quiet}");
        }
        for other in ["<Error><Code>AccessDenied</Code></Error>", "<Delete/>", ""] {
            assert!(DeletionResult::read(other.as_bytes()).is_err(), "{other}");
        }
    }

    /// One of the ways to spell a character in a text.
    fn spelled(character: char, way: u8) -> String {
        let code = u32::from(character);
        match (way % 6, character) {
            (0, '&' | '<') | (1, _) => format!("&#{code};"),
            (2, _) => format!("&#x{code:06x};"),
            (3, '&') => "&amp;".into(),
            (3, '<') => "&lt;".into(),
            (4, character) => format!("<![CDATA[{character}]]>"),
            (5, '&' | '<') => format!("<!-- <Key>x</Key> -->&#{code};<?p <Key>?>"),
            (_, '&' | '<') => format!("&#{code:09};"),
            (_, character) => format!("{character}<!---->"),
        }
    }

    /// The same list in a spelling that the dice choose.
    fn document(keys: &[String], dice: &[u8]) -> String {
        let mut dice = dice.iter().copied().cycle();
        let mut roll = || dice.next().unwrap_or_default();
        let (prefix, declared) = match roll() % 3 {
            0 => ("", String::new()),
            1 => ("", " xmlns='http://s3.amazonaws.com/doc/2006-03-01/'".to_owned()),
            _ => (
                "s:",
                " xmlns:s=\"http://s3.amazonaws.com/doc/2006-03-01/\"".to_owned(),
            ),
        };
        let mut document = format!("<{prefix}Delete{declared} >");
        for key in keys {
            let key: String = key.chars().map(|character| spelled(character, roll())).collect();
            let noise =
                ["", " ", "<!-- <Object><Key>y</Key></Object> -->", "<?p?>\n"][usize::from(roll() % 4)];
            let object = format!(
                "{noise}<{prefix}Object a='b'>{noise}<{prefix}Key >{key}</{prefix}Key\n></{prefix}Object>"
            );
            document.push_str(&object);
        }
        document + &format!("</{prefix}Delete>")
    }

    proptest! {
        #[test]
        fn in_any_spelling_a_list_is_that_list(
            listed in proptest::collection::vec("[ -~é\u{1f41f}]{1,9}", 1..9),
            dice in proptest::collection::vec(any::<u8>(), 1..64),
        ) {
            let document = document(&listed, &dice);
            prop_assert_eq!(keys(&document), Ok(listed), "{}", document);
        }

        #[test]
        fn a_list_that_was_changed_anywhere_is_another_list_or_refused(
            listed in proptest::collection::vec("[a-z]{1,3}", 1..4),
            dice in proptest::collection::vec(any::<u8>(), 1..16),
            at in any::<proptest::sample::Index>(),
            piece in "(<Key>|</Key>|<Object>|</Object>|<!--|-->|<!\\[CDATA\\[|\\]\\]>|<\\?|\\?>|&|;|<|>|\"){1,3}",
        ) {
            let mut document = document(&listed, &dice);
            let places: Vec<usize> = document.char_indices().map(|(at, _)| at).collect();
            document.insert_str(places[at.index(places.len())], &piece);
            if let Ok(read) = Deletion::read(document.as_bytes()) {
                prop_assert_eq!(Deletion::read(read.write().as_bytes()), Ok(read));
            }
        }
    }
}
