//! Parses the URL of an endpoint.

use http::uri::{Authority, Scheme};
use http::{HeaderValue, Uri};

use crate::endpoint::error::BoxError;

/// Splits a URL into its scheme, host and port, and its path, which may be empty.
pub(crate) fn split_url(url: &str) -> (&str, &str) {
    let host = url.find("://").map_or(0, |scheme| scheme + 3);
    let path = url[host..].find('/').map_or(url.len(), |path| host + path);
    url.split_at(path)
}

/// Returns the scheme, host and port to connect to.
pub(super) fn address(url: &str) -> Result<Uri, BoxError> {
    let uri: Uri = url.parse()?;
    let plain = matches!(uri.scheme_str(), Some("http" | "https"));
    let bare = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
    let no_user = uri
        .authority()
        .is_some_and(|authority| !authority.as_str().contains('@'));
    if !(plain && bare && no_user) {
        return Err("expected http://host[:port] or https://host[:port], without user, path or query".into());
    }
    Ok(uri)
}

/// Returns the `Host` header, without a port that the scheme implies, as clients usually write it.
pub(super) fn host(address: &Uri) -> HeaderValue {
    let authority = address.authority().map_or("", Authority::as_str);
    let implied = if address.scheme() == Some(&Scheme::HTTPS) {
        ":443"
    } else {
        ":80"
    };
    let host = authority.strip_suffix(implied).unwrap_or(authority);
    HeaderValue::from_str(host).expect("an authority is made of visible characters")
}

#[cfg(test)]
mod tests {
    use super::{address, host, split_url};

    #[test]
    fn the_path_of_a_url_begins_after_its_host() {
        assert_eq!(split_url("https://host:1/a/b"), ("https://host:1", "/a/b"));
        assert_eq!(split_url("http://host"), ("http://host", ""));
        assert_eq!(split_url("host/a"), ("host", "/a"));
    }

    #[test]
    fn an_endpoint_is_a_scheme_a_host_and_a_port() {
        for (url, expected) in [
            ("http://127.0.0.1:9090", "127.0.0.1:9090"),
            ("http://lake/", "lake"),
            ("http://lake:80", "lake"),
            ("https://lake:443", "lake"),
            ("https://lake:80", "lake:80"),
            ("http://[::1]:80", "[::1]"),
        ] {
            assert_eq!(host(&address(url).unwrap()), expected, "{url}");
        }
        for url in [
            "",
            "lake",
            "ftp://lake",
            "http://lake/path",
            "http://lake?x",
            "http://user:pw@lake",
            "http://",
        ] {
            assert!(address(url).is_err(), "{url}");
        }
    }
}
