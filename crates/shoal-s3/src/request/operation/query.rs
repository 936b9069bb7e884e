//! The query of a request, decoded once: the parameters for this node, and those for the lake.

use std::fmt;
use std::ops::Range;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

use super::parameters::is_known;
use crate::error::{ErrorCode, S3Error};
use crate::names::percent::decode_query_into;
use crate::sigv4::canonical::SIGNATURE_PARAMETER;
use crate::sigv4::{self, split_once, words};
use crate::target;

/// The parameters of a presigned URL that name its signer, and the session of the signer.
const CREDENTIAL: &str = "X-Amz-Credential";
const SESSION_TOKEN: &str = "X-Amz-Security-Token";

/// Decoded query parameters, in order.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// All names, and the values that clients sent: one allocation for all.
    text: String,
    parameters: Vec<Parameter>,
}

#[derive(Clone, Debug)]
struct Parameter {
    /// Its place in the text.
    name: Range<usize>,
    /// `None` for a parameter without `=`.
    value: Option<Value>,
}

#[derive(Clone, Debug)]
enum Value {
    /// A place in the text.
    Text(Range<usize>),
    /// A value that this node has put there. A key from which a listing continues need not be UTF-8.
    Bytes(Vec<u8>),
}

impl Query {
    /// Splits and decodes a raw query once; a `+` is a blank, as in every S3 implementation.
    ///
    /// # Errors
    ///
    /// Fails with `InvalidURI` if the query is not UTF-8, and with `InvalidArgument` for a parameter that may
    /// mean two things: a parameter known to this node that appears twice, and a name that contains a `=`,
    /// where Ceph RGW begins the value.
    pub fn parse(raw: Option<&str>) -> Result<Self, S3Error> {
        let raw = raw.unwrap_or_default();
        if raw.is_empty() {
            return Ok(Self::default());
        }
        let mut text = Vec::with_capacity(raw.len());
        let mut decoded = |component: &str| {
            let start = text.len();
            decode_query_into(component.as_bytes(), &mut text);
            start..text.len()
        };
        // As many as a presigned URL has.
        let mut parameters = Vec::with_capacity(8);
        for pair in words(raw, b'&').filter(|pair| !pair.is_empty()) {
            let (name, value) =
                split_once(pair, b'=').map_or((pair, None), |(name, value)| (name, Some(value)));
            parameters.push(Parameter {
                name: decoded(name),
                value: value.map(|value| Value::Text(decoded(value))),
            });
        }
        let text = String::from_utf8(text).map_err(|_| not_utf8())?;
        let query = Self { text, parameters };
        query.refuse_ambiguous()?;
        Ok(query)
    }

    fn refuse_ambiguous(&self) -> Result<(), S3Error> {
        let mut seen = Vec::new();
        for Parameter { name, value } in &self.parameters {
            // Two escapes in two parameters may make one character.
            let is_text = |place: &Range<usize>| self.text.get(place.clone()).is_some();
            let value_is_text = !matches!(value, Some(Value::Text(place)) if !is_text(place));
            let name = self.text.get(name.clone()).filter(|_| value_is_text);
            let name = name.ok_or_else(not_utf8)?;
            if name.contains('=') {
                let name = percent_encode(name.as_bytes(), NON_ALPHANUMERIC);
                return Err(invalid(format!("The name of the parameter {name} is not valid.")));
            }
            if is_known(name) {
                if seen.contains(&name) {
                    return Err(invalid(format!("The parameter {name} must be given once.")));
                }
                seen.push(name);
            }
        }
        Ok(())
    }

    fn name(&self, parameter: &Parameter) -> &str {
        &self.text[parameter.name.clone()]
    }

    fn value<'a>(&'a self, parameter: &'a Parameter) -> Option<&'a [u8]> {
        parameter.value.as_ref().map(|value| match value {
            Value::Text(place) => self.text[place.clone()].as_bytes(),
            Value::Bytes(bytes) => bytes,
        })
    }

