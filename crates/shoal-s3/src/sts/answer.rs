//! Answers of STS: a temporary key, or an error.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use shoal_base::secret::Secret;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Action, NAMESPACE, StsRequest};
use crate::identity::Account;
use crate::temporary_key::{Principal, TemporaryKey};
use crate::xml::{Element, Malformed, shown};

/// The temporary key of an answer, and whom STS gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct StsAnswer {
    /// The key pair and the session token.
    pub account: Account,
    /// The end of the key, by the clock of STS.
    pub expiration: SystemTime,
    /// The subject that STS found in a token.
    subject: String,
    /// The assumed role, as an ARN of its own kind; `""` if STS names none.
    assumed: String,
    /// The audience and the provider, as STS names them.
    said: [String; 2],
}

impl StsAnswer {
    /// Reads an answer.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if it holds no complete temporary key.
    pub fn read(xml: &[u8]) -> Result<Self, Malformed> {
        let root = Element::from_answer(xml)?;
        let result = root
            .children()
            .find(|child| child.name().ends_with("Result"))
            .ok_or(Malformed)?;
        let credentials = result.child("Credentials").ok_or(Malformed)?;
        let text = |name: &str| {
            credentials
                .text_of(name)
                .filter(|text| !text.is_empty())
                .ok_or(Malformed)
        };
        let expiration = OffsetDateTime::parse(&text("Expiration")?, &Rfc3339).map_err(|_| Malformed)?;
        let said = |name: &str| result.text_of(name).unwrap_or_default();
        let assumed = result
            .child("AssumedRoleUser")
            .and_then(|assumed| assumed.text_of("Arn"));
        Ok(Self {
            account: Account {
                session_token: Some(Secret::new(text("SessionToken")?)),
                ..Account::new(&text("AccessKeyId")?, &text("SecretAccessKey")?)
            },
            expiration: expiration.into(),
            subject: said("SubjectFromWebIdentityToken"),
            assumed: assumed.unwrap_or_default(),
            said: [said("Audience"), said("Provider")],
        })
    }

    /// Returns the key that `request` of `asker` got; `asker` is the identity that signed it, or `""`. The
    /// key expires here as long after `now` as it does after `sts_now` by the clock of STS.
    pub fn key(
        self,
        request: &StsRequest,
        asker: &str,
        now: SystemTime,
        sts_now: SystemTime,
    ) -> TemporaryKey {
        let left = self.expiration.duration_since(sts_now).unwrap_or(Duration::ZERO);
        // With `GetSessionToken`, it is the identity itself, for a time. A second factor may add rights.
        let is_itself = request.action() == Action::SessionToken && request.value("SerialNumber").is_empty();
        let principal = if is_itself {
            Principal::new(asker)
        } else {
            self.principal(request, asker)
        };
        TemporaryKey {
            account: Arc::new(self.account),
            expires: now + left,
            principal: Arc::new(principal),
        }
    }

    fn principal(&self, request: &StsRequest, asker: &str) -> Principal {
        let mut hasher = Sha256::new();
        request.add_scope(&mut hasher);
        for text in [&self.assumed, &self.said[0], &self.said[1]] {
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        }
        let digest = hasher.finalize();
        let digest = u64::from_be_bytes(*digest.first_chunk().expect("SHA-256 has 32 bytes"));
        let subjects = [&*self.subject, request.value("LDAPUsername"), asker];
        let subject = subjects.into_iter().find(|subject| !subject.is_empty());
        Principal::of_role(self.role(request), subject.unwrap_or_default(), digest)
    }

    /// Returns the role that STS gave the key, or `""`.
    fn role<'r>(&self, request: &'r StsRequest) -> &'r str {
        let role = request.role();
        let is_given = match request.action() {
            // STS refuses the request, or gives this role.
            Action::WebIdentity | Action::CustomToken => true,
            // MinIO does not look at the role, and gives the rights of the user.
            Action::Role | Action::Ldap | Action::SessionToken => self.assumes(role),
        };
        if is_given { role } else { "" }
    }

    /// Returns true if STS says that a role was assumed:
    /// `arn:aws:iam::ACCOUNT:role/PATH/NAME` as `arn:aws:sts::ACCOUNT:assumed-role/NAME/SESSION`.
    fn assumes(&self, role: &str) -> bool {
        let name = self.assumed.rsplit('/').nth(1);
        name.is_some() && name == role.rsplit('/').next()
    }
}

/// An error of STS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StsError {
    /// The code, such as `InvalidIdentityToken`.
    pub code: String,
    /// The sentence.
    pub message: String,
}

