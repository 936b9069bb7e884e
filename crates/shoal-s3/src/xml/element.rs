//! A part of a document: read as it is or put together here, and written.

use std::fmt::Write as _;

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

use super::{Document, Malformed, NAMESPACE};

/// An element and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The name as it is spelled, with its prefix.
    name: String,
    attributes: Vec<(String, String)>,
    content: Vec<Content>,
}

/// One item in an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Element(Element),
    Text(String),
}

impl Element {
    /// An empty element.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            attributes: Vec::new(),
            content: Vec::new(),
        }
    }

    /// An empty element in the namespace of S3: the root of a document.
    pub fn root(name: &str) -> Self {
        Self::root_in(name, NAMESPACE)
    }

    /// An empty element in a namespace: the root of a document.
    pub fn root_in(name: &str, namespace: &str) -> Self {
        let mut root = Self::new(name);
        root.set_attribute("xmlns".into(), namespace.into());
        root
    }

    /// The root of a lake's document, with all that it holds.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if the bytes are not an XML document.
    pub fn from_answer(bytes: &[u8]) -> Result<Self, Malformed> {
        let document = Document::parse(bytes)?;
        let (tag, mut reader) = document.answer()?;
        let root = reader.element(&tag)?;
        reader.end()?;
        Ok(root)
    }

    /// An element that holds a text.
    pub fn leaf(name: &str, text: &str) -> Self {
        let mut leaf = Self::new(name);
        leaf.push_text(text);
        leaf
    }

    /// The element with another element at its end.
    #[must_use]
    pub fn with(mut self, child: Self) -> Self {
        self.content.push(Content::Element(child));
        self
    }

    /// The element with other elements at its end.
    #[must_use]
    pub fn with_all(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.content.extend(children.into_iter().map(Content::Element));
        self
    }

    /// The element with another element at its end that holds a text.
    #[must_use]
    pub fn with_leaf(self, name: &str, text: impl AsRef<str>) -> Self {
        self.with(Self::leaf(name, text.as_ref()))
    }

    /// The element for use in `root`: in the namespace of `root`, which a name without the prefix of `root`
    /// does not imply.
    #[must_use]
    pub fn inside(mut self, root: &Self) -> Self {
        let prefix = root.name.split_once(':').map(|(prefix, _)| prefix);
        let namespace = prefix.and_then(|prefix| root.attribute(&format!("xmlns:{prefix}")));
        if let Some(namespace) = namespace {
            self.set_attribute("xmlns".into(), namespace.into());
        }
        self
    }

    /// Its name without its prefix.
    pub fn name(&self) -> &str {
        self.name.split_once(':').map_or(&*self.name, |(_, local)| local)
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        let mut all = self.attributes.iter();
        all.find(|(attribute, _)| attribute == name)
            .map(|(_, value)| &**value)
    }

    /// The elements that it holds.
    pub fn children(&self) -> impl Iterator<Item = &Self> {
        self.content.iter().filter_map(|content| match content {
            Content::Element(element) => Some(element),
            Content::Text(_) => None,
        })
    }

    /// The first element of this name that it holds.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children().find(|child| child.name() == name)
    }

    /// The text directly in the element.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|content| match content {
            Content::Text(text) => Some(text.as_str()),
            Content::Element(_) => None,
        });
        texts.collect()
    }

    /// The text of the first element of this name that it holds.
    pub fn text_of(&self, name: &str) -> Option<String> {
        self.child(name).map(Self::text)
    }

    /// Puts another text into the first element of this name that it holds.
    pub fn set_text_of(&mut self, name: &str, text: &str) {
        let mut elements = self.content.iter_mut().filter_map(|content| match content {
            Content::Element(element) => Some(element),
            Content::Text(_) => None,
        });
        if let Some(element) = elements.find(|element| element.name() == name) {
            element.content = vec![Content::Text(text.into())];
        }
    }

    pub(super) fn set_attribute(&mut self, name: String, value: String) {
        self.attributes.push((name, value));
    }

    pub(super) fn push(&mut self, content: Content) {
        self.content.push(content);
    }

    pub(super) fn push_text(&mut self, text: &str) {
        match self.content.last_mut() {
            _ if text.is_empty() => {}
            Some(Content::Text(before)) => before.push_str(text),
            _ => self.content.push(Content::Text(text.into())),
        }
    }

    /// Drops white space beside elements, which only shows their nesting.
    pub(super) fn forget_layout(&mut self) {
        if self.children().next().is_some() {
            let is_layout =
                |content: &Content| matches!(content, Content::Text(text) if text.trim().is_empty());
            self.content.retain(|content| !is_layout(content));
        }
    }

    /// The document whose root this is.
    pub fn to_document(&self) -> String {
        let mut writer = Writer::new(Vec::with_capacity(1024));
        put(
            &mut writer,
            Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)),
        );
        put(&mut writer, Event::Text(BytesText::from_escaped("\n")));
        self.write(&mut writer);
        String::from_utf8(writer.into_inner()).expect("text was written")
    }

    fn write(&self, writer: &mut Writer<Vec<u8>>) {
        let mut start = BytesStart::new(&*self.name);
        for (name, value) in &self.attributes {
            start.push_attribute((name.as_bytes(), escaped(value).as_bytes()));
        }
        if self.content.is_empty() {
            return put(writer, Event::Empty(start));
        }
        put(writer, Event::Start(start));
        for content in &self.content {
            match content {
                Content::Element(element) => element.write(writer),
                Content::Text(text) => put(writer, Event::Text(BytesText::from_escaped(escaped(text)))),
            }
        }
        put(writer, Event::End(BytesEnd::new(&*self.name)));
    }
}

