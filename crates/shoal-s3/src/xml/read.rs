//! Reads documents: one element after another, in order, each understood or refused.

use std::borrow::Cow;

use quick_xml::NsReader;
use quick_xml::XmlVersion;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesDecl, BytesRef, BytesStart, Event};
use quick_xml::name::ResolveResult;

use super::element::{Content, Element, is_allowed};
use super::{Malformed, NAMESPACE};

/// The most levels of a document. The deepest document of S3 has six.
const DEPTH_MAX: usize = 16;

/// The most bytes of an element's attributes: they are compared with each other, so an element must have few.
const ATTRIBUTE_BYTES_MAX: usize = 4 << 10;

/// A document whose bytes are text that XML allows.
#[derive(Clone, Debug)]
pub struct Document<'a>(Cow<'a, str>);

impl<'a> Document<'a> {
    /// Accepts UTF-8, with or without a byte order mark, and no other encoding.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] for other encodings, and for characters that XML does not allow.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(bytes).map_err(|_| Malformed)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if !text.chars().all(is_allowed) {
            return Err(Malformed);
        }
        // XML 1.0, 2.11: line ends are one character for every reader of the document.
        Ok(Self(if text.contains('\r') {
            text.replace("\r\n", "\n").replace('\r', "\n").into()
        } else {
            text.into()
        }))
    }

    /// Enters the root of a client's document. The root has this name and is in the namespace of S3, or in
    /// none.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if the root is another one, or is not well-formed.
    pub fn request(&self, root: &str) -> Result<Reader<'_>, Malformed> {
        let mut reader = Reader::new(&self.0, Some(NAMESPACE.into()));
        let tag = reader.root()?;
        if tag.name() == root {
            Ok(reader)
        } else {
            Err(Malformed)
        }
    }

    /// Enters the root of a lake's document, and returns its tag. Lakes differ in their namespaces: the
    /// reader understands the one of the first element that has one, normally the root. Some lakes send white
    /// space first while they work.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if the document does not begin with a well-formed root.
    pub fn answer(&self) -> Result<(Tag<'_>, Reader<'_>), Malformed> {
        let mut reader = Reader::new(self.0.trim_start(), None);
        let tag = reader.root()?;
        Ok((tag, reader))
    }
}

/// A position inside an element of a document.
pub struct Reader<'a> {
    events: NsReader<&'a [u8]>,
    /// The namespace of elements that are understood.
    namespace: Option<String>,
    depth: usize,
}

/// The beginning of an element.
#[derive(Clone, Debug)]
pub struct Tag<'a> {
    start: BytesStart<'a>,
    is_understood: bool,
}

impl Tag<'_> {
    /// The name of the element, without its prefix; empty in a namespace that is not understood.
    pub fn name(&self) -> &str {
        let name = std::str::from_utf8(self.start.local_name().into_inner()).unwrap_or_default();
        if self.is_understood { name } else { "" }
    }

    /// The element without its content: as it is spelled, with its attributes.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if an attribute is not well-formed.
    pub fn to_element(&self) -> Result<Element, Malformed> {
        let mut element = Element::new(text_of(self.start.name().as_ref())?);
        for (name, value) in attributes(&self.start)? {
            element.set_attribute(name, value);
        }
        Ok(element)
    }
}