impl StsError {
    /// Reads an error, in the form of AWS or in that of S3, which Ceph uses.
    pub fn read(xml: &[u8]) -> Option<Self> {
        let root = Element::from_answer(xml).ok()?;
        let error = if root.name() == "Error" {
            &root
        } else {
            root.child("Error")?
        };
        Some(Self {
            code: error.text_of("Code").unwrap_or_default().trim().into(),
            message: error.text_of("Message").unwrap_or_default(),
        })
    }
}

/// Returns an error document in the form of AWS's STS.
pub fn error_document(code: &str, message: &str, is_of_client: bool, request_id: &str) -> String {
    let root = Element::root_in("ErrorResponse", NAMESPACE);
    let error = Element::new("Error")
        .with_leaf("Type", if is_of_client { "Sender" } else { "Receiver" })
        .with_leaf("Code", code)
        .with_leaf("Message", shown(message));
    root.with(error).with_leaf("RequestId", request_id).to_document()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    /// The example of AWS's reference of `AssumeRoleWithWebIdentity`, shortened.
    const AWS: &str = r#"<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <AssumeRoleWithWebIdentityResult>
    <SubjectFromWebIdentityToken>amzn1.account.AF6RHO7KZU5XRVQJGXK6HB56KR2A</SubjectFromWebIdentityToken>
    <Audience>client.5498841531868486423.1548@apps.example.com</Audience>
    <AssumedRoleUser>
      <Arn>arn:aws:sts::123456789012:assumed-role/FederatedWebIdentityRole/app1</Arn>
      <AssumedRoleId>AROACLKWSDQRAOEXAMPLE:app1</AssumedRoleId>
    </AssumedRoleUser>
    <Credentials>
      <SessionToken>AQoDYXdzEE0a8ANXXXXXXXXNO1ewxE5TijQyp+IEXAMPLE</SessionToken>
      <SecretAccessKey>wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY</SecretAccessKey>
      <Expiration>2014-10-24T23:00:23Z</Expiration>
      <AccessKeyId>ASgeIAIOSFODNN7EXAMPLE</AccessKeyId>
    </Credentials>
    <Provider>www.amazon.com</Provider>
  </AssumeRoleWithWebIdentityResult>
  <ResponseMetadata><RequestId>ad4156e9-bce1-11e2-82e6-6b6efEXAMPLE</RequestId></ResponseMetadata>
</AssumeRoleWithWebIdentityResponse>"#;

    const ROLE: &str = "arn:aws:iam::123456789012:role/FederatedWebIdentityRole";

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn principal_of(xml: &str, request: &StsRequest) -> String {
        let key = StsAnswer::read(xml.as_bytes())
            .unwrap()
            .key(request, "", at(0), at(0));
        key.principal.name().to_owned()
    }

    #[test]
    fn the_example_of_aws_is_read_and_ends_by_the_clock_of_sts() {
        let answer = StsAnswer::read(AWS.as_bytes()).unwrap();
        assert_eq!(answer.expiration, at(1_414_191_623));
        let request = StsRequest::web_identity(ROLE, "app1", "token");
        // This clock is an hour ahead.
        let key = answer.key(&request, "", at(1_414_191_623), at(1_414_188_023));
        assert_eq!(key.expires, at(1_414_195_223));
        assert_eq!(key.account.access_key, "ASgeIAIOSFODNN7EXAMPLE");
        assert_eq!(
            key.token().expose(),
            "AQoDYXdzEE0a8ANXXXXXXXXNO1ewxE5TijQyp+IEXAMPLE"
        );
        assert_eq!(key.role(), Some(ROLE));
        assert!(
            key.principal
                .name()
                .contains("#amzn1.account.AF6RHO7KZU5XRVQJGXK6HB56KR2A#"),
            "{:?}",
            key.principal
        );
    }

    #[test]
    fn keys_are_of_one_principal_only_if_sts_knows_no_difference() {
        let request = StsRequest::web_identity(ROLE, "app1", "token");
        let later = StsRequest::web_identity(ROLE, "app1", "next token");
        let first = principal_of(AWS, &request);
        assert_eq!(first, principal_of(&AWS.replace("NO1ewx", "other"), &later));
        for (from, to) in [
            ("www.amazon.com", "other.com"),
            ("client.5", "client.6"),
            ("/app1<", "/app2<"),
        ] {
            assert_ne!(first, principal_of(&AWS.replace(from, to), &request), "{from}");
        }
        assert_ne!(
            first,
            principal_of(AWS, &StsRequest::web_identity(ROLE, "app2", "token"))
        );
    }

    #[test]
    fn a_session_of_an_identity_is_that_identity_and_a_role_of_one_names_it() {
        let without_subject = AWS.replace("SubjectFromWebIdentityToken", "Other");
        let without_subject = without_subject.replace("FederatedWebIdentityRole", "r");
        let answer = StsAnswer::read(without_subject.as_bytes()).unwrap();
        let form = |action: &str| format!("Action={action}&Version=2011-06-15&RoleArn=r&RoleSessionName=s");
        let key = |action: &str| {
            let request = StsRequest::parse(form(action).as_bytes()).unwrap();
            answer
                .clone()
                .key(&request, "AK", at(0), at(0))
                .principal
                .name()
                .to_owned()
        };
        assert_eq!(key("GetSessionToken"), "AK");
        assert!(key("AssumeRole").starts_with("r#AK#"), "{}", key("AssumeRole"));
    }

    #[test]
    fn a_role_that_sts_does_not_name_is_not_the_keys() {
        // MinIO gives the user's own rights to `AssumeRole`, whatever role it names.
        let unread = AWS.replace("AssumedRoleUser", "Other");
        let role = |xml: &str, form: &str| {
            let request = StsRequest::parse(form.as_bytes()).unwrap();
            let answer = StsAnswer::read(xml.as_bytes()).unwrap();
            let key = answer.key(&request, "AK", at(0), at(0));
            key.role().map(str::to_owned)
        };
        let assume = format!("Action=AssumeRole&Version=2011-06-15&RoleArn={ROLE}&RoleSessionName=app1");
        assert_eq!(role(AWS, &assume).as_deref(), Some(ROLE));
        assert_eq!(role(&unread, &assume), None);
        assert_eq!(
            role(AWS, &assume.replace("FederatedWebIdentityRole", "admin")),
            None
        );
        let ldap = format!(
            "Action=AssumeRoleWithLDAPIdentity&Version=2011-06-15&RoleArn={ROLE}&LDAPUsername=u&LDAPPassword=p"
        );
        assert_eq!(role(&unread, &ldap), None);
    }

    #[test]
    fn a_session_with_a_second_factor_is_another_principal_than_one_without() {
        let without_subject = AWS.replace("SubjectFromWebIdentityToken", "Other");
        let name = |form: &str| {
            let request = StsRequest::parse(form.as_bytes()).unwrap();
            let answer = StsAnswer::read(without_subject.as_bytes()).unwrap();
            answer
                .key(&request, "AK", at(0), at(0))
                .principal
                .name()
                .to_owned()
        };
        let session = "Action=GetSessionToken&Version=2011-06-15";
        assert_eq!(name(session), "AK");
        let with_factor = name(&format!("{session}&SerialNumber=mfa&TokenCode=123456"));
        assert!(with_factor.starts_with("#AK#"), "{with_factor}");
        assert_eq!(
            with_factor,
            name(&format!("{session}&SerialNumber=mfa&TokenCode=654321"))
        );
    }

    #[test]
    fn an_answer_without_a_whole_key_is_none() {
        for part in [
            "SessionToken",
            "SecretAccessKey",
            "AccessKeyId",
            "Expiration",
            "Credentials",
        ] {
            let without = AWS
                .replace(&format!("<{part}>"), "<Other>")
                .replace(&format!("</{part}>"), "</Other>");
            assert_eq!(StsAnswer::read(without.as_bytes()), Err(Malformed), "{part}");
        }
        assert_eq!(
            StsAnswer::read(AWS.replace("2014-10-24T", "yesterday ").as_bytes()),
            Err(Malformed)
        );
    }

    #[test]
    fn errors_of_aws_and_of_s3_are_read_and_those_of_this_node_are_like_those_of_aws() {
        let written = error_document("InvalidIdentityToken", "a < b", true, "1");
        let expected = StsError {
            code: "InvalidIdentityToken".into(),
            message: "a < b".into(),
        };
        assert_eq!(StsError::read(written.as_bytes()), Some(expected));
        assert!(
            written.contains("<Type>Sender</Type>") && written.contains(NAMESPACE),
            "{written}"
        );
        let of_s3 = StsError::read(b"<Error><Code>AccessDenied</Code></Error>").unwrap();
        assert_eq!(
            (of_s3.code.as_str(), of_s3.message.as_str()),
            ("AccessDenied", "")
        );
        assert_eq!(StsError::read(AWS.as_bytes()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (StsAnswer::read(&bytes), StsError::read(&bytes));
        }
    }
}
