//! The console, `/`: the cluster in a browser. It reads the pages of this port and gives no order.
//!
//! Its files hold nothing of the cluster, so they need no token; the pages that they read do. It loads
//! nothing from elsewhere.

use http::StatusCode;
use http::header::{CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use shoal_net::http::pages::{Page, page};

/// Only files and pages of this port, in no frame of another page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// A file of the console.
#[derive(Clone, Copy, Debug)]
pub(super) struct Console {
    media: &'static str,
    content: &'static str,
}

macro_rules! file {
    ($media:literal, $name:literal) => {
        Some(Self {
            media: concat!("text/", $media, "; charset=utf-8"),
            content: include_str!(concat!("console/", $name)),
        })
    };
}

impl Console {
    /// Returns the file at a path, if it is one of the console.
    pub(super) fn at(path: &str) -> Option<Self> {
        match path {
            "/" => file!("html", "index.html"),
            "/console.css" => file!("css", "console.css"),
            "/console.js" => file!("javascript", "console.js"),
            "/charts.js" => file!("javascript", "charts.js"),
            "/cluster.js" => file!("javascript", "cluster.js"),
            _ => None,
        }
    }

    /// Returns the file.
    pub(super) fn page(self) -> Page {
        let mut page = page(StatusCode::OK, self.media, self.content);
        let headers = page.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        page
    }
}
