//! Refusals by the lake of the account that signed a request, rather than of the request itself. Operators
//! nearly always have to resolve them.

use std::time::{Duration, SystemTime};

use http::StatusCode;

use crate::words;

words! {
    /// The reason why the lake rejects a signature.
    #[derive(thiserror::Error)]
    pub enum AccountRefusal {
        /// The lake does not know the access key, or has suspended it.
        #[error("the lake does not know the access key")]
        UnknownKey = "unknown-key",
        /// The lake has a different secret for this access key.
        #[error("the lake has another secret for the access key")]
        WrongSecret = "wrong-secret",
        /// The time of the signature differs too much from the lake's.
        #[error("the clocks of this node and of the lake differ too much")]
        Clock = "clock",
        /// The region in the signature is not the lake's.
        #[error("the lake expects signatures for another region")]
        Region = "region",
        /// The session token has expired.
        #[error("the lake says that the session token has expired")]
        Expired = "expired",
    }
}

impl AccountRefusal {
    /// Returns true if a response with this status may be such a refusal, which only its body shows.
    pub(super) fn is_possible(status: StatusCode) -> bool {
        matches!(status.as_u16(), 400 | 401 | 403)
    }

    /// Returns the refusal that an S3 error code denotes, if it is about the account.
    pub fn of_code(code: &str) -> Option<Self> {
        match code {
            "InvalidAccessKeyId" | "UserSuspended" | "NotSignedUp" | "InvalidSecurity" => {
                Some(Self::UnknownKey)
            }
            "SignatureDoesNotMatch" => Some(Self::WrongSecret),
            "RequestTimeTooSkewed" => Some(Self::Clock),
            "AuthorizationHeaderMalformed" => Some(Self::Region),
            "ExpiredToken" | "InvalidToken" | "InvalidTokenId" | "TokenRefreshRequired" => {
                Some(Self::Expired)
            }
            _ => None,
        }
    }

    /// Returns the hint for operators.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::UnknownKey => "check the access key, and that [lake] endpoint is the store that knows it",
            Self::WrongSecret => "check the secret of this access key: its file may hold that of another one",
            Self::Clock => "set the clock of this machine, or that of the lake (NTP)",
            Self::Region => "set [lake] region to the one that the lake names",
            Self::Expired => "renew the credentials; a role or an instance renews them by itself",
        }
    }
}

/// Returns in words how far this node's clock is from the lake's `Date`, or `None` if it is less than a
/// minute.
pub(super) fn clock_difference(date: &str, now: SystemTime) -> Option<String> {
    let theirs = httpdate::parse_http_date(date).ok()?;
    let (apart, word) = match now.duration_since(theirs) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    (apart >= Duration::from_mins(1)).then(|| {
        format!(
            "the clock of this node is {} min {word} that of the lake",
            apart.as_secs() / 60
        )
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{AccountRefusal, clock_difference};

    #[test]
    fn only_codes_about_the_account_are_refusals_of_it() {
        let of_code = AccountRefusal::of_code;
        assert_eq!(of_code("InvalidAccessKeyId"), Some(AccountRefusal::UnknownKey));
        assert_eq!(
            of_code("SignatureDoesNotMatch"),
            Some(AccountRefusal::WrongSecret)
        );
        assert_eq!(of_code("RequestTimeTooSkewed"), Some(AccountRefusal::Clock));
        for of_token in ["InvalidToken", "InvalidTokenId", "ExpiredToken"] {
            assert_eq!(of_code(of_token), Some(AccountRefusal::Expired));
        }
        assert_eq!(
            of_code("AuthorizationHeaderMalformed"),
            Some(AccountRefusal::Region)
        );
        assert_eq!(of_code("AccessDenied"), None);
        assert_eq!(of_code(""), None);
    }

    #[test]
    fn a_difference_of_clocks_is_told_in_minutes_and_by_its_side() {
        let date = "Thu, 01 Jan 2026 12:00:00 GMT";
        let noon = httpdate::parse_http_date(date).unwrap();
        let told = |now: SystemTime| clock_difference(date, now);
        assert_eq!(told(noon + Duration::from_secs(30)), None);
        assert_eq!(
            told(noon + Duration::from_mins(17)).unwrap(),
            "the clock of this node is 17 min ahead of that of the lake"
        );
        assert_eq!(
            told(noon - Duration::from_mins(20)).unwrap(),
            "the clock of this node is 20 min behind that of the lake"
        );
    }
}
