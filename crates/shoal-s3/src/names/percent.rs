//! Percent-decoding, once, of paths and of queries. Signatures and operations both use it, so that they see
//! the same name.

use std::borrow::Cow;

use shoal_base::hex;

/// Decodes a part of a path, in which `+` is literal. `None` for an invalid escape.
pub fn decode_path(bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(first) = memchr::memchr(b'%', bytes) else {
        return Some(Cow::Borrowed(bytes));
    };
    let mut decoded = Vec::with_capacity(bytes.len());
    let (mut rest, mut next) = (bytes, Some(first));
    while let Some(at) = next {
        decoded.extend_from_slice(&rest[..at]);
        let (byte, tail) = decode_escape(&rest[at + 1..])?;
        decoded.push(byte);
        rest = tail;
        next = memchr::memchr(b'%', rest);
    }
    decoded.extend_from_slice(rest);
    Some(Cow::Owned(decoded))
}

/// Decodes a name or a value of a query, in which `+` is a space. The `%` of an invalid escape is literal.
pub fn decode_query(component: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'%', b'+', component).is_none() {
        return Cow::Borrowed(component);
    }
    let mut decoded = Vec::with_capacity(component.len());
    decode_query_into(component, &mut decoded);
    Cow::Owned(decoded)
}

/// Appends a name or a value of a query, decoded as by [`decode_query`].
pub fn decode_query_into(component: &[u8], decoded: &mut Vec<u8>) {
    let plain = memchr::memchr2(b'%', b'+', component).unwrap_or(component.len());
    decoded.extend_from_slice(&component[..plain]);
    each_of_query(&component[plain..], |byte| decoded.push(byte));
}

/// Calls `each` for each byte of a name or a value of a query, decoded as by [`decode_query`].
pub fn each_of_query(component: &[u8], mut each: impl FnMut(u8)) {
    let mut rest = component;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match *byte {
            b'+' => each(b' '),
            b'%' => match decode_escape(rest) {
                Some((decoded, tail)) => {
                    rest = tail;
                    each(decoded);
                }
                None => each(b'%'),
            },
            other => each(other),
        }
    }
}

/// Returns the byte encoded by the two digits after a `%`, and the rest.
pub fn decode_escape(after_percent: &[u8]) -> Option<(u8, &[u8])> {
    let [high, low, tail @ ..] = after_percent else {
        return None;
    };
    Some((hex::digit(*high)? << 4 | hex::digit(*low)?, tail))
}

#[cfg(test)]
mod tests {
    use super::{decode_path, decode_query};

    #[test]
    fn a_path_decodes_once_and_keeps_its_plus_signs() {
        for (encoded, decoded) in [
            ("", "".as_bytes()),
            ("a+b", b"a+b"),
            ("%2f%2Fa%2525", b"//a%25"),
            ("x%ffy%00", b"x\xffy\0"),
        ] {
            assert_eq!(
                decode_path(encoded.as_bytes()).as_deref(),
                Some(decoded),
                "{encoded}"
            );
        }
        for malformed in ["%", "%2", "a%zz", "%2fa%+1", "%%41"] {
            assert_eq!(decode_path(malformed.as_bytes()), None, "{malformed}");
        }
    }

    #[test]
    fn a_query_reads_plus_as_blank_and_a_lone_percent_sign_as_itself() {
        for (encoded, decoded) in [
            ("", ""),
            ("a-b", "a-b"),
            ("a+b%20c%2B", "a b c+"),
            ("100%", "100%"),
            ("%2%41%zz", "%2A%zz"),
        ] {
            assert_eq!(
                *decode_query(encoded.as_bytes()),
                *decoded.as_bytes(),
                "{encoded}"
            );
        }
    }
}
