//! A version 4 signature in its written form, and the one way to compare it.

use std::fmt;

use shoal_base::hex;
use subtle::{Choice, ConstantTimeEq};

const DIGITS: usize = 64;

/// An HMAC-SHA256: 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub struct Signature([u8; DIGITS]);

impl Signature {
    /// Writes the result of an HMAC as digits.
    pub fn from_mac(mac: &[u8; 32]) -> Self {
        Self(hex::encode(mac))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits are ASCII")
    }

    /// Returns true if the client's `digits` are this signature. The time that this takes does not reveal
    /// where they differ.
    pub fn is(&self, digits: &[u8]) -> bool {
        let Ok(digits) = digits.try_into() else {
            return false;
        };
        let pairs = words(&self.0).zip(words(digits));
        let same = pairs.fold(Choice::from(1), |same, (ours, theirs)| same & ours.ct_eq(&theirs));
        same.into()
    }
}

/// Splits the digits into words of eight, because each comparison in constant time has its price.
fn words(digits: &[u8; DIGITS]) -> impl Iterator<Item = u64> {
    digits.as_chunks().0.iter().copied().map(u64::from_ne_bytes)
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::{DIGITS, Signature};

    #[test]
    fn a_signature_is_what_it_is_written_as_and_nothing_else() {
        let signature = Signature::from_mac(&std::array::from_fn(|at| at as u8 * 7));
        let written = signature.to_string().into_bytes();
        assert!(signature.is(&written));
        for at in 0..DIGITS {
            let mut other = written.clone();
            other[at] ^= 1;
            assert!(!signature.is(&other), "digit {at}");
        }
        assert!(!signature.is(&written[1..]) && !signature.is(&[written.as_slice(), b"0"].concat()));
        assert!(!signature.is(&written.to_ascii_uppercase()) && !signature.is(b""));
    }
}
