//! Requests to STS: forms of parameters.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::VERSION;

/// The longest form in bytes. AWS allows tokens of 20,000 characters.
pub const FORM_BYTES_MAX: usize = 64 << 10;

/// The greatest number of parameters. AWS allows 50 tags, each a name and a value.
const PARAMETERS_MAX: usize = 150;

/// The longest name of a session, see `RoleSessionName`.
const SESSION_NAME_MAX: usize = 64;

/// Parameters that say who asks or for how long, and not what the key may do.
const NOT_OF_SCOPE: [&str; 8] = [
    "Version",
    "RoleArn",
    "DurationSeconds",
    "WebIdentityToken",
    "WebIdentityAccessToken",
    "Token",
    "LDAPPassword",
    "TokenCode",
];

/// A request of a client that the node passes on to STS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `AssumeRoleWithWebIdentity`: proven by the token of an identity provider.
    WebIdentity,
    /// `AssumeRoleWithLDAPIdentity`: proven by a name and a password (`MinIO`).
    Ldap,
    /// `AssumeRoleWithCustomToken`: proven by a token that a plugin of the lake knows (`MinIO`).
    CustomToken,
    /// `AssumeRole`: proven by a signature.
    Role,
    /// `GetSessionToken`: proven by a signature.
    SessionToken,
}

impl Action {
    const ALL: [(Self, &'static str); 5] = [
        (Self::WebIdentity, "AssumeRoleWithWebIdentity"),
        (Self::Ldap, "AssumeRoleWithLDAPIdentity"),
        (Self::CustomToken, "AssumeRoleWithCustomToken"),
        (Self::Role, "AssumeRole"),
        (Self::SessionToken, "GetSessionToken"),
    ];

    /// Returns its name in a request.
    pub fn as_str(self) -> &'static str {
        let named = Self::ALL.iter().find(|(action, _)| *action == self);
        named.map_or("", |(_, name)| name)
    }

    /// Returns true if the request is proven by the signature of an identity, and not by its parameters.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::Role | Self::SessionToken)
    }
}

/// Why a request to STS is not passed on. The messages are for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StsRefusal {
    /// The form cannot be read.
    #[error("The request is not a form of STS version {VERSION}: {0}.")]
    Malformed(&'static str),
    /// The node does not pass this action on.
    #[error(
        "This node passes AssumeRoleWithWebIdentity, AssumeRoleWithLDAPIdentity, AssumeRoleWithCustomToken, AssumeRole and GetSessionToken on, and not {0:?}."
    )]
    UnknownAction(String),
    /// A parameter that the action needs is missing.
    #[error("The request lacks {0}.")]
    Missing(&'static str),
}

/// A request to STS.
#[derive(Clone, PartialEq, Eq)]
pub struct StsRequest {
    action: Action,
    parameters: Vec<(String, String)>,
}

impl StsRequest {
    /// Reads a form.
    ///
    /// # Errors
    ///
    /// Fails if the form is not well-formed, or asks for what no node passes on.
    pub fn parse(form: &[u8]) -> Result<Self, StsRefusal> {
        let parameters = form_urlencoded::parse(form).into_owned();
        let parameters: Vec<(String, String)> = parameters.take(PARAMETERS_MAX + 1).collect();
        if parameters.len() > PARAMETERS_MAX {
            return Err(StsRefusal::Malformed("it has too many parameters"));
        }
        for (index, (name, _)) in parameters.iter().enumerate() {
            // Node and STS might read different ones.
            if parameters[..index].iter().any(|(other, _)| other == name) {
                return Err(StsRefusal::Malformed("a parameter is given twice"));
            }
        }
        let value = |name: &str| {
            parameters
                .iter()
                .find(|(other, _)| other == name)
                .map(|(_, value)| &**value)
        };
        if value("Version") != Some(VERSION) {
            return Err(StsRefusal::Malformed("Version is missing or another one"));
        }
        let name = value("Action").ok_or(StsRefusal::Missing("Action"))?;
        let action = Action::ALL
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(action, _)| *action);
        let action = action.ok_or_else(|| StsRefusal::UnknownAction(crate::xml::shown(name)))?;
        for needed in action.needs() {
            value(needed)
                .filter(|value| !value.is_empty())
                .ok_or(StsRefusal::Missing(needed))?;
        }
        Ok(Self { action, parameters })
    }

    /// Asks for a key of `role` by the token of an identity provider. Without a role, the token alone
    /// decides.
    pub fn web_identity(role: &str, subject: &str, token: &str) -> Self {
        let mut parameters = vec![
            ("Action", Action::WebIdentity.as_str().to_owned()),
            ("Version", VERSION.to_owned()),
            ("WebIdentityToken", token.to_owned()),
            ("RoleSessionName", session_name(subject)),
        ];
        if !role.is_empty() {
            parameters.push(("RoleArn", role.to_owned()));
        }
        Self {
            action: Action::WebIdentity,
            parameters: parameters
                .into_iter()
                .map(|(name, value)| (name.into(), value))
                .collect(),
        }
    }

    /// Returns what is asked for.
    pub fn action(&self) -> Action {
        self.action
    }

    /// Returns the value of a parameter, or `""`.
    pub fn value(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(other, _)| other == name);
        found.map_or("", |(_, value)| value)
    }

    /// Returns the ARN of the role that the key is to have, or `""`.
    pub fn role(&self) -> &str {
        self.value("RoleArn")
    }

    /// Returns the form that is sent to STS: the same parameters, written once more.
    pub fn form(&self) -> String {
        let mut form = form_urlencoded::Serializer::new(String::new());
        // Ceph does not take a plus for a blank. A plus itself is an escape here.
        form.extend_pairs(&self.parameters).finish().replace('+', "%20")
    }

    /// Returns a digest of the whole request. Requests with the same one get the same key.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.form()).into()
    }

    /// Adds the parameters that narrow what the key may do, or that its rights may depend on.
    pub(super) fn add_scope(&self, hasher: &mut Sha256) {
        let mut scope: Vec<_> = self.parameters.iter().collect();
        scope.retain(|(name, _)| !NOT_OF_SCOPE.contains(&name.as_str()));
        scope.sort_unstable();
        for (name, value) in scope {
            for text in [name, value] {
                hasher.update((text.len() as u64).to_le_bytes());
                hasher.update(text);
            }
        }
    }
}

