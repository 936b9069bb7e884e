//! Parses the text of a setting into a typed value, and formats it again.

mod bandwidth;
pub(super) mod units;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use shoal_base::secret::Secret;
use shoal_base::spelling::suggestion;
use shoal_base::words::Word as _;
use shoal_policy::eviction::PolicyName;
use shoal_registry::Lifetime;
use toml::Value as Toml;

use super::problem::Fault;
use super::{
    AccessFormat, Anonymous, Bandwidth, CooperationMode, Fallback, FreshnessMode, KeySourceKind, QuotaSize,
    RolePattern, Share, SplitRule, UnknownIdentities, WriteMode,
};
use units::{format_size, format_time, parse_size, parse_time};

/// An untyped value of a setting.
#[derive(Clone, Debug)]
pub(super) enum RawValue {
    /// A TOML value from the file.
    File(Toml),
    /// Text from a variable or a flag.
    Bare(String),
}

impl RawValue {
    /// Returns the raw value if it is text.
    fn text(&self) -> Option<&str> {
        match self {
            Self::File(value) => value.as_str(),
            Self::Bare(text) => Some(text),
        }
    }
}

/// A type that a setting can have.
pub(super) trait Value: Sized {
    /// The hint for an invalid value, with an example: `write ...`.
    const WRITE: &'static str;

    /// Parses a text; `None` if it is not a value of this type.
    fn from_text(text: &str) -> Option<Self>;

    /// Converts a TOML value; types that TOML has natively override this.
    fn from_toml(value: &Toml) -> Option<Self> {
        Self::from_text(value.as_str()?)
    }

    /// Returns the value as TOML; `None` if it is not set.
    fn to_toml(&self) -> Option<Toml>;

    /// Returns the raw value, quoted for a message.
    fn quote(given: &RawValue) -> String {
        match given {
            RawValue::Bare(text) if text.is_empty() => "nothing".into(),
            RawValue::Bare(text) => format!("{text:?}"),
            RawValue::File(value @ (Toml::Array(_) | Toml::Table(_))) => indefinite(value.type_str()),
            RawValue::File(value) => value.to_string(),
        }
    }

    /// Returns advice on how to write the value.
    fn hint(_given: &RawValue) -> String {
        Self::WRITE.into()
    }

    /// Parses a raw value.
    fn read(given: &RawValue) -> Result<Self, Fault> {
        let value = match given {
            RawValue::Bare(text) => Self::from_text(text),
            RawValue::File(value) => Self::from_toml(value),
        };
        let what = || format!("cannot be {}", Self::quote(given));
        value.ok_or_else(|| Fault::new(what(), Self::hint(given)))
    }
}

fn indefinite(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {noun}")
}

/// Types that are written as texts: how a text is parsed, how a value is formatted, and what to write.
macro_rules! texts {
    ($($type:ty: $parse:expr, $format:expr, $write:literal;)*) => {$(
        impl Value for $type {
            const WRITE: &'static str = $write;

            fn from_text(text: &str) -> Option<Self> {
                $parse(text)
            }

            fn to_toml(&self) -> Option<Toml> {
                Some(Toml::from($format(self)))
            }
        }
    )*};
}

texts! {
    String: filled, Self::as_str, "write a text in quotes";
    RolePattern: |text: &str| Some(text.into()), Self::as_str, "write the ARN of a role in quotes";
    PathBuf: filled, |path: &Self| path.display().to_string(), "write a path in quotes";
    SocketAddr: |text: &str| text.parse().ok(), Self::to_string,
        "write an IP address and a port below 65536, such as \"127.0.0.1:9000\" or \"[::]:9000\"";
    IpNet: parse_network, Self::to_string,
        "write a network by its first address and the length of its prefix, such as \"10.1.0.0/16\"";
    // Every `u64` of the configuration counts bytes.
    u64: parse_size, |bytes: &Self| format_size(*bytes),
        "write a size as a whole number and B, KiB, MiB, GiB or TiB (or KB, MB, GB, TB: powers of 1000), such as \"100GiB\"";
    QuotaSize: parse_quota_size, format_quota_size,
        "write a size such as \"100GiB\", or a part of [store] capacity such as \"20%\"";
    Duration: parse_time, |time: &Self| format_time(*time),
        "write a time as a whole number and ms, s, m, h or d, such as \"30s\"";
    Bandwidth: bandwidth::parse, bandwidth::format,
        "write a rate as a whole number and kbit, Mbit, Gbit, KB, MB or GB a second, such as \"10Gbit\" or \"1250MB\"; with shared behind it for what all nodes have together";
    FreshnessMode: parse_freshness, format_freshness,
        "write \"revalidate\", \"coherent\", \"immutable\", or a time such as \"30s\"";
    WriteMode: |text: &str| word(text, Self::ALL, Self::as_str), |mode: &Self| mode.as_str(),
        "write \"around\", \"through\" or, for a rule, \"back\"";
    Fallback: |text: &str| word(text, Self::ALL, Self::as_str), |fallback: &Self| fallback.as_str(),
        "write \"through\" or \"refuse\"";
    Lifetime: |text: &str| word(text, [Self::Normal, Self::Short], lifetime_word),
        |lifetime: &Self| lifetime_word(*lifetime),
        "write \"normal\" or \"short\"";
    Anonymous: |text: &str| word(text, Self::ALL, Self::as_str),
        |anonymous: &Self| anonymous.as_str(),
        "write \"forward\" or \"refuse\"";
    UnknownIdentities: |text: &str| word(text, Self::ALL, Self::as_str),
        |unknown: &Self| unknown.as_str(),
        "write \"refuse\" or \"lake\"";
    KeySourceKind: |text: &str| word(text, Self::ALL, Self::as_str),
        |kind: &Self| kind.as_str(),
        "write \"http\" or \"ceph\"";
    CooperationMode: |text: &str| word(text, Self::ALL, Self::as_str),
        |mode: &Self| mode.as_str(),
        "write \"solo\", \"hierarchy\" or \"directory\"";
}

