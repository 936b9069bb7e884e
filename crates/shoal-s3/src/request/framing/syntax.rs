//! The grammar of lines, names, values and hosts.

use crate::error::S3Error;

use super::bad_request;

const TOKEN: u8 = 1;
const PATH: u8 = 2;
const QUERY: u8 = 4;
const HOST: u8 = 8;

/// The classes that each byte belongs to.
static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let byte = index as u8;
        let mut class = 0;
        if byte.is_ascii_alphanumeric() {
            class |= TOKEN | HOST;
        }
        if matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_'
        ) || matches!(byte, b'`' | b'|' | b'~')
        {
            class |= TOKEN;
        }
        if matches!(byte, b'-' | b'.' | b'_' | b'~') {
            class |= HOST;
        }
        // The two sets of the HTTP library's URI type, without `#`, at which it would silently truncate the
        // target.
        if matches!(byte, b'!' | b'"' | 0x24..=0x3b | b'=' | b'?' | 0x40..=0x5f | 0x61..=0x7e | 0x80..=0xff) {
            class |= PATH;
        }
        if matches!(byte, b'!' | 0x24..=0x3b | b'=' | 0x3f..=0x7e | 0x80..=0xff) {
            class |= QUERY;
        }
        table[index] = class;
        index += 1;
    }
    table
}

fn all_of(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|&byte| CLASSES[usize::from(byte)] & class != 0)
}

/// Returns true if `bytes` is a token: a method or a field name.
pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all_of(bytes, TOKEN)
}

/// Returns true if a request may begin with this byte.
pub(super) fn may_begin_head(byte: u8) -> bool {
    byte == b'\r' || CLASSES[usize::from(byte)] & TOKEN != 0
}

/// Returns true if the HTTP library's URI type accepts `target`, which begins with `/`, unchanged.
pub(super) fn is_origin_form(target: &[u8]) -> bool {
    let query = memchr::memchr(b'?', target).unwrap_or(target.len());
    let (path, query) = target.split_at(query);
    all_of(path, PATH) && all_of(query, QUERY) && (target.is_ascii() || std::str::from_utf8(target).is_ok())
}

/// Returns true if every byte is allowed in a field value: no control bytes except the tab.
pub(super) fn is_field_value(bytes: &[u8]) -> bool {
    // A fold without an early exit, so that the compiler vectorises the loop over a long signature.
    let is_control = |byte: u8| (byte < b' ' && byte != b'\t') || byte == 0x7f;
    bytes
        .iter()
        .fold(0, |controls, &byte| controls | u8::from(is_control(byte)))
        == 0
}

/// Returns true if `host` is a name or address with an optional port, as in a `Host` field.
pub(super) fn is_host(host: &[u8]) -> bool {
    let (is_named, port) = if let Some(bracketed) = host.strip_prefix(b"[") {
        let Some(end) = memchr::memchr(b']', bracketed) else {
            return false;
        };
        let (address, port) = (&bracketed[..end], &bracketed[end + 1..]);
        (is_ipv6(address), port)
    } else {
        let end = memchr::memchr(b':', host).unwrap_or(host.len());
        let (name, port) = host.split_at(end);
        (!name.is_empty() && all_of(name, HOST), port)
    };
    is_named && (port.is_empty() || is_port(port))
}

/// Accepts digits, colons and dots: only a client that connects to the address needs their meaning.
fn is_ipv6(address: &[u8]) -> bool {
    let may_stand = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    !address.is_empty() && address.iter().all(may_stand)
}

/// A colon and the digits of a port, which may be left out.
fn is_port(port: &[u8]) -> bool {
    port.strip_prefix(b":")
        .is_some_and(|digits| digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit))
}

/// The parts of a field line, the value without the white space around it.
#[derive(Clone, Copy)]
pub(super) struct Field<'line> {
    pub(super) name: &'line [u8],
    pub(super) value: &'line [u8],
}

/// Splits one field line, given without its CRLF.
pub(super) fn field(line: &[u8]) -> Result<Field<'_>, S3Error> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(bad_request("A header line must not be folded."));
    }
    // The first byte that cannot be part of a name ends it, so white space before the colon is rejected too.
    let end = line
        .iter()
        .position(|&byte| CLASSES[usize::from(byte)] & TOKEN == 0);
    let end = end.ok_or_else(|| bad_request("A header line has no colon."))?;
    if end == 0 || line[end] != b':' {
        return Err(bad_request("A header name is not valid."));
    }
    let (name, value) = (&line[..end], &line[end + 1..]);
    if !is_field_value(value) {
        return Err(bad_request("A header value holds a control character."));
    }
    Ok(Field {
        name,
        value: value.trim_ascii(),
    })
}

/// Returns the line from `start` to `newline`, without its CRLF.
pub(super) fn line(window: &[u8], start: usize, newline: usize) -> Result<&[u8], S3Error> {
    window[start..newline]
        .strip_suffix(b"\r")
        .ok_or_else(|| bad_request("A line must end with CR LF."))
}
