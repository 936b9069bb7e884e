//! Base 16: of 32-byte digests without allocation, of other bytes as text.

/// Lower-case hexadecimal, as signatures and content hashes are written.
pub fn encode(bytes: &[u8; 32]) -> [u8; 64] {
    // Computed, not looked up, so that the compiler handles sixteen digits at a time.
    let mut text = [0; 64];
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair[0] = byte >> 4;
        pair[1] = byte & 15;
    }
    text.map(|value| value + if value < 10 { b'0' } else { b'a' - 10 })
}

/// Bytes of any number in lower-case hexadecimal.
pub fn text(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// The bytes that twice as many digits of either case encode.
pub fn decode<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_chunks();
    let pairs: &[[u8; 2]; N] = pairs.try_into().ok()?;
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    rest.is_empty().then_some(bytes)
}

/// The value of one digit.
pub fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        b'A'..=b'F' => Some(character - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};
    use proptest::prelude::{any, proptest};

    proptest! {
        #[test]
        fn encoded_bytes_decode_to_themselves(bytes: [u8; 32]) {
            assert_eq!(decode(&encode(&bytes)), Some(bytes));
            assert_eq!(decode(&encode(&bytes).to_ascii_uppercase()), Some(bytes));
        }

        #[test]
        fn a_text_of_other_than_sixty_four_digits_is_refused(at in 0_usize..64, other in any::<u8>()) {
            let mut text = [b'a'; 64];
            text[at] = other;
            assert_eq!(decode::<32>(&text).is_some(), other.is_ascii_hexdigit());
            assert_eq!(decode::<32>(&text[at..]).is_some(), at == 0 && other.is_ascii_hexdigit());
        }
    }
}
