//! Short answers of a lake, of which the node needs one text.

use super::{Element, Malformed};

/// Reads the ID of an upload that a lake has created.
///
/// # Errors
///
/// Fails with [`Malformed`] if the answer is another document, or names no ID.
pub fn upload_id(answer: &[u8]) -> Result<String, Malformed> {
    let id = text_in(answer, "InitiateMultipartUploadResult", "UploadId")?;
    Some(id).filter(|id| !id.is_empty()).ok_or(Malformed)
}

/// Reads the ETag of an object that was assembled from parts; empty if the lake sent none.
///
/// # Errors
///
/// Fails with [`Malformed`] if the answer is another document, or has no ETag.
pub fn completed_etag(answer: &[u8]) -> Result<String, Malformed> {
    text_in(answer, "CompleteMultipartUploadResult", "ETag")
}

/// Reads the ETag of an object that was copied.
///
/// # Errors
///
/// Fails with [`Malformed`] if the answer is another document, or has no ETag.
pub fn copied_etag(answer: &[u8]) -> Result<String, Malformed> {
    text_in(answer, "CopyObjectResult", "ETag")
}

fn text_in(answer: &[u8], root: &str, name: &str) -> Result<String, Malformed> {
    let answer = Element::from_answer(answer)?;
    let text = answer.text_of(name).filter(|_| answer.name() == root);
    text.ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::{completed_etag, copied_etag, upload_id};

    #[test]
    fn the_id_of_an_upload_is_found_in_the_answer_that_created_it() {
        let answer = |inside: &str| {
            let root = "InitiateMultipartUploadResult";
            format!(
                "<?xml version=\"1.0\"?><{root}><Key><![CDATA[<UploadId>x</UploadId>]]></Key>{inside}</{root}>"
            )
        };
        let id = upload_id(answer("<UploadId>a&amp;b</UploadId>").as_bytes());
        assert_eq!(id.as_deref(), Ok("a&b"));
        for other in [
            answer(""),
            answer("<UploadId/>"),
            "<R><UploadId>x</UploadId></R>".into(),
        ] {
            assert!(upload_id(other.as_bytes()).is_err(), "{other}");
        }
    }

    #[test]
    fn a_lake_says_what_the_object_is_called() {
        let answer = "<r:CompleteMultipartUploadResult xmlns:r='u'><r:Key>k</r:Key><r:ETag>&quot;e&quot;</r:ETag><r:New/>\
            </r:CompleteMultipartUploadResult>";
        assert_eq!(completed_etag(answer.as_bytes()).as_deref(), Ok("\"e\""));
        for answer in [
            "<Error><ETag>e</ETag></Error>",
            "<CompleteMultipartUploadResult/>",
            "",
        ] {
            assert!(completed_etag(answer.as_bytes()).is_err(), "{answer}");
        }
    }

    #[test]
    fn the_answer_to_a_copy_names_its_etag() {
        let answer = |root: &str| format!("<{root}><ETag>&quot;e&quot;</ETag></{root}>");
        let etag = copied_etag(answer("CopyObjectResult").as_bytes());
        assert_eq!(etag.as_deref(), Ok("\"e\""));
        for other in [
            answer("CopyPartResult"),
            String::new(),
            "<CopyObjectResult/>".into(),
        ] {
            assert!(copied_etag(other.as_bytes()).is_err(), "{other}");
        }
    }
}
