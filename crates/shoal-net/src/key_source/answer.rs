//! Reads the answers of services that are asked for an access key.

use serde::Deserialize;
use shoal_s3::identity::Identity;

use super::config::KeySourceKind;

/// The answer in the form of trino's aws-proxy; further fields are of no use here.
#[derive(Deserialize)]
struct OfHttp {
    emulated: Credential,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credential {
    access_key: String,
    secret_key: String,
    session: Option<String>,
}

/// The answer of Ceph's admin API: a user with all keys.
#[derive(Deserialize)]
struct OfCeph {
    #[serde(default)]
    suspended: u8,
    keys: Vec<CephKey>,
}

#[derive(Deserialize)]
struct CephKey {
    access_key: String,
    secret_key: String,
    #[serde(default = "active")]
    active: bool,
}

const fn active() -> bool {
    true
}

/// Reads an answer with status 200. Returns `None` if the service has suspended the key or its user.
///
/// # Errors
///
/// The answer is not one about `access_key`. The text has no secret.
pub(super) fn read(
    kind: KeySourceKind,
    access_key: &str,
    body: &[u8],
) -> Result<Option<Identity>, &'static str> {
    let (access_key_found, secret_key) = match kind {
        KeySourceKind::Http => {
            let answer: OfHttp = serde_json::from_slice(body).map_err(|_| "it is not the JSON expected")?;
            if answer.emulated.session.is_some() {
                return Err("the key has a session token, which only [sts] supports");
            }
            (answer.emulated.access_key, answer.emulated.secret_key)
        }
        KeySourceKind::Ceph => {
            let user: OfCeph = serde_json::from_slice(body).map_err(|_| "it is not the JSON expected")?;
            let key = user.keys.into_iter().find(|key| key.access_key == access_key);
            let key = key.ok_or("it has no such key: the account needs the capability users=read")?;
            if user.suspended != 0 || !key.active {
                return Ok(None);
            }
            (key.access_key, key.secret_key)
        }
    };
    if access_key_found != access_key || secret_key.is_empty() {
        return Err("it is about another key, or has no secret");
    }
    Ok(Some(Identity::new(access_key, &secret_key)))
}

#[cfg(test)]
mod tests {
    use super::{KeySourceKind, read};

    #[test]
    fn an_answer_counts_if_it_is_about_the_key_that_was_asked_for() {
        use KeySourceKind::{Ceph, Http};
        let ok = |kind, text: &str| {
            let identity = read(kind, "ak", text.as_bytes())?;
            Ok::<_, &str>(identity.map(|identity| identity.secret_key.expose().to_owned()))
        };
        let secret = Ok(Some("s".to_owned()));
        let plain = r#"{"emulated":{"accessKey":"ak","secretKey":"s"},"identity":{"user":"u"}}"#;
        assert_eq!(ok(Http, plain), secret);
        assert_eq!(
            ok(Http, &plain.replace("\"s\"", "\"s\",\"session\":null")),
            secret
        );
        for wrong in [
            plain.replace("\"s\"", "\"s\",\"session\":\"t\""),
            plain.replace("ak", "other"),
            plain.replace("\"s\"", "\"\""),
            "{}".into(),
            "<html>".into(),
        ] {
            assert!(ok(Http, &wrong).is_err(), "{wrong}");
        }
        let user = r#"{"user_id":"u","suspended":0,"keys":[{"user":"u","access_key":"other","secret_key":"x"},
            {"user":"u","access_key":"ak","secret_key":"s"}],"caps":[]}"#;
        assert_eq!(ok(Ceph, user), secret);
        assert_eq!(
            ok(Ceph, &user.replace("\"suspended\":0", "\"suspended\":1")),
            Ok(None)
        );
        assert_eq!(
            ok(Ceph, &user.replace("\"s\"}", "\"s\",\"active\":false}")),
            Ok(None)
        );
        assert!(ok(Ceph, &user.replace("ak", "another")).is_err());
    }
}