/// One item of a document.
enum Piece<'a> {
    Start(Tag<'a>),
    End,
    Text(Cow<'a, str>),
    Eof,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, namespace: Option<String>) -> Self {
        let mut events = NsReader::from_str(text);
        let config = events.config_mut();
        config.check_comments = true;
        config.expand_empty_elements = true;
        Self {
            events,
            namespace,
            depth: 0,
        }
    }

    /// Enters the next element inside the current one. Returns `None` if there is none; then the enclosing
    /// element is current again. Only white space may stand between elements.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if text comes first, or if the document is not well-formed.
    pub fn child(&mut self) -> Result<Option<Tag<'a>>, Malformed> {
        loop {
            match self.next()? {
                Piece::Start(tag) => return Ok(Some(tag)),
                Piece::End => return Ok(None),
                Piece::Text(text) if is_blank(&text) => {}
                Piece::Text(_) | Piece::Eof => return Err(Malformed),
            }
        }
    }

    /// Reads the content of the current element, which must be text.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if an element comes first, or if the document is not well-formed.
    pub fn text(&mut self) -> Result<String, Malformed> {
        let mut all = String::new();
        loop {
            match self.next()? {
                Piece::Text(text) => all.push_str(&text),
                Piece::End => return Ok(all),
                Piece::Start(_) | Piece::Eof => return Err(Malformed),
            }
        }
    }

    /// Reads the current element, which begins with this tag, with all of its content.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if the document is not well-formed or ends inside the element.
    pub fn element(&mut self, tag: &Tag<'a>) -> Result<Element, Malformed> {
        let mut open = vec![tag.to_element()?];
        loop {
            let current = open.last_mut().ok_or(Malformed)?;
            match self.next()? {
                Piece::Start(tag) => open.push(tag.to_element()?),
                Piece::Text(text) => current.push_text(&text),
                Piece::End => {
                    let mut ended = open.pop().ok_or(Malformed)?;
                    ended.forget_layout();
                    match open.last_mut() {
                        Some(around) => around.push(Content::Element(ended)),
                        None => return Ok(ended),
                    }
                }
                Piece::Eof => return Err(Malformed),
            }
        }
    }

    /// Checks that the document ends here, after its root.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if anything but white space is left.
    pub fn end(mut self) -> Result<(), Malformed> {
        loop {
            match self.next()? {
                Piece::Eof => return Ok(()),
                Piece::Text(text) if is_blank(&text) => {}
                _ => return Err(Malformed),
            }
        }
    }

    fn root(&mut self) -> Result<Tag<'a>, Malformed> {
        let mut is_first = true;
        loop {
            let event = self.events.read_event().map_err(|_| Malformed)?;
            match event {
                Event::Decl(declaration) if is_first => check_declaration(&declaration)?,
                Event::Start(start) => return self.enter(start),
                Event::Text(text) if is_blank(text_of(&text)?) => {}
                Event::Comment(_) => {}
                Event::PI(instruction) if is_name(text_of(instruction.target())?) => {}
                _ => return Err(Malformed),
            }
            is_first = false;
        }
    }

    fn next(&mut self) -> Result<Piece<'a>, Malformed> {
        loop {
            // The parser also yields text beside the root, where XML allows only white space.
            let piece = match self.events.read_event().map_err(|_| Malformed)? {
                Event::Start(start) if self.depth > 0 => Piece::Start(self.enter(start)?),
                Event::End(_) => {
                    self.depth = self.depth.checked_sub(1).ok_or(Malformed)?;
                    Piece::End
                }
                Event::Text(text) => {
                    let text = text.decode().map_err(|_| Malformed)?;
                    if text.contains("]]>") {
                        return Err(Malformed);
                    }
                    Piece::Text(text)
                }
                Event::CData(data) if self.depth > 0 => Piece::Text(data.decode().map_err(|_| Malformed)?),
                Event::GeneralRef(reference) if self.depth > 0 => Piece::Text(meant(&reference)?.into()),
                Event::Eof => Piece::Eof,
                Event::Comment(_) => continue,
                Event::PI(instruction) if is_name(text_of(instruction.target())?) => continue,
                _ => return Err(Malformed),
            };
            return Ok(piece);
        }
    }

    fn enter(&mut self, start: BytesStart<'a>) -> Result<Tag<'a>, Malformed> {
        self.depth += 1;
        attributes(&start)?;
        if self.depth > DEPTH_MAX || !is_name(text_of(start.name().as_ref())?) {
            return Err(Malformed);
        }
        let (namespace, _) = self.events.resolver().resolve_element(start.name());
        let namespace = match namespace {
            ResolveResult::Unbound => None,
            ResolveResult::Bound(namespace) => Some(text_of(namespace.into_inner())?),
            ResolveResult::Unknown(_) => return Err(Malformed),
        };
        let is_understood = match (namespace, &self.namespace) {
            (None, _) => true,
            (Some(namespace), Some(understood)) => namespace == understood,
            (Some(namespace), None) => {
                self.namespace = Some(namespace.into());
                true
            }
        };
        Ok(Tag { start, is_understood })
    }
}