impl Action {
    const fn needs(self) -> &'static [&'static str] {
        match self {
            Self::WebIdentity => &["WebIdentityToken"],
            Self::Ldap => &["LDAPUsername", "LDAPPassword"],
            Self::CustomToken => &["Token", "RoleArn"],
            // MinIO needs no role and no name of the session.
            Self::Role | Self::SessionToken => &[],
        }
    }
}

/// Returns the name of the session for the subject of a token: STS allows letters, digits and some signs. It
/// is in the audit log of the lake.
fn session_name(subject: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_=,.@-".contains(c);
    let allowed = subject.chars().map(|c| if is_allowed(c) { c } else { '-' });
    "shoal-".chars().chain(allowed).take(SESSION_NAME_MAX).collect()
}

// Tokens and passwords are in the parameters.
impl fmt::Debug for StsRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = self.role();
        f.debug_struct("StsRequest")
            .field("action", &self.action)
            .field("role", &role)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    const FORM: &str = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleSessionName=a+b%2Fc\
                        &RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fetl&WebIdentityToken=e.y.J";

    #[test]
    fn a_form_keeps_its_parameters_on_its_way() {
        let request = StsRequest::parse(FORM.as_bytes()).unwrap();
        assert_eq!(request.action(), Action::WebIdentity);
        assert_eq!(request.role(), "arn:aws:iam::1:role/etl");
        assert_eq!(request.value("RoleSessionName"), "a b/c");
        assert!(request.form().contains("a%20b%2Fc"), "{}", request.form());
        assert_eq!(StsRequest::parse(request.form().as_bytes()), Ok(request));
    }

    #[test]
    fn a_node_does_not_pass_on_what_it_cannot_judge() {
        let refusal = |form: &str| StsRequest::parse(form.as_bytes()).unwrap_err();
        for form in ["", "Action=AssumeRole", "Action=AssumeRole&Version=2010-01-01"] {
            assert!(matches!(refusal(form), StsRefusal::Malformed(_)), "{form}");
        }
        let twice = format!("{FORM}&RoleArn=arn%3Aother");
        assert_eq!(
            refusal(&twice),
            StsRefusal::Malformed("a parameter is given twice")
        );
        let other = "Action=GetCallerIdentity&Version=2011-06-15";
        assert_eq!(
            refusal(other),
            StsRefusal::UnknownAction("GetCallerIdentity".into())
        );
        assert_eq!(refusal("Version=2011-06-15"), StsRefusal::Missing("Action"));
        let many = (0..PARAMETERS_MAX).map(|number| format!("&Tag{number}="));
        assert_eq!(
            refusal(&format!("{FORM}{}", many.collect::<String>())),
            StsRefusal::Malformed("it has too many parameters")
        );
        let without = FORM.replace("e.y.J", "");
        assert_eq!(refusal(&without), StsRefusal::Missing("WebIdentityToken"));
    }

    #[test]
    fn no_secret_is_printed() {
        let request = StsRequest::web_identity("arn:x", "s", "e.y.J");
        assert!(!format!("{request:?}").contains("e.y.J"));
    }

    #[test]
    fn the_subject_names_the_session_in_the_words_of_sts() {
        let request = StsRequest::web_identity("r", "system:serviceaccount:ns:etl/ä", "t");
        assert_eq!(
            request.value("RoleSessionName"),
            "shoal-system-serviceaccount-ns-etl--"
        );
        assert_eq!(session_name(&"x".repeat(100)).len(), SESSION_NAME_MAX);
        assert_eq!(StsRequest::web_identity("", "s", "t").role(), "");
    }

    #[test]
    fn the_scope_is_what_narrows_a_key() {
        let scope = |form: &str| {
            let mut hasher = Sha256::new();
            StsRequest::parse(form.as_bytes()).unwrap().add_scope(&mut hasher);
            hasher.finalize()
        };
        assert_eq!(scope(FORM), scope(&FORM.replace("e.y.J", "other")));
        assert_eq!(scope(FORM), scope(&format!("{FORM}&DurationSeconds=900")));
        assert_ne!(scope(FORM), scope(&format!("{FORM}&Policy=narrow")));
        assert_ne!(scope(FORM), scope(&FORM.replace("a+b", "other")));
        // A key with a second factor may do more.
        assert_ne!(scope(FORM), scope(&format!("{FORM}&SerialNumber=mfa")));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = StsRequest::parse(&bytes);
        }
    }
}
