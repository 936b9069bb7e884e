//! Access rules of the lake. Of the rules that match an access, the last one decides.

use serde_json::Value;

/// Reading an object, removing it, or anything else. A rule about writes is also one about removals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Remove,
}

/// Stands for requests without a signature.
pub(crate) const ANONYMOUS: &str = "*anonymous*";

#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// An access key or [`ANONYMOUS`]; `None` matches every client.
    pub(super) who: Option<String>,
    /// `None` for both.
    pub(super) access: Option<Access>,
    /// `bucket/prefix`
    pub(super) place: String,
    pub(super) allowed: bool,
    /// Set by a bucket policy or an ACL over S3; replaced by the next one of the same name.
    pub(super) origin: Option<String>,
}

/// Returns true if the rules permit an access. If none matches, a client with an account may do everything,
/// and an anonymous client nothing.
pub(super) fn is_allowed(
    rules: &[Rule],
    who: Option<&str>,
    access: Access,
    bucket: &str,
    key: &[u8],
) -> bool {
    let place = format!("{bucket}/{}", String::from_utf8_lossy(key));
    let name = who.unwrap_or(ANONYMOUS);
    let fits = |rule: &&Rule| {
        rule.who.as_deref().is_none_or(|who| who == name)
            && rule.access.is_none_or(|covered| covers(covered, access))
            && place.starts_with(&rule.place)
    };
    rules
        .iter()
        .rev()
        .find(fits)
        .map_or(who.is_some(), |rule| rule.allowed)
}

fn covers(covered: Access, access: Access) -> bool {
    covered == access || (covered, access) == (Access::Write, Access::Remove)
}

/// The rules of `x-amz-acl` on a bucket or an object.
pub(super) fn of_acl(acl: &str, bucket: &str, key: &[u8]) -> Vec<Rule> {
    let place = format!("{bucket}/{}", String::from_utf8_lossy(key));
    let origin = Some(format!("acl of {place}"));
    let rule = |access, allowed| Rule {
        who: Some(ANONYMOUS.into()),
        access: Some(access),
        place: place.clone(),
        allowed,
        origin: origin.clone(),
    };
    vec![
        rule(Access::Read, acl.starts_with("public-read")),
        rule(Access::Write, acl == "public-read-write"),
    ]
}

/// The rules of a bucket policy: effect, principal, `s3:GetObject` or others, resource with a `*` at its end.
pub(super) fn of_bucket_policy(bucket: &str, document: &[u8]) -> Option<Vec<Rule>> {
    let document: Value = serde_json::from_slice(document).ok()?;
    document["Statement"]
        .as_array()?
        .iter()
        .map(|statement| rule(bucket, statement))
        .collect()
}

pub(super) fn policy_origin(bucket: &str) -> String {
    format!("policy of {bucket}")
}

fn rule(bucket: &str, statement: &Value) -> Option<Rule> {
    let who = match &statement["Principal"] {
        Value::String(all) if all == "*" => None,
        Value::Object(map) => Some(map.get("AWS")?.as_str()?.to_owned()),
        _ => return None,
    };
    let access = match statement["Action"].as_str()? {
        "s3:GetObject" => Some(Access::Read),
        "s3:PutObject" => Some(Access::Write),
        _ => None,
    };
    let resource = statement["Resource"].as_str()?.strip_prefix("arn:aws:s3:::")?;
    Some(Rule {
        who,
        access,
        place: resource.trim_end_matches('*').to_owned(),
        allowed: statement["Effect"] == "Allow",
        origin: Some(policy_origin(bucket)),
    })
}