fn put(writer: &mut Writer<Vec<u8>>, event: Event<'_>) {
    writer.write_event(event).expect("memory takes what is written");
}

/// The text, with references for characters that it cannot hold literally. Some parsers reject a reference to
/// a control character, but S3 writes names in this way, and there is no other way to write them.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\0' => escaped.push('\u{fffd}'),
            other if other.is_control() || !is_allowed(other) => {
                let _ = write!(escaped, "&#x{:X};", u32::from(other));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// Returns true if XML 1.0 allows the character. S3 and its clients also use others, as references.
pub(super) fn is_allowed(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

/// A text for people to read: characters that XML cannot express are replaced.
pub fn shown(text: &str) -> String {
    let is_shown = |character: &char| is_allowed(*character);
    let characters = text.chars();
    characters
        .map(|character| Some(character).filter(is_shown).unwrap_or('\u{fffd}'))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Element, shown};

    fn read(document: &str) -> Element {
        Element::from_answer(document.as_bytes()).unwrap()
    }

    #[test]
    fn an_unknown_element_is_written_as_it_was_read() {
        let document = "<s:R xmlns:s=\"u\" a=\"&quot;&lt;\">\n <s:K>a<![CDATA[&]]></s:K>\n \
            <o:X xmlns:o=\"v\" o:type=\"t\"><Y/>mixed <b>text</b></o:X><Z> </Z></s:R>";
        let element = read(document);
        let written = element.to_document();
        assert_eq!(
            written,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<s:R xmlns:s=\"u\" a=\"&quot;&lt;\"><s:K>a&amp;</s:K>\
             <o:X xmlns:o=\"v\" o:type=\"t\"><Y/>mixed <b>text</b></o:X><Z> </Z></s:R>"
        );
        assert_eq!(read(&written), element);
        assert_eq!(element.name(), "R");
        assert_eq!(element.text_of("K").as_deref(), Some("a&"));
        let added = Element::leaf("K", "b").inside(&element);
        assert_eq!(added.attribute("xmlns"), Some("u"));
        assert_eq!(
            Element::leaf("K", "b")
                .inside(&Element::root("R"))
                .attribute("xmlns"),
            None
        );
    }

    #[test]
    fn text_shown_to_people_is_plain_xml() {
        assert_eq!(shown("a\u{0}\u{8}\tb\u{ffff}é"), "a\u{fffd}\u{fffd}\tb\u{fffd}é");
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_it_was_written(text in "[^\0]{0,40}", value in "[^\0]{0,10}") {
            let mut element = Element::root("R").with_leaf("K", &text);
            element.set_attribute("a".into(), value);
            prop_assert_eq!(read(&element.to_document()), element);
        }
    }
}
