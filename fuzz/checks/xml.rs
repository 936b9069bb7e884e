//! Promises about the readers of XML: they never panic, and what they have read is what is written of it.

use shoal_s3::xml::{
    Completed, Completion, Deletion, DeletionResult, Document, Element, ErrorDocument, Malformed,
};

/// Panics when a promise is broken.
pub(crate) fn check(data: &[u8]) {
    if let Ok(deletion) = Deletion::read(data) {
        let written = deletion.write();
        assert_eq!(Deletion::read(written.as_bytes()).as_ref(), Ok(&deletion));
        // A lake that only looks for tags reads the same keys.
        let keys = written.split("<Key>").skip(1);
        let keys: Vec<_> = keys.map(|rest| rest.split_once("</Key>").unwrap().0).collect();
        assert_eq!(keys.len(), deletion.keys.len());
        for (written, key) in keys.iter().zip(&deletion.keys) {
            assert!(!written.contains(['<', '>']) && written.len() >= key.key.len());
        }
    }
    if let Ok(completion) = Completion::read(data) {
        let written = completion.write();
        assert_eq!(Completion::read(written.as_bytes()), Ok(completion));
    }
    if let Ok(result) = DeletionResult::read(data) {
        let told = result.write(false);
        let again = DeletionResult::read(told.as_bytes()).unwrap();
        assert_eq!(again.results, result.results);
    }
    if let Ok(element) = whole(data) {
        assert_eq!(whole(element.to_document().as_bytes()), Ok(element));
    }
    let _ = (ErrorDocument::read(data), Completed::read(data));
}

fn whole(data: &[u8]) -> Result<Element, Malformed> {
    let document = Document::parse(data)?;
    let (tag, mut reader) = document.answer()?;
    let element = reader.element(&tag)?;
    reader.end()?;
    Ok(element)
}
