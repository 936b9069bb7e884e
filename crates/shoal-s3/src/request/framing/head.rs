//! Parses a request head incrementally, line by line: checks that it is well formed, and determines the
//! length of the body.

use crate::error::{ErrorCode, S3Error};

use super::chunked::ChunkedBody;
use super::syntax::{Field, field, is_host, is_origin_form, is_token, line, may_begin_head};
use super::{MAX_FIELDS, MAX_HEAD_BYTES, State, bad_request, too_large};

/// The progress of reading a head, and the facts from its lines.
///
/// Each line is parsed once, when it is complete, so a head that arrives byte by byte costs no more than one
/// that arrives at once.
#[derive(Debug, Default)]
pub(super) struct HeadScan {
    /// Number of bytes searched for the end of a line.
    scanned: usize,
    line_start: usize,
    request: Option<RequestLine>,
    facts: Facts,
}

#[derive(Debug)]
struct RequestLine {
    is_http_10: bool,
    /// The authority of an absolute-form target; `Host` must be equal to it.
    authority: Option<Box<[u8]>>,
}

/// The facts about framing and routing in the fields.
#[derive(Debug, Default)]
struct Facts {
    fields: usize,
    content_length: Option<u64>,
    is_chunked: bool,
    has_host: bool,
}

impl HeadScan {
    /// Returns true if no byte of a head has arrived.
    pub(super) fn is_untouched(&self) -> bool {
        self.scanned == 0
    }

    /// Continues reading `window`, which begins with the head. Returns the length of a complete and
    /// well-formed head, and the state after it; `None` while the end of the head is missing.
    pub(super) fn advance(&mut self, window: &[u8]) -> Result<Option<(usize, State)>, S3Error> {
        if self.scanned == 0 && !window.first().is_none_or(|&byte| may_begin_head(byte)) {
            // Any other start, such as a TLS handshake on a plain port, is refused at once.
            return Err(bad_request("This is not an HTTP request."));
        }
        assert!(
            self.scanned <= window.len(),
            "bytes that have not passed are given again"
        );
        while let Some(offset) = memchr::memchr(b'\n', &window[self.scanned..]) {
            let newline = self.scanned + offset;
            if newline >= MAX_HEAD_BYTES {
                return Err(too_large("The request head is larger than 64 KiB."));
            }
            let start = std::mem::replace(&mut self.line_start, newline + 1);
            self.scanned = newline + 1;
            if let Some(body) = self.take_line(window, start, newline)? {
                return Ok(Some((newline + 1, body)));
            }
        }
        self.scanned = window.len();
        if self.scanned >= MAX_HEAD_BYTES {
            return Err(too_large("The request head is larger than 64 KiB."));
        }
        Ok(None)
    }

    /// Parses the line that ends at `newline`; the empty line completes the head.
    fn take_line(&mut self, window: &[u8], start: usize, newline: usize) -> Result<Option<State>, S3Error> {
        let line = line(window, start, newline)?;
        match &self.request {
            // One empty line before a request is ignored, as RFC 9112 asks.
            None if line.is_empty() && start == 0 => Ok(None),
            None => {
                self.request = Some(RequestLine::read(line)?);
                Ok(None)
            }
            Some(request) if line.is_empty() => self.facts.conclude(request).map(Some),
            Some(request) => self.facts.take_field(field(line)?, request).map(|()| None),
        }
    }
}

impl RequestLine {
    /// Reads `METHOD SP target SP HTTP/1.x`.
    fn read(line: &[u8]) -> Result<Self, S3Error> {
        // A third space would be part of the version, which must be one of two words.
        let parts = memchr::memchr(b' ', line).and_then(|first| {
            let rest = &line[first + 1..];
            let second = memchr::memchr(b' ', rest)?;
            Some((&line[..first], &rest[..second], &rest[second + 1..]))
        });
        let (method, target, version) =
            parts.ok_or_else(|| bad_request("The request line is not a method, a target and a version."))?;
        if !is_token(method) {
            return Err(bad_request("The method is not valid."));
        }
        let is_http_10 = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            _ => return Err(bad_request("The HTTP version is not supported.")),
        };
        let authority = authority_of(method, target)?.map(Box::from);
        Ok(Self {
            is_http_10,
            authority,
        })
    }
}

