//! Parses sizes (`"100GiB"`), rates (`"40Gbit/s"`), times (`"90s"`) and shares (`"5%"`).

use std::fmt;
use std::time::Duration;

pub use shoal_base::amount::{counted, human_bytes};

const SIZE_UNITS: [(&str, f64); 9] = [
    ("TiB", (1_u64 << 40) as f64),
    ("TB", 1e12),
    ("GiB", (1_u64 << 30) as f64),
    ("GB", 1e9),
    ("MiB", (1_u64 << 20) as f64),
    ("MB", 1e6),
    ("KiB", 1024.0),
    ("KB", 1e3),
    ("B", 1.0),
];

const TIME_UNITS: [(&str, f64); 7] = [
    ("d", 8.64e13),
    ("h", 3.6e12),
    ("m", 6e10),
    ("s", 1e9),
    ("ms", 1e6),
    ("us", 1e3),
    ("ns", 1.0),
];

/// The form of a size, for messages.
pub const SIZE_FORM: &str = "a number and B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, such as \"100GiB\"";
/// The form of a time, for messages.
pub const TIME_FORM: &str = "a number and ns, us, ms, s, m, h or d, such as \"90s\"";

/// A requested capacity: in bytes, or as a share of the working set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity {
    /// A number of bytes.
    Bytes(u64),
    /// A share of the bytes that the trace touches: 0.05 is 5%.
    Share(f64),
}

/// Parses a size such as `"100GiB"`, in bytes; `None` if it has another form.
pub fn size(text: &str) -> Option<u64> {
    scaled(text, &SIZE_UNITS)
}

/// Parses a length of time such as `"90s"`; `None` if it has another form.
pub fn span(text: &str) -> Option<Duration> {
    scaled(text, &TIME_UNITS).map(Duration::from_nanos)
}

/// Parses a rate such as `"40Gbit/s"` or `"5GB/s"`, in bytes a second; `None` if it has another form or is
/// zero.
pub fn rate(text: &str) -> Option<f64> {
    let volume = text.trim().strip_suffix("/s")?;
    let bits = [("Gbit", 1e9), ("Mbit", 1e6), ("Kbit", 1e3), ("bit", 1.0)];
    let rate = match quantity(volume, &bits) {
        Some(bits_per_second) => bits_per_second / 8.0,
        None => quantity(volume, &SIZE_UNITS)?,
    };
    (rate > 0.0).then_some(rate)
}

impl Capacity {
    /// Parses `"5%"` or `"100GiB"`; `None` if it has another form.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse::<f64>().ok()?;
                (percent > 0.0 && percent.is_finite()).then_some(Self::Share(percent / 100.0))
            }
            None => size(text).map(Self::Bytes),
        }
    }

    /// The capacity in bytes for a trace that touches `working_set_bytes`.
    pub fn bytes(self, working_set_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            #[expect(clippy::cast_sign_loss, reason = "a share is positive")]
            Self::Share(share) => (working_set_bytes as f64 * share).round() as u64,
        }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.write_str(&human_bytes(*bytes)),
            Self::Share(share) => write!(f, "{}%", share * 100.0),
        }
    }
}

/// Parses a number and a unit, in whole steps of the smallest unit.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let quantity = quantity(text, units)?;
    #[expect(clippy::cast_sign_loss, reason = "a quantity is not negative")]
    (quantity < u64::MAX as f64).then_some(quantity.round() as u64)
}

fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    let (_, scale) = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))?;
    Some(number.parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Capacity, rate, size, span};

    #[test]
    fn a_quantity_is_a_number_and_a_known_unit() {
        assert_eq!(size("4MiB"), Some(4 << 20));
        assert_eq!(size("1.5 kb"), Some(1500));
        assert_eq!(span("1.5m"), Some(Duration::from_secs(90)));
        assert_eq!(span("200us"), Some(Duration::from_micros(200)));
        assert_eq!(rate("40Gbit/s"), Some(5e9));
        assert_eq!(rate("15GB/s"), Some(15e9));
        for text in ["", "4", "MiB", "4 parsecs", "-4MiB", "1..5MiB", "99999999TiB"] {
            assert_eq!(size(text), None, "{text}");
        }
        for text in ["40Gbit", "0Gbit/s", "5/s"] {
            assert_eq!(rate(text), None, "{text}");
        }
    }

    #[test]
    fn a_capacity_is_bytes_or_a_share_of_the_working_set() {
        assert_eq!(Capacity::parse("5%").unwrap().bytes(1000), 50);
        assert_eq!(Capacity::parse("0.1%").unwrap().bytes(10_000), 10);
        assert_eq!(Capacity::parse("2KiB").unwrap().bytes(1), 2048);
        assert_eq!(Capacity::parse("0%"), None);
        assert_eq!(Capacity::Share(0.05).to_string(), "5%");
    }
}