/// Returns a text that is not empty.
fn filled<T: for<'a> From<&'a str>>(text: &str) -> Option<T> {
    (!text.is_empty()).then(|| text.into())
}

/// Returns the value that a word names.
fn word<T: Copy, const N: usize>(text: &str, all: [T; N], name: fn(T) -> &'static str) -> Option<T> {
    all.into_iter().find(|value| name(*value) == text)
}

/// A network is written as its first address, a single address as itself.
fn parse_network(text: &str) -> Option<IpNet> {
    let address = || Some(IpNet::from(text.parse::<IpAddr>().ok()?));
    let network = text.parse().ok().or_else(address);
    network.filter(|network| network.trunc() == *network)
}

fn parse_quota_size(text: &str) -> Option<QuotaSize> {
    match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse().ok().map(QuotaSize::Percent),
        None => parse_size(text).map(QuotaSize::Bytes),
    }
}

fn format_quota_size(size: &QuotaSize) -> String {
    match size {
        QuotaSize::Bytes(bytes) => format_size(*bytes),
        QuotaSize::Percent(percent) => format!("{percent}%"),
    }
}

fn parse_freshness(text: &str) -> Option<FreshnessMode> {
    match text {
        "revalidate" => Some(FreshnessMode::Revalidate),
        "immutable" => Some(FreshnessMode::Immutable),
        "coherent" => Some(FreshnessMode::Coherent),
        time => parse_time(time).map(FreshnessMode::Ttl),
    }
}

fn format_freshness(mode: &FreshnessMode) -> String {
    match mode {
        FreshnessMode::Revalidate => "revalidate".into(),
        FreshnessMode::Immutable => "immutable".into(),
        FreshnessMode::Coherent => "coherent".into(),
        FreshnessMode::Ttl(time) => format_time(*time),
    }
}

/// Returns the name of a lifetime in settings.
pub(super) const fn lifetime_word(lifetime: Lifetime) -> &'static str {
    match lifetime {
        Lifetime::Normal => "normal",
        Lifetime::Short => "short",
    }
}

impl Value for Secret {
    const WRITE: &'static str = String::WRITE;

    fn from_text(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self::new(text))
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(Toml::String("[hidden]".into()))
    }

    fn quote(given: &RawValue) -> String {
        match given {
            RawValue::File(value) if !value.is_str() => indefinite(value.type_str()),
            _ => "nothing".into(),
        }
    }
}

/// Numbers of things, not of bytes.
macro_rules! count {
    ($($type:ty),*) => {$(
        impl Value for $type {
            const WRITE: &'static str = "write a whole number, such as 16";

            fn from_text(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn from_toml(value: &Toml) -> Option<Self> {
                value.as_integer()?.try_into().ok()
            }

            fn to_toml(&self) -> Option<Toml> {
                i64::try_from(*self).ok().map(Toml::Integer)
            }
        }
    )*};
}

count!(u8, u32, usize);

impl Value for bool {
    const WRITE: &'static str = "write true or false";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn from_toml(value: &Toml) -> Option<Self> {
        value.as_bool()
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(Toml::Boolean(*self))
    }
}

impl Value for Share {
    const WRITE: &'static str = "write a number from 0 to 1, such as 0.01";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    fn from_toml(value: &Toml) -> Option<Self> {
        let whole = || value.as_integer().map(|whole| whole as f64);
        value.as_float().or_else(whole).map(Self)
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(Toml::Float(self.0))
    }
}

