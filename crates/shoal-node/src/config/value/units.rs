//! Sizes (`"100GiB"`) and times (`"30s"`) as operators write them.

use std::time::Duration;

const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

const TIME_UNITS_MS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Units of networks, which are decimal and count bits, in bytes a second.
const BIT_UNITS: [(&str, u64); 4] = [
    ("Tbit", 125_000_000_000),
    ("Gbit", 125_000_000),
    ("Mbit", 125_000),
    ("kbit", 125),
];

/// Parses bytes such as `"100GiB"`; `None` if the unit is unknown or the number does not fit.
pub fn parse_size(text: &str) -> Option<u64> {
    parse(text, &SIZE_UNITS)
}

/// Parses a time such as `"30s"`; `None` if the unit is unknown or the number does not fit.
pub fn parse_time(text: &str) -> Option<Duration> {
    parse(text, &TIME_UNITS_MS).map(Duration::from_millis)
}

/// Parses a rate such as `"10Gbit"` or `"1250MB/s"` into bytes a second; `None` if the unit is unknown or the
/// number does not fit.
pub(super) fn parse_rate(text: &str) -> Option<u64> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    let text = text.trim_end();
    parse(text, &BIT_UNITS).or_else(|| parse_size(text))
}

/// Returns the shortest exact text of a rate, in bits a second if possible.
pub(super) fn format_rate(bytes_per_second: u64) -> String {
    format(bytes_per_second, BIT_UNITS.iter().chain([&("B", 1)]))
}

/// Returns the shortest exact text of a size, always in binary units.
pub(super) fn format_size(bytes: u64) -> String {
    let binary = |unit: &&(&str, u64)| unit.1.is_power_of_two();
    format(bytes, SIZE_UNITS.iter().filter(binary))
}

/// Returns the shortest exact text of a time in whole milliseconds.
pub(super) fn format_time(time: Duration) -> String {
    format(time.as_millis() as u64, TIME_UNITS_MS.iter())
}

/// Parses a whole number and a unit. The unit is required, so that a bare `30` is never ambiguous.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let (_, scale) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

fn format<'a>(value: u64, mut units: impl Iterator<Item = &'a (&'static str, u64)>) -> String {
    let exact = |(_, scale): &&(&str, u64)| value.is_multiple_of(*scale) && (value > 0 || *scale == 1);
    let (name, scale) = units.find(exact).expect("the last unit is 1");
    format!("{}{name}", value / scale)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{format_rate, format_size, format_time, parse_rate, parse_size, parse_time};

    #[test]
    fn a_size_is_a_whole_number_and_a_unit() {
        let cases = [
            ("0B", Some(0)),
            ("1B", Some(1)),
            ("64KiB", Some(65_536)),
            ("64 KiB", Some(65_536)),
            ("4mib", Some(4 << 20)),
            ("100GiB", Some(100 << 30)),
            ("2TiB", Some(2 << 40)),
            ("5KB", Some(5_000)),
            ("5GB", Some(5_000_000_000)),
            ("100", None),
            ("GiB", None),
            ("", None),
            ("-1GiB", None),
            ("1.5GiB", None),
            ("1GiBs", None),
            ("1 G", None),
            ("18446744073709551616B", None),
            ("16777216TiB", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), bytes, "{text:?}");
        }
    }

    #[test]
    fn a_time_is_a_whole_number_and_a_unit() {
        let cases = [
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("5m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("1d", Some(86_400_000)),
            ("0s", Some(0)),
            ("30", None),
            ("s", None),
            ("1h30m", None),
            ("-1s", None),
            ("1 month", None),
        ];
        for (text, ms) in cases {
            assert_eq!(parse_time(text), ms.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn a_rate_is_a_whole_number_and_a_unit_of_bits_or_bytes() {
        let cases = [
            ("10Gbit", Some(1_250_000_000)),
            ("10 Gbit/s", Some(1_250_000_000)),
            ("100mbit", Some(12_500_000)),
            ("8kbit", Some(1_000)),
            ("1250MB", Some(1_250_000_000)),
            ("1GiB/s", Some(1 << 30)),
            ("1Tbit", Some(125_000_000_000)),
            ("1.25GB", None),
            ("10G", None),
            ("10Gbps", None),
            ("Gbit", None),
            ("10Gbit/m", None),
            ("18446744073709551615Gbit", None),
        ];
        for (text, rate) in cases {
            assert_eq!(parse_rate(text), rate, "{text:?}");
        }
        assert_eq!(format_rate(1_250_000_000), "10Gbit");
        assert_eq!(format_rate(1_000), "8kbit");
        assert_eq!(format_rate(1_001), "1001B");
    }

    #[test]
    fn values_are_written_in_the_largest_unit_that_is_exact() {
        assert_eq!(format_size(100 << 30), "100GiB");
        assert_eq!(format_size((1 << 30) + 1), "1073741825B");
        assert_eq!(format_size(1536 << 10), "1536KiB");
        assert_eq!(format_time(Duration::from_secs(90)), "90s");
        assert_eq!(format_time(Duration::from_hours(2)), "2h");
        assert_eq!(format_time(Duration::from_millis(1_500)), "1500ms");
    }

    proptest! {
        #[test]
        fn sizes_and_times_read_back_as_written(bytes in any::<u64>(), seconds in 0..u64::MAX / 1_000_000) {
            prop_assert_eq!(parse_size(&format_size(bytes)), Some(bytes));
            prop_assert_eq!(parse_rate(&format_rate(bytes)), Some(bytes));
            let time = Duration::from_secs(seconds);
            prop_assert_eq!(parse_time(&format_time(time)), Some(time));
        }
    }
}