    /// Returns true if the parameter is present, with or without a value.
    pub fn has(&self, name: &str) -> bool {
        self.iter().any(|(other, _)| other == name)
    }

    /// The value of the parameter, empty if it has none.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    /// Returns true if the parameter is present with a nonempty value.
    pub(super) fn has_value(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !value.is_empty())
    }

    /// Returns true if every parameter is `known` or belongs to a presigned URL's credentials.
    pub(super) fn has_only(&self, known: impl Fn(&str) -> bool) -> bool {
        self.iter().all(|(name, _)| known(name) || is_credential(name))
    }

    /// All parameters in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parameters.iter().map(|parameter| {
            let value = match &parameter.value {
                None => "",
                Some(Value::Text(place)) => &self.text[place.clone()],
                Some(Value::Bytes(bytes)) => std::str::from_utf8(bytes).unwrap_or_default(),
            };
            (self.name(parameter), value)
        })
    }

    /// Replaces parameters, appending their new values at the end; `None` removes a parameter.
    #[must_use]
    pub fn with(self, values: &[(&str, Option<&[u8]>)]) -> Self {
        let Self {
            mut text,
            mut parameters,
        } = self;
        parameters.retain(|parameter| {
            values
                .iter()
                .all(|(name, _)| text[parameter.name.clone()] != **name)
        });
        for (name, value) in values {
            let Some(value) = value else { continue };
            let start = text.len();
            text.push_str(name);
            parameters.push(Parameter {
                name: start..text.len(),
                value: Some(Value::Bytes(value.to_vec())),
            });
        }
        Self { text, parameters }
    }

    /// The parameters for the lake: all but the credentials of a presigned URL, which were verified here.
    pub(super) fn without_credentials(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.spelled().filter(|(name, _)| !is_credential(name))
    }

    /// The query of a presigned URL that names `access_key`, with a dummy signature: the claim without the
    /// proof. The key has no session token.
    #[must_use]
    pub(super) fn presigned_in_name(mut self, access_key: &str) -> Self {
        let text = &self.text;
        self.parameters
            .retain(|parameter| text[parameter.name.clone()] != *SESSION_TOKEN);
        for at in 0..self.parameters.len() {
            let parameter = &self.parameters[at];
            let replaced = match self.name(parameter) {
                SIGNATURE_PARAMETER => Some(vec![b'0'; 64]),
                CREDENTIAL => {
                    let scope = self.value(parameter).and_then(scope_of);
                    scope.map(|scope| [access_key.as_bytes(), scope].concat())
                }
                _ => None,
            };
            if let Some(value) = replaced {
                self.parameters[at].value = Some(Value::Bytes(value));
            }
        }
        self
    }

    pub(super) fn spelled(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.parameters
            .iter()
            .map(|parameter| (self.name(parameter), self.value(parameter)))
    }
}

/// Writes all parameters in the one spelling for the lake.
impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&target::query(self.spelled()))
    }
}

fn is_credential(name: &str) -> bool {
    sigv4::PARAMETERS.contains(&name)
}

/// The text after the access key in a credential: a slash before a day and before each of three words.
fn scope_of(credential: &[u8]) -> Option<&[u8]> {
    let slash = memchr::memrchr_iter(b'/', credential).nth(3)?;
    Some(&credential[slash..])
}

fn not_utf8() -> S3Error {
    S3Error::new(
        ErrorCode::InvalidUri,
        "Couldn't parse the specified URI: its query is not UTF-8.",
    )
}

