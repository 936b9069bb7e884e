//! Headers that a service asks for, such as a token: a file holds them, one a line, and they are secret.

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};
use shoal_base::secret::Secret;

/// Maximum number of headers for one service.
pub const HEADERS_MAX: usize = 16;

/// The headers by which a client of HTTP says where a request goes and where it ends.
const OF_HTTP: [HeaderName; 4] = [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING];

/// Reads headers from the text of a file: a name, a colon and a value on each line.
///
/// # Errors
///
/// The number of the first line that is no header, or one that the node writes by itself.
pub fn read(text: &str) -> Result<HeaderMap, usize> {
    let mut headers = HeaderMap::new();
    for (number, line) in (1_usize..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let pair = line.split_once(':').and_then(|(name, value)| {
            let name = name.trim().parse::<HeaderName>().ok()?;
            let mut value = value.trim().parse::<HeaderValue>().ok()?;
            value.set_sensitive(true);
            (!OF_HTTP.contains(&name)).then_some((name, value))
        });
        let (name, value) = pair.ok_or(number)?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// Returns the headers of a text that [`read`] has accepted; none without a text.
pub(crate) fn of(text: Option<&Secret>) -> HeaderMap {
    let headers = text.and_then(|text| read(text.expose()).ok());
    headers.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn headers_stand_one_on_a_line_and_stay_secret() {
        let headers = read("Authorization: Bearer a:b\n\nx-site:  1 \n").unwrap();
        assert_eq!(headers["authorization"], "Bearer a:b");
        assert_eq!(headers["x-site"], "1");
        assert!(!format!("{headers:?}").contains("Bearer"));
        assert_eq!(read("a: 1\nno header\n"), Err(2));
        assert_eq!(read("a b: 1"), Err(1));
    }

    #[test]
    fn a_header_that_would_end_or_redirect_a_request_is_refused() {
        for name in ["Host", "content-length", "Transfer-Encoding", "connection"] {
            assert_eq!(read(&format!("x: 1\n{name}: 1")), Err(2), "{name}");
        }
    }
}
