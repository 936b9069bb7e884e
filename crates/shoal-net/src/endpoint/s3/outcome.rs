//! Decides from the response if a change was carried out. One table, pure.

use http::StatusCode;
use shoal_s3::error::ErrorCode;

/// Returns true if a status leaves it open whether the request was carried out, or still may be. A store that
/// does not support the request (501, 505), has no room (507) or no time (503) has refused it. `MinIO`
/// returns 499 (`ClientDisconnected`) if it considers the node gone in the middle of a request.
pub fn is_undecided(status: StatusCode) -> bool {
    match status.as_u16() {
        499 => true,
        501 | 503 | 505 | 507 => false,
        _ => status.is_server_error(),
    }
}

/// As [`is_undecided`], for the error code in the body of a response with status 200. An unknown code leaves
/// it open.
pub fn is_undecided_code(code: &str) -> bool {
    ErrorCode::named(code).is_none_or(|code| is_undecided(code.status()))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::{is_undecided, is_undecided_code};

    #[test]
    fn a_refusal_is_no_unknown_outcome() {
        let undecided = |status: u16| is_undecided(StatusCode::from_u16(status).unwrap());
        for status in [
            304, 400, 403, 404, 405, 408, 409, 411, 412, 429, 501, 503, 505, 507,
        ] {
            assert!(!undecided(status), "{status}");
        }
        for status in [499, 500, 502, 504, 520, 524, 599] {
            assert!(undecided(status), "{status}");
        }
        for code in ["AccessDenied", "InvalidPart", "NotImplemented", "SlowDown"] {
            assert!(!is_undecided_code(code), "{code}");
        }
        for code in ["InternalError", "GatewayTimeout", "", "ClientDisconnected"] {
            assert!(is_undecided_code(code), "{code}");
        }
    }
}
