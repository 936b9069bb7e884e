//! The header `traceparent` (W3C Trace Context): the span that a request belongs to, and the sender's
//! decision about its trace.

use http::{HeaderMap, HeaderName, HeaderValue};

/// `traceparent`
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The length of a header of version 00. Later versions may append fields.
const LENGTH: usize = 55;

/// The flag of a trace that its sender records.
const SAMPLED: u8 = 1;

/// The span that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: u128,
    /// The span of the sender.
    pub span: u64,
    /// True if the sender records the trace.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Parses the header of a request; `None` if it is absent, repeated or malformed.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let value = values.next()?;
        values.next().is_none().then(|| Self::parse(value.as_bytes()))?
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (fields, rest) = text.split_at_checked(LENGTH)?;
        let mut fields = fields.split('-');
        let mut field = |digits: usize| {
            let field = fields.next().filter(|field| field.len() == digits)?;
            let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            let value = u128::from_str_radix(field, 16).ok()?;
            field.bytes().all(is_hex).then_some(value)
        };
        let (version, trace, span, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        let may_be_longer = version > 0 && rest.starts_with('-');
        let is_valid = version != 0xff && trace != 0 && span != 0 && (rest.is_empty() || may_be_longer);
        is_valid.then_some(Self {
            trace,
            span: span as u64,
            is_sampled: flags as u8 & SAMPLED != 0,
        })
    }

    /// Returns the value of the header.
    pub fn to_header(self) -> HeaderValue {
        let Self { trace, span, .. } = self;
        let flags = u8::from(self.is_sampled) * SAMPLED;
        let value = HeaderValue::try_from(format!("00-{trace:032x}-{span:016x}-{flags:02x}"));
        value.expect("digits are a header value")
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use proptest::prelude::{any, proptest};

    use super::{TRACEPARENT, TraceParent};

    const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
    const SPAN: u64 = 0x00f0_67aa_0ba9_02b7;

    fn parsed(values: &[&str]) -> Option<TraceParent> {
        let values = values
            .iter()
            .map(|value| (TRACEPARENT, HeaderValue::from_str(value).unwrap()));
        let mut headers = HeaderMap::new();
        values.for_each(|(name, value)| _ = headers.append(name, value));
        TraceParent::of(&headers)
    }

    #[test]
    fn a_header_names_a_trace_a_span_and_the_decision() {
        let known = |is_sampled| {
            let (trace, span) = (TRACE, SPAN);
            Some(TraceParent {
                trace,
                span,
                is_sampled,
            })
        };
        for (text, expected) in [
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                known(true),
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
                known(false),
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03",
                known(true),
            ),
            (
                "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
                known(true),
            ),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
                None,
            ),
            (
                "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01more",
                None,
            ),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", None),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", None),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", None),
            ("00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None),
            ("00-4bf92f3577b34da6a3ce929d0e0e47360-0f067aa0ba902b7-01", None),
            ("00-1-2-00", None),
            ("", None),
        ] {
            assert_eq!(parsed(&[text]), expected, "{text}");
        }
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(parsed(&[text, text]), None);
        assert_eq!(parsed(&[]), None);
    }

    proptest! {
        #[test]
        fn a_header_is_read_as_it_was_written(trace in 1..u128::MAX, span in 1..u64::MAX, is_sampled in any::<bool>()) {
            let written = TraceParent { trace, span, is_sampled };
            let headers = HeaderMap::from_iter([(TRACEPARENT, written.to_header())]);
            assert_eq!(TraceParent::of(&headers), Some(written));
        }

        #[test]
        fn any_bytes_are_a_header_or_none(text in "[0-9a-fA-F+-]{50,60}|\\PC{0,80}") {
            let _ = TraceParent::parse(text.as_bytes());
        }
    }
}