fn invalid(message: String) -> S3Error {
    S3Error::new(ErrorCode::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::{Query, target};
    use crate::error::ErrorCode;

    fn query(raw: &str) -> Query {
        Query::parse(Some(raw)).unwrap()
    }

    fn refusal(raw: &str) -> ErrorCode {
        Query::parse(Some(raw)).unwrap_err().code
    }

    fn rendered(query: &Query) -> String {
        target::query(query.without_credentials())
    }

    #[test]
    fn a_query_is_decoded_once_and_told_in_one_spelling() {
        for (raw, expected) in [
            ("", ""),
            ("&&", ""),
            ("acl", "acl"),
            ("%61cl=", "acl="),
            ("a=x+y&b=x%2By&c=x%20y", "a=x%20y&b=x%2By&c=x%20y"),
            ("prefix=a/b&delimiter=%2f", "prefix=a%2Fb&delimiter=%2F"),
            ("a=b=c&d=100%&e=%2525", "a=b%3Dc&d=100%25&e=%2525"),
            ("events=1&events=2", "events=1&events=2"),
            ("b=2&a=1;c", "b=2&a=1%3Bc"),
        ] {
            assert_eq!(rendered(&query(raw)), expected, "{raw}");
        }
        assert_eq!(query("%61=+%26").get("a"), Some(" &"));
        assert_eq!(query("uploads").get("uploads"), Some(""));
    }

    #[test]
    fn a_query_that_may_mean_two_things_is_refused() {
        for raw in [
            "versionId=1&versionId=1",
            "versionId=1&%76ersionId=2",
            "prefix&prefix=",
            "uploads&uploads",
            "response-expires=1&response-expires=2",
            "versionId%3D1",
            "%3Dx",
        ] {
            assert_eq!(refusal(raw), ErrorCode::InvalidArgument, "{raw}");
        }
        for raw in ["prefix=%FF", "%C3=1", "x=%ed%a0%80", "a=%C3&%A4=1", "%C3=%A4"] {
            assert_eq!(refusal(raw), ErrorCode::InvalidUri, "{raw}");
        }
    }

    #[test]
    fn credentials_of_a_presigned_url_are_not_told() {
        for (raw, expected) in [
            ("X-Amz-Signature=0&versionId=3&X-Amz-Date=1", "versionId=3"),
            (
                "X-Amz-Algorithm=a&X-Amz-Credential=b&X-Amz-Expires=1&X-Amz-SignedHeaders=h",
                "",
            ),
            ("X-Amz-Security-Token&&x=%41", "x=A"),
            (
                "X%2DAmz-Date=1&X-Amz-%53ignature=0&%58%2d%41mz-Credential=c&a=1",
                "a=1",
            ),
            ("Signature=s&Expires=1", "Signature=s&Expires=1"),
            ("x-amz-signature=0&X-Amz-Meta=1", "x-amz-signature=0&X-Amz-Meta=1"),
        ] {
            assert_eq!(rendered(&query(raw)), expected, "{raw}");
        }
    }

    #[test]
    fn a_presigned_query_names_another_without_a_proof() {
        let nothing = "0".repeat(64);
        for (raw, expected) in [
            ("", ""),
            (
                "X-Amz-Credential=me%2F20260101%2Feu%2Fs3%2Faws4_request&X-Amz-%53ignature=1f&x",
                "X-Amz-Credential=their%2Fkey%2F20260101%2Feu%2Fs3%2Faws4_request&X-Amz-Signature={nothing}&x",
            ),
            (
                "X%2DAmz-Credential=m/e/1/2/3/4&X-Amz-Security-Token=t&X-Amz-Date=%31",
                "X-Amz-Credential=their%2Fkey%2F1%2F2%2F3%2F4&X-Amz-Date=1",
            ),
            ("X-Amz-Credential=me", "X-Amz-Credential=me"),
        ] {
            let named = query(raw).presigned_in_name("their/key");
            assert_eq!(named.to_string(), expected.replace("{nothing}", &nothing));
        }
    }

    #[test]
    fn other_values_take_the_place_of_some() {
        let query = query("list-type=2&start-after=a&prefix=p");
        let other = query.with(&[
            ("start-after", Some(b"b&".as_slice())),
            ("continuation-token", None),
            ("prefix", None),
        ]);
        assert_eq!(rendered(&other), "list-type=2&start-after=b%26");
    }
}
