//! How the lake removes objects: one, or many by a document that it reads as XML says.

use bytes::Bytes;
use http::header::IF_MATCH;
use http::{HeaderMap, HeaderValue, StatusCode};
use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use super::answer::{Answer, escape};
use super::object::Object;
use super::policy::Access;
use super::read::condition;
use super::request::Request;
use super::state::State;

/// One object of many.
#[derive(Clone, Default)]
struct Listed {
    key: String,
    version: Option<String>,
    etag: Option<String>,
    size: Option<String>,
}

pub(super) fn delete(state: &mut State, request: &Request) -> Result<Answer, &'static str> {
    state.check(request, Access::Remove)?;
    let listed = Listed {
        key: String::from_utf8_lossy(&request.key).into_owned(),
        version: request.parameter("versionId"),
        etag: request.header("if-match").map(Into::into),
        size: request.header("x-amz-if-match-size").map(Into::into),
    };
    listed.delete(state, &request.bucket)?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

pub(super) fn delete_many(
    state: &mut State,
    request: &Request,
    body: &Bytes,
) -> Result<Answer, &'static str> {
    let (listed, is_quiet) = listed(body).ok_or("MalformedXML")?;
    if listed.is_empty() || listed.len() > 1000 {
        return Err("MalformedXML");
    }
    let mut xml = String::from("<DeleteResult>");
    for listed in listed {
        let allowed = state.check_place(request, Access::Remove, &request.bucket, listed.key.as_bytes());
        let deleted = allowed.and_then(|()| listed.delete(state, &request.bucket));
        let version = listed.version.iter();
        let version: Vec<_> = version.map(|id| format!("<VersionId>{id}</VersionId>")).collect();
        let named = format!("<Key>{}</Key>{}", escape(&listed.key), version.concat());
        match deleted {
            Ok(()) if is_quiet => {}
            Ok(()) => xml.extend(["<Deleted>", &named, "</Deleted>"]),
            Err(code) => xml.extend(["<Error>", &named, "<Code>", code, "</Code></Error>"]),
        }
    }
    Ok(Answer::xml(StatusCode::OK, &(xml + "</DeleteResult>")))
}

impl Listed {
    /// An object that is not there meets every condition.
    fn delete(&self, state: &mut State, bucket: &str) -> Result<(), &'static str> {
        let key = self.key.as_bytes();
        if let Ok(object) = state.object(bucket, key, None)
            && !self.is_met_by(object)
        {
            return Err("PreconditionFailed");
        }
        state.delete(bucket, key, self.version.as_deref());
        Ok(())
    }

    fn is_met_by(&self, object: &Object) -> bool {
        let mut asked = HeaderMap::new();
        if let Some(etag) = &self.etag {
            asked.insert(IF_MATCH, HeaderValue::from_str(etag).unwrap());
        }
        let size = object.content.size().to_string();
        condition(object, &asked).is_none() && self.size.as_ref().is_none_or(|asked| *asked == size)
    }
}

/// The objects that a document lists, and whether the answer lists failures only. Skips elements that it does
/// not know.
fn listed(body: &[u8]) -> Option<(Vec<Listed>, bool)> {
    let mut reader = Reader::from_str(std::str::from_utf8(body).ok()?);
    reader.config_mut().expand_empty_elements = true;
    let (mut all, mut text, mut is_quiet) = (Vec::new(), String::new(), false);
    let mut current = Listed::default();
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                text.clear();
                if start.local_name().as_ref() == b"Object" {
                    current = Listed::default();
                }
            }
            Event::Text(part) => text.push_str(&part.decode().ok()?),
            Event::CData(part) => text.push_str(&part.decode().ok()?),
            Event::GeneralRef(name) => match name.resolve_char_ref().ok()? {
                Some(character) => text.push(character),
                None => text.push_str(resolve_predefined_entity(&name.decode().ok()?)?),
            },
            Event::End(end) => match end.local_name().as_ref() {
                b"Key" => current.key = std::mem::take(&mut text),
                b"VersionId" => current.version = Some(std::mem::take(&mut text)),
                b"ETag" => current.etag = Some(std::mem::take(&mut text)),
                b"Size" => current.size = Some(std::mem::take(&mut text)),
                b"Quiet" => is_quiet = text == "true",
                b"Object" => all.push(std::mem::take(&mut current)),
                _ => {}
            },
            Event::Eof => return Some((all, is_quiet)),
            _ => {}
        }
    }
}
