//! Promises about the readers of XML: they never panic, and what they have read is what is written of it.

use shoal_s3::xml::{
    Completion, Deletion, DeletionResult, Element, ErrorDocument, Listing, completed_etag, copied_etag,
    upload_id,
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
    if let Ok(element) = Element::from_answer(data) {
        let written = element.to_document();
        assert_eq!(Element::from_answer(written.as_bytes()), Ok(element));
    }
    let _ = (ErrorDocument::read(data), Listing::read(data));
    let _ = (upload_id(data), completed_etag(data), copied_etag(data));
}