impl Value for AccessFormat {
    const WRITE: &'static str = "write true, false or \"s3\"";

    fn from_text(text: &str) -> Option<Self> {
        word(text, Self::ALL, Self::as_str)
    }

    fn from_toml(value: &Toml) -> Option<Self> {
        match value {
            Toml::Boolean(true) => Some(Self::Events),
            Toml::Boolean(false) => Some(Self::Off),
            value => (value.as_str()? == Self::S3.as_str()).then_some(Self::S3),
        }
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(match self {
            Self::Off => Toml::Boolean(false),
            Self::Events => Toml::Boolean(true),
            Self::S3 => Toml::String(self.as_str().into()),
        })
    }
}

/// The policies of nodes. The others are for comparison, in `shoal sim`.
const POLICIES: [PolicyName; 7] = [
    PolicyName::Duel,
    PolicyName::Lru,
    PolicyName::Gwf,
    PolicyName::C2p,
    PolicyName::C2pDuel,
    PolicyName::C2pLru,
    PolicyName::C2pGwf,
];

impl Value for PolicyName {
    const WRITE: &'static str =
        "write \"duel\", \"lru\" or \"gwf\", also with \"c2p+\" before it, or \"c2p\"";

    fn from_text(text: &str) -> Option<Self> {
        Self::named(text).filter(|policy| POLICIES.contains(policy))
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(Toml::String(self.as_str().into()))
    }

    fn hint(given: &RawValue) -> String {
        let text = given.text().unwrap_or_default();
        if Self::named(text).is_some() {
            return format!(
                "{}: a node does not follow the others, which `shoal sim` compares",
                Self::WRITE
            );
        }
        suggestion(text, POLICIES.map(Self::as_str))
            .map_or_else(|| Self::WRITE.into(), |name| format!("did you mean \"{name}\"?"))
    }
}

impl Value for SplitRule {
    const WRITE: &'static str =
        "write \"adaptive\", or percents from L1 outwards such as [50, 50]; in a variable or flag 50,50";

    fn from_text(text: &str) -> Option<Self> {
        if text == "adaptive" {
            return Some(Self::Adaptive);
        }
        let percents = text.split(',').map(|percent| u8::from_text(percent.trim()));
        percents.collect::<Option<_>>().map(Self::Fixed)
    }

    fn from_toml(value: &Toml) -> Option<Self> {
        match value {
            Toml::Array(_) => Vec::from_toml(value).map(Self::Fixed),
            value => (value.as_str()? == "adaptive").then_some(Self::Adaptive),
        }
    }

    fn to_toml(&self) -> Option<Toml> {
        match self {
            Self::Adaptive => Some(Toml::String("adaptive".into())),
            Self::Fixed(percents) => percents.to_toml(),
        }
    }

    fn quote(given: &RawValue) -> String {
        match given {
            RawValue::File(value) => value.to_string(),
            RawValue::Bare(text) => format!("{text:?}"),
        }
    }
}

/// A list: an array in the file, comma-separated in a variable or a flag. A single value needs no brackets.
impl<T: Value> Value for Vec<T> {
    const WRITE: &'static str = T::WRITE;

    fn from_text(text: &str) -> Option<Self> {
        let values = text.split(',').map(str::trim).filter(|value| !value.is_empty());
        values.map(T::from_text).collect()
    }

    fn from_toml(value: &Toml) -> Option<Self> {
        match value {
            Toml::Array(values) => values.iter().map(T::from_toml).collect(),
            one => Some(vec![T::from_toml(one)?]),
        }
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(Toml::Array(self.iter().filter_map(Value::to_toml).collect()))
    }

    /// Quotes the whole list, because any of its values may be the invalid one.
    fn quote(given: &RawValue) -> String {
        match given {
            RawValue::File(value @ Toml::Array(_)) => value.to_string(),
            given => T::quote(given),
        }
    }
}

/// A setting that may be absent. An empty variable or flag clears the value of a lower layer.
impl<T: Value> Value for Option<T> {
    const WRITE: &'static str = T::WRITE;

    fn from_text(text: &str) -> Option<Self> {
        if text.is_empty() {
            Some(None)
        } else {
            T::from_text(text).map(Some)
        }
    }

    fn from_toml(value: &Toml) -> Option<Self> {
        T::from_toml(value).map(Some)
    }

    fn to_toml(&self) -> Option<Toml> {
        self.as_ref().and_then(Value::to_toml)
    }

    fn quote(given: &RawValue) -> String {
        T::quote(given)
    }

    fn hint(given: &RawValue) -> String {
        T::hint(given)
    }
}

#[cfg(test)]
mod tests;