/// Names and values of the attributes of an element.
fn attributes(start: &BytesStart<'_>) -> Result<Vec<(String, String)>, Malformed> {
    if start.attributes_raw().len() > ATTRIBUTE_BYTES_MAX {
        return Err(Malformed);
    }
    let read = start.attributes().map(|attribute| {
        let attribute = attribute.map_err(|_| Malformed)?;
        let name = text_of(attribute.key.as_ref())?;
        if !is_name(name) || attribute.value.contains(&b'<') {
            return Err(Malformed);
        }
        let value = attribute.normalized_value(XmlVersion::Explicit1_0);
        Ok((name.to_owned(), value.map_err(|_| Malformed)?.into_owned()))
    });
    read.collect()
}

fn check_declaration(declaration: &BytesDecl<'_>) -> Result<(), Malformed> {
    let version = declaration.version().map_err(|_| Malformed)?;
    let encoding = declaration.encoding().transpose().map_err(|_| Malformed)?;
    let is_utf8 = encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case(b"utf-8"));
    if *version == *b"1.0" && is_utf8 {
        Ok(())
    } else {
        Err(Malformed)
    }
}

/// The character of a reference. Names beyond the five of XML would be declared in a DTD.
fn meant(reference: &BytesRef<'_>) -> Result<String, Malformed> {
    if let Some(character) = reference.resolve_char_ref().map_err(|_| Malformed)? {
        return Ok(character.into());
    }
    let name = reference.decode().map_err(|_| Malformed)?;
    let meant = resolve_predefined_entity(&name).ok_or(Malformed)?;
    Ok(meant.into())
}

fn text_of(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed)
}

fn is_blank(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\n'))
}

