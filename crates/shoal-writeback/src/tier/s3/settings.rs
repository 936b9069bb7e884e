//! Checks the bucket for settings with which it would lose pieces, or keep removed ones.

use http::HeaderValue;
use http::response::Parts;
use shoal_s3::xml::Element;

use super::bucket::{Bucket, PREFIX};
use crate::tier::probe::unusable;
use crate::tier::store::{ProbeError, StoreError};

/// Checks the settings that the bucket's store reports.
///
/// A store passes if it does not support a setting or does not let this account read it; [`version_of`]
/// detects versioning without that.
pub(super) async fn check(bucket: &Bucket) -> Result<(), ProbeError> {
    let place = bucket.to_string();
    let versioning = setting(bucket, "versioning").await?;
    if versioning.as_ref().is_some_and(is_versioned) {
        return Err(keeps_versions(&place));
    }
    let lock = setting(bucket, "object-lock").await?;
    let lock = lock.and_then(|lock| lock.text_of("ObjectLockEnabled"));
    if lock.is_some_and(|enabled| enabled.trim() == "Enabled") {
        return Err(ProbeError::unfit(
            format!("{place} has an object lock, which keeps pieces from being removed"),
            "name a bucket that was created without object lock",
        ));
    }
    match setting(bucket, "lifecycle").await? {
        Some(lifecycle) if lifecycle.children().any(takes_pieces_away) => Err(ProbeError::unfit(
            format!("{place} has a lifecycle rule that removes or moves pieces"),
            format!("remove the rule, or limit it to other names than those below {PREFIX}"),
        )),
        _ => Ok(()),
    }
}

/// Returns true if a bucket with this setting of its versioning keeps versions, or kept some.
pub(crate) fn is_versioned(setting: &Element) -> bool {
    let status = setting.text_of("Status");
    status.is_some_and(|status| !status.trim().is_empty())
}

/// Returns the version id of a new object, if the bucket keeps versions.
pub(super) fn version_of(written: &Parts) -> Option<&HeaderValue> {
    let version = written.headers.get("x-amz-version-id");
    version.filter(|version| !matches!(version.as_bytes(), b"" | b"null"))
}

/// Returns the error for a bucket that keeps versions.
pub(super) fn keeps_versions(place: &str) -> ProbeError {
    ProbeError::unfit(
        format!("{place} keeps versions: a removed piece would take its room for ever"),
        "name a bucket that never had versioning enabled",
    )
}

async fn setting(bucket: &Bucket, name: &str) -> Result<Option<Element>, ProbeError> {
    match bucket.send(bucket.s3().setting(&bucket.name, name)).await {
        Ok((_, document)) => Ok(Element::from_answer(&document).ok()),
        // The store does not have the setting, or does not let this account read it. If the bucket does not
        // exist or the account is rejected, the probe of a piece fails.
        Err(StoreError::Missing | StoreError::Refused(_)) => Ok(None),
        Err(error) => Err(unusable(&bucket.to_string(), "cannot be used", &error)),
    }
}

/// Returns true if a lifecycle rule applies to pieces and does more than clean up.
fn takes_pieces_away(rule: &Element) -> bool {
    let is_enabled = rule
        .text_of("Status")
        .is_some_and(|status| status.trim() == "Enabled");
    let expires = rule
        .child("Expiration")
        .is_some_and(|expiration| expiration.child("Days").or(expiration.child("Date")).is_some());
    let filter = rule.child("Filter");
    let all = filter.and_then(|filter| filter.child("And"));
    let scopes = [Some(rule), filter, all];
    let mut scopes = scopes.into_iter().flatten();
    let applies = scopes.all(|scope| {
        let prefix = scope.text_of("Prefix").unwrap_or_default();
        // Pieces have no tags.
        scope.child("Tag").is_none() && (PREFIX.starts_with(&prefix) || prefix.starts_with(PREFIX))
    });
    rule.name() == "Rule" && is_enabled && applies && (expires || rule.child("Transition").is_some())
}

#[cfg(test)]
mod tests {
    use shoal_s3::xml::Element;

    use super::takes_pieces_away;

    fn takes(rule: &str) -> bool {
        let document = format!("<LifecycleConfiguration><Rule>{rule}</Rule></LifecycleConfiguration>");
        let lifecycle = Element::from_answer(document.as_bytes()).unwrap();
        lifecycle.children().any(takes_pieces_away)
    }

    #[test]
    fn a_rule_that_applies_to_pieces_is_noticed() {
        const ON: &str = "<Status>Enabled</Status>";
        const DAYS: &str = "<Expiration><Days>1</Days></Expiration>";
        for scope in [
            "",
            "<Prefix/>",
            "<Prefix>pie</Prefix>",
            "<Prefix>pieces/a</Prefix>",
            "<Filter><Prefix>pieces/</Prefix></Filter>",
            "<Filter><And><Prefix>p</Prefix></And></Filter>",
            "<Filter/>",
        ] {
            assert!(takes(&format!("{ON}{DAYS}{scope}")), "{scope}");
            let moved = format!("{ON}{scope}<Transition><Days>1</Days></Transition>");
            assert!(takes(&moved), "{scope}");
        }
        for harmless in [
            format!("<Status>Disabled</Status>{DAYS}"),
            format!("{ON}{DAYS}<Prefix>other/</Prefix>"),
            format!("{ON}{DAYS}<Filter><Tag><Key>a</Key></Tag></Filter>"),
            format!("{ON}{DAYS}<Filter><And><Prefix/><Tag><Key>a</Key></Tag></And></Filter>"),
            format!("{ON}<AbortIncompleteMultipartUpload/>"),
            format!(
                "{ON}<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>"
            ),
        ] {
            assert!(!takes(&harmless), "{harmless}");
        }
    }
}
