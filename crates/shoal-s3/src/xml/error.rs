//! S3's error document: an error, in the words of S3.

use super::{Document, Element, Malformed};

/// A lake's description of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorDocument {
    /// The code: `NoSuchKey`.
    pub code: String,
    /// The sentence.
    pub message: String,
}

impl ErrorDocument {
    /// Reads an error, if the document is one; lakes send some with a `200`.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if the bytes are not an XML document.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let document = Document::parse(bytes)?;
        let (tag, mut reader) = document.answer()?;
        if tag.name() != "Error" {
            return Ok(None);
        }
        let error = reader.element(&tag)?;
        reader.end()?;
        Ok(Some(Self {
            code: error.text_of("Code").unwrap_or_default().trim().into(),
            message: error.text_of("Message").unwrap_or_default(),
        }))
    }

    /// An error as S3 writes it: without a namespace, and with code and message first.
    pub fn write(code: &str, message: &str) -> Element {
        Element::new("Error")
            .with_leaf("Code", code)
            .with_leaf("Message", super::shown(message))
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorDocument;

    #[test]
    fn an_error_is_told_from_other_documents() {
        let code = |document: &str| {
            let read = ErrorDocument::read(document.as_bytes());
            read.map(|error| error.map(|error| error.code))
        };
        let written = ErrorDocument::write("NoSuchKey", "m").to_document();
        assert_eq!(code(&written), Ok(Some("NoSuchKey".into())));
        assert_eq!(
            code("<e:Error xmlns:e='u'><e:Code>X</e:Code></e:Error>"),
            Ok(Some("X".into()))
        );
        assert_eq!(code("<Error><Code> X\n</Code></Error>"), Ok(Some("X".into())));
        assert_eq!(code("<Error/>"), Ok(Some(String::new())));
        assert_eq!(code("<R><Error/></R>"), Ok(None));
        assert!(code("Error").is_err());
        let read = ErrorDocument::read(written.as_bytes()).unwrap().unwrap();
        assert_eq!(read.message, "m");
    }
}
