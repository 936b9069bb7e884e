//! Parsing and formatting of each kind of value.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use shoal_base::secret::Secret;
use toml::Value as Toml;

use super::{RawValue, Value};
use crate::config::{FreshnessMode, SplitRule};

fn bare<T: Value>(text: &str) -> Option<T> {
    T::read(&RawValue::Bare(text.into())).ok()
}

#[test]
fn freshness_is_a_word_or_a_time() {
    assert_eq!(bare("revalidate"), Some(FreshnessMode::Revalidate));
    assert_eq!(bare("immutable"), Some(FreshnessMode::Immutable));
    assert_eq!(bare("30s"), Some(FreshnessMode::Ttl(Duration::from_secs(30))));
    assert_eq!(bare::<FreshnessMode>("30"), None);
    assert_eq!(bare::<FreshnessMode>("always"), None);
}

#[test]
fn a_split_is_a_word_or_percents() {
    let fixed = SplitRule::Fixed(vec![20, 80]);
    assert_eq!(bare("adaptive"), Some(SplitRule::Adaptive));
    assert_eq!(bare("20, 80"), Some(fixed.clone()));
    assert_eq!(SplitRule::from_toml(&fixed.to_toml().unwrap()), Some(fixed));
    for wrong in ["", "half", "20,", "20;80", "-20,120", "20,256"] {
        assert!(bare::<SplitRule>(wrong).is_none(), "{wrong:?}");
    }
    let mixed = Toml::Array(vec![Toml::Integer(20), Toml::String("80".into())]);
    assert_eq!(SplitRule::from_toml(&mixed), None);
}

#[test]
fn ports_end_at_65535_and_names_are_not_addresses() {
    assert!(bare::<SocketAddr>("127.0.0.1:65535").is_some());
    assert!(bare::<SocketAddr>("[::1]:9000").is_some());
    for wrong in ["127.0.0.1:65536", "127.0.0.1", "9000", "localhost:9000", ""] {
        assert!(bare::<SocketAddr>(wrong).is_none(), "{wrong:?}");
    }
}

#[test]
fn a_list_is_written_with_commas_where_there_are_no_brackets() {
    let both = vec!["a:1".to_string(), "b:2".into()];
    assert_eq!(bare("a:1, b:2"), Some(both.clone()));
    assert_eq!(bare::<Vec<String>>(""), Some(vec![]));
    assert_eq!(
        Vec::read(&RawValue::File(both.to_toml().unwrap())).ok(),
        Some(both)
    );
    let mixed = Toml::Array(vec![Toml::String("a".into()), Toml::Integer(1)]);
    assert!(Vec::<String>::read(&RawValue::File(mixed)).is_err());
}

#[test]
fn numbers_in_the_file_are_numbers_and_not_texts() {
    assert_eq!(usize::read(&RawValue::File(Toml::Integer(7))).ok(), Some(7));
    assert!(usize::read(&RawValue::File(Toml::String("7".into()))).is_err());
    assert!(usize::read(&RawValue::File(Toml::Integer(-7))).is_err());
    assert!(
        u64::read(&RawValue::File(Toml::Integer(7))).is_err(),
        "a size needs its unit"
    );
    assert_eq!(bare::<usize>("7"), Some(7));
}

#[test]
fn an_empty_variable_unsets_what_may_be_absent_and_nothing_else() {
    assert_eq!(bare::<Option<String>>(""), Some(None));
    assert_eq!(bare::<String>(""), None);
    assert!(Option::<String>::read(&RawValue::File(Toml::String(String::new()))).is_err());
}

#[test]
fn a_list_is_an_array_or_values_between_commas() {
    let both = Some(vec!["a".to_string(), "b".to_string()]);
    assert_eq!(bare::<Vec<String>>("a, b"), both);
    assert_eq!(bare::<Vec<String>>(""), Some(vec![]));
    let array = |values: &[Toml]| RawValue::File(Toml::Array(values.to_vec()));
    let (a, b) = (Toml::String("a".into()), Toml::String("b".into()));
    assert_eq!(Vec::<String>::read(&array(&[a.clone(), b])).ok(), both);
    let alone = Vec::<String>::read(&RawValue::File(a.clone()));
    assert_eq!(alone.ok(), Some(vec!["a".to_string()]));
    let misread = Vec::<String>::read(&array(&[a, Toml::Integer(1)])).unwrap_err();
    assert_eq!(misread.what, "cannot be [\"a\", 1]");
}

#[test]
fn a_network_is_written_by_its_first_address() {
    assert_eq!(bare::<IpNet>("10.1.0.0/16"), "10.1.0.0/16".parse().ok());
    assert_eq!(bare::<IpNet>("10.0.0.53"), "10.0.0.53/32".parse().ok());
    assert_eq!(bare::<IpNet>("fd00:1::/32"), "fd00:1::/32".parse().ok());
    for wrong in ["10.1.2.3/16", "10.1.0.0/33", "10.1/16", "rack-1", ""] {
        assert_eq!(bare::<IpNet>(wrong), None, "{wrong:?}");
    }
}

#[test]
fn a_misread_secret_is_not_quoted() {
    let given = RawValue::File(Toml::Integer(123_456));
    let misread = Option::<Secret>::read(&given).unwrap_err();
    assert_eq!(misread.what, "cannot be an integer");
    assert_eq!(Secret::new("x").to_toml(), Some(Toml::String("[hidden]".into())));
}
