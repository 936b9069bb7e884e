//! The host names under which operators' pages are served, so that pages of other sites cannot read them.
//!
//! A site can point its own name at the address of an operator's machine (DNS rebinding); a browser then
//! sends that name as the host, and lets the site's page read the response. Such a name must resolve on the
//! public Internet, so addresses, names without a dot and names of private networks are safe. Other names
//! must be configured.

use crate::http::pages::{Page, text};
use http::header::HOST;
use http::{Request, StatusCode};

/// Top-level names that no registry assigns (RFC 6761, RFC 6762, and ICANN's decision about `internal`).
const PRIVATE: [&str; 4] = ["localhost", "local", "internal", "test"];

/// The allowed host names of a listener for operators.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(Vec<String>);

impl AllowedHosts {
    /// Allows `names`, besides the names that are always safe.
    pub fn new(names: &[String]) -> Self {
        Self(names.to_vec())
    }

    /// Rejects a request for another host. Health checks are answered under any name.
    pub fn refuse<B>(&self, request: &Request<B>) -> Option<Page> {
        if matches!(request.uri().path(), "/healthz" | "/readyz") {
            return None;
        }
        let authority = request.uri().authority().map(http::uri::Authority::as_str);
        let host = request
            .headers()
            .get(HOST)
            .map(|host| host.to_str().unwrap_or_default());
        if host.or(authority).is_none_or(|host| self.allow(host)) {
            return None;
        }
        Some(text(
            StatusCode::MISDIRECTED_REQUEST,
            "this listener is not known by that name\nhint: ask for its address or a private name; a node also answers under the names in [admin] hosts\n",
        ))
    }

    fn allow(&self, host: &str) -> bool {
        if host.starts_with('[') {
            return true;
        }
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let name = name.strip_suffix('.').unwrap_or(name);
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_address = name.parse::<std::net::IpAddr>().is_ok();
        let is_private =
            !name.contains('.') || PRIVATE.iter().any(|private| last.eq_ignore_ascii_case(private));
        is_address || is_private || self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::AllowedHosts;

    #[test]
    fn a_name_that_any_site_may_own_is_refused_unless_it_is_configured() {
        let hosts = AllowedHosts::new(&["node1.dc.example.com".into()]);
        let table = [
            ("127.0.0.1:9100", true),
            ("[::1]:9100", true),
            ("10.0.0.1", true),
            ("localhost:9100", true),
            ("node-1:9100", true),
            ("shoal.default.svc.cluster.local:9100", true),
            ("ip-10-0-0-1.ec2.internal", true),
            ("Node1.dc.Example.com:9100", true),
            ("node1.dc.example.com.", true),
            ("evil.com:9100", false),
            ("127.0.0.1.evil.com:9100", false),
            ("localhost.evil.com", false),
            ("xnode1.dc.example.com", false),
        ];
        for (host, allowed) in table {
            assert_eq!(hosts.allow(host), allowed, "{host}");
        }
    }
}