/// Returns true if this is a valid name, with or without a prefix.
fn is_name(name: &str) -> bool {
    let is_word = |word: &str| {
        let begins = |c: char| c.is_alphabetic() || c == '_';
        let goes_on = |c: char| begins(c) || c.is_alphanumeric() || matches!(c, '-' | '.' | '\u{b7}');
        word.starts_with(begins) && word.chars().all(goes_on)
    };
    match name.split_once(':') {
        Some((prefix, local)) => is_word(prefix) && is_word(local),
        None => is_word(name) && !name.eq_ignore_ascii_case("xml"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Document, Malformed};

    /// The texts of the elements `K` in `R`.
    fn keys(document: &str) -> Result<Vec<String>, Malformed> {
        let document = Document::parse(document.as_bytes())?;
        let mut reader = document.request("R")?;
        let mut keys = Vec::new();
        while let Some(tag) = reader.child()? {
            match tag.name() {
                "K" => keys.push(reader.text()?),
                _ => return Err(Malformed),
            }
        }
        reader.end()?;
        Ok(keys)
    }

    #[test]
    fn spellings_of_one_content_are_one_content() {
        for document in [
            "<R><K>a&amp;b</K></R>",
            "\u{feff}<?xml version='1.0'?><R><K>a&amp;b</K></R>",
            "<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\"yes\"?>\r\n<R>\n <K>a&amp;b</K>\t</R>\n",
            "<R xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><K>a&amp;b</K></R>",
            "<s:R xmlns:s=\"http://s3.amazonaws.com/doc/2006-03-01/\"><s:K>a&amp;b</s:K></s:R>",
            "<s:R xmlns:s='http://s3.amazonaws.com/doc/2006-03-01/'><K>a&amp;b</K></s:R>",
            "<R><K >a<![CDATA[&]]>b</K ></R >",
            "<R><K x=\"&gt;\" xml:lang='de'>&#97;&#x26;&#x0062;</K></R>",
            "<!-- <K>c</K> --><R><!----><K>a<!-- c -->&amp;<?c <K>?>b</K><?p?></R><!-- c --><?q?>",
        ] {
            assert_eq!(keys(document), Ok(vec!["a&b".to_owned()]), "{document}");
        }
        assert_eq!(keys("<R/>"), Ok(vec![]));
        assert_eq!(keys("<R><K/><K></K></R>"), Ok(vec![String::new(); 2]));
        assert_eq!(
            keys("<R><K>a\r\nb\rc&#13;&#1;</K></R>").unwrap(),
            ["a\nb\nc\r\u{1}"]
        );
        assert_eq!(
            keys("<R><K><![CDATA[ ]]>&lt;&gt;&quot;&apos;</K></R>").unwrap(),
            [" <>\"'"]
        );
    }

    #[test]
    fn malformed_xml_is_refused() {
        for document in [
            "",
            " ",
            "R",
            "<R>",
            "<R></S>",
            "<R></R></R>",
            "<R></R><R></R>",
            "<R></R>x",
            "<R></R>&amp;",
            "<R></R><![CDATA[ ]]>",
            "x<R></R>",
            " <?xml version=\"1.0\"?><R/>",
            "<?xml version=\"1.1\"?><R/>",
            "<?xml version=\"1.0\" encoding=\"UTF-16\"?><R/>",
            "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><R/>",
            "<R><?xml version=\"1.0\"?></R>",
            "<R><?XML x?></R>",
            "<!DOCTYPE R><R/>",
            "<!DOCTYPE R [<!ENTITY e \"x\">]><R><K>&e;</K></R>",
            "<R><K>&e;</K></R>",
            "<R><K>&</K></R>",
            "<R><K>& amp;</K></R>",
            "<R><K>&#0;</K></R>",
            "<R><K>&#xD800;</K></R>",
            "<R><K>&#x;</K></R>",
            "<R><K>\u{1}</K></R>",
            "<R><K>\0</K></R>",
            "<R><K>\u{ffff}</K></R>",
            "<R><K>]]></K></R>",
            "<R><K>a</K>text</R>",
            "<R><K><K>a</K></K></R>",
            "<R><K></R></K>",
            "<R><k>a</k></R>",
            "<r><K>a</K></r>",
            "<R><K>a</K><L/></R>",
            "<R><!-- -- --></R>",
            "<R><!-- </R>",
            "<R><K a=\"1\" a=\"2\"/></R>",
            "<R><K a/></R>",
            "<R><K a=1/></R>",
            "<R><K a=\"<\"/></R>",
            "<R><K a=\"&e;\"/></R>",
            "<R><K\"x/></R>",
            "<R xmlns=\"http://example.org/\"><K>a</K></R>",
            "<R><K xmlns=\"http://example.org/\">a</K></R>",
            "<s:R><K>a</K></s:R>",
            "<R><s:K>a</s:K></R>",
        ] {
            assert_eq!(keys(document), Err(Malformed), "{document}");
        }
    }

    #[test]
    fn other_encodings_are_refused() {
        let wide = |swap: bool| -> Vec<u8> {
            let units = "\u{feff}<R/>".encode_utf16();
            units
                .flat_map(|unit| {
                    if swap {
                        unit.to_be_bytes()
                    } else {
                        unit.to_le_bytes()
                    }
                })
                .collect()
        };
        for bytes in [
            wide(true),
            wide(false),
            wide(false)[2..].to_vec(),
            b"<R>\xff</R>".to_vec(),
        ] {
            assert!(Document::parse(&bytes).is_err());
        }
    }

    #[test]
    fn depth_and_attributes_are_bounded() {
        let deep = |levels: usize| "<a>".repeat(levels) + &"</a>".repeat(levels);
        let whole = |text: String| {
            let document = Document::parse(text.as_bytes())?;
            let (tag, mut reader) = document.answer()?;
            reader.element(&tag).map(drop)
        };
        assert_eq!(whole(deep(super::DEPTH_MAX)), Ok(()));
        assert_eq!(whole(deep(super::DEPTH_MAX + 1)), Err(Malformed));
        let attributes: Vec<_> = (0..1_000).map(|number| format!(" a{number}=''")).collect();
        assert_eq!(whole(format!("<a{}/>", attributes.concat())), Err(Malformed));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(<R>)?(<[/!?]?(K|R|s:K|\\[CDATA\\[|--)[ =\"a]{0,3}/?>?|&(#x?)?[0-9a-f]{0,3};?|[a-z\\]>-]{0,3}){0,12}(</R>)?") {
            let _ = keys(&text);
        }
    }
}