/// Checks the target; one in absolute form names an authority, which is returned.
fn authority_of<'target>(method: &[u8], target: &'target [u8]) -> Result<Option<&'target [u8]>, S3Error> {
    let invalid = || S3Error::new(ErrorCode::InvalidUri, "Couldn't parse the specified URI.").closing();
    if method == b"CONNECT" {
        return Err(bad_request("CONNECT is not supported."));
    }
    let is_path = target.starts_with(b"/");
    if is_path || target == b"*" {
        let is_valid = if is_path {
            is_origin_form(target)
        } else {
            method == b"OPTIONS"
        };
        return is_valid.then_some(None).ok_or_else(invalid);
    }
    let scheme = [b"http://".as_slice(), b"https://"]
        .into_iter()
        .find(|scheme| {
            target
                .get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        })
        .ok_or_else(invalid)?;
    let rest = &target[scheme.len()..];
    let end = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?'))
        .unwrap_or(rest.len());
    // Such targets are rare, so the HTTP library's own type does the rest of the check.
    if target.contains(&b'#') || http::Uri::try_from(target).is_err() {
        return Err(invalid());
    }
    Ok(Some(&rest[..end]))
}

impl Facts {
    fn take_field(&mut self, field: Field<'_>, request: &RequestLine) -> Result<(), S3Error> {
        self.fields += 1;
        if self.fields > MAX_FIELDS {
            return Err(too_large("The request has more than 100 header fields."));
        }
        // The length of its name rules out almost every field but the three that matter here.
        match field.name.len() {
            4 if field.name.eq_ignore_ascii_case(b"host") => self.take_host(field.value, request),
            14 if field.name.eq_ignore_ascii_case(b"content-length") => self.take_content_length(field.value),
            17 if field.name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.take_transfer_encoding(field.value)
            }
            _ => Ok(()),
        }
    }

    fn take_host(&mut self, value: &[u8], request: &RequestLine) -> Result<(), S3Error> {
        if self.has_host {
            return Err(bad_request("The request has more than one Host."));
        }
        if !is_host(value) {
            return Err(bad_request("The Host is not valid."));
        }
        if request
            .authority
            .as_ref()
            .is_some_and(|authority| !authority.eq_ignore_ascii_case(value))
        {
            return Err(bad_request("The authority of the target and the Host differ."));
        }
        self.has_host = true;
        Ok(())
    }

    fn take_content_length(&mut self, value: &[u8]) -> Result<(), S3Error> {
        if self.content_length.is_some() {
            return Err(bad_request("The request has more than one Content-Length."));
        }
        // `u64::from_str` alone would accept a leading `+`.
        let length = Some(value)
            .filter(|value| value.iter().all(u8::is_ascii_digit))
            .and_then(|value| std::str::from_utf8(value).ok())
            .and_then(|value| value.parse::<u64>().ok())
            .filter(|&length| i64::try_from(length).is_ok())
            .ok_or_else(|| bad_request("The Content-Length is not a number of bytes."))?;
        self.content_length = Some(length);
        Ok(())
    }

    fn take_transfer_encoding(&mut self, value: &[u8]) -> Result<(), S3Error> {
        if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(bad_request(
                "The only Transfer-Encoding understood is chunked, once.",
            ));
        }
        self.is_chunked = true;
        Ok(())
    }

    /// Determines at the end of the head how the end of the body is found.
    fn conclude(&self, request: &RequestLine) -> Result<State, S3Error> {
        if !self.has_host && (!request.is_http_10 || request.authority.is_some()) {
            return Err(bad_request("The request has no Host."));
        }
        match (self.is_chunked, self.content_length) {
            (true, Some(_)) => Err(bad_request(
                "Content-Length and Transfer-Encoding must not come together.",
            )),
            (true, None) if request.is_http_10 => Err(bad_request("HTTP/1.0 has no Transfer-Encoding.")),
            (true, None) => Ok(State::Chunked(ChunkedBody::default())),
            (false, None | Some(0)) => Ok(State::default()),
            (false, Some(length_bytes)) => Ok(State::Length(length_bytes)),
        }
    }
}
