//! The forms of names, places, addresses and keys.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use http::Uri;

use crate::config::Config;

pub(super) const ACCESS_KEY_HINT: &str = "use printable characters other than space, slash, comma and =";

pub(super) const PLACE_HINT: &str = "write names between slashes, outermost first: dc1/cluster-a/rack-1";

/// Returns what is wrong with an access key, which every signature delimits by slashes and commas.
pub(super) fn access_key_fault(key: &str) -> Option<&'static str> {
    let breaks = |c: char| !c.is_ascii_graphic() || ['/', ',', '=', '"'].contains(&c);
    key.contains(breaks)
        .then_some("has characters that a signature cannot carry")
}

/// Returns why a file cannot be read.
pub(super) fn unreadable(path: Option<&Path>) -> Option<String> {
    let error = std::fs::File::open(path?).err()?;
    Some(format!("cannot be read: {error}"))
}

/// Returns true if a text may be used in headers, labels and topology paths.
pub(super) fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || ['.', '-', '_'].contains(&c);
    (1..=63).contains(&text.len()) && text.chars().all(allowed)
}

pub(super) fn is_place(text: &str) -> bool {
    text.split('/').all(is_name)
}

pub(super) fn is_domain(text: &str) -> bool {
    let ends_in_number = text
        .rsplit('.')
        .next()
        .is_some_and(|last| last.parse::<u32>().is_ok());
    text.split('.').all(is_dns_label) && !ends_in_number && text.len() <= 253
}

fn is_dns_label(label: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (1..=63).contains(&label.len())
        && label.chars().all(allowed)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Returns true if two listeners need the same port of the same interface. Port 0 is always a free port.
pub(super) fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let same_interface = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() == b.port() && a.port() != 0 && same_interface
}

pub(super) fn is_host_and_port(text: &str) -> bool {
    let host_and_port = text.rsplit_once(':');
    let is_host = |host: &str| {
        let name = host.strip_suffix('.').unwrap_or(host);
        host.starts_with('[') && text.parse::<SocketAddr>().is_ok() || name.split('.').all(is_dns_label)
    };
    host_and_port.is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok_and(|port| port != 0))
}

/// Returns what is wrong with the URL of a server.
pub(super) fn endpoint_fault(endpoint: &str) -> Option<&'static str> {
    let uri = endpoint.parse::<Uri>().unwrap_or_default();
    let has_path = uri.path_and_query().is_some_and(|path| path != "/") || endpoint.contains('#');
    url_fault(&uri).or_else(|| has_path.then_some("has a path or a query"))
}

/// Returns what is wrong with the URL of a collector, which may have a path.
pub(super) fn collector_fault(url: &str) -> Option<&'static str> {
    let uri = url.parse::<Uri>().unwrap_or_default();
    let has_query = uri.query().is_some() || url.contains('#');
    url_fault(&uri).or_else(|| has_query.then_some("has a query"))
}

/// Returns what is wrong with the scheme and the host of a URL.
pub(super) fn url_fault(uri: &Uri) -> Option<&'static str> {
    let Some(authority) = uri.authority() else {
        return Some("is not a URL");
    };
    // `Uri` ignores the text after the colon if it is not a port.
    let has_colon = authority.as_str().len() > authority.host().len();
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        Some("begins with neither http:// nor https://")
    } else if authority.as_str().contains('@') {
        Some("holds a user name, which belongs into access_key")
    } else if authority.host().is_empty() {
        Some("names no host")
    } else if has_colon && authority.port_u16().is_none_or(|port| port == 0) {
        Some("has no valid port")
    } else {
        None
    }
}

/// Returns true if what goes to a URL passes a network unencrypted.
pub(super) fn is_open_to_others(uri: &Uri) -> bool {
    let is_local = uri.host().is_some_and(|host| {
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    });
    uri.scheme_str() == Some("http") && !is_local
}

/// Returns true if a URL names a port of this node.
pub(super) fn is_own(endpoint: &str, config: &Config) -> bool {
    let Some((_, host)) = endpoint.split_once("://") else {
        return false;
    };
    let host = host.trim_end_matches('/').replace("localhost", "127.0.0.1");
    let is_of = |own: SocketAddr| {
        let own_ip = if own.ip().is_unspecified() {
            [127, 0, 0, 1].into()
        } else {
            own.ip()
        };
        own.port() != 0 && host.parse() == Ok(SocketAddr::new(own_ip, own.port()))
    };
    endpoint_fault(endpoint).is_none() && [config.s3.listen, config.admin.listen].into_iter().any(is_of)
}
