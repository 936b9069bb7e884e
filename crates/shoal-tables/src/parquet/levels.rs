//! Small numbers as runs of one number, or as packed bits: RLE and bit-packing, as Parquet calls them.

use crate::error::{CUT_OFF, TableError};

/// Reads small numbers.
pub(super) struct Levels<'a> {
    rest: &'a [u8],
    /// The bits of a number.
    width: u32,
    run: Run<'a>,
}

enum Run<'a> {
    /// The same number, several times.
    Repeated { number: u32, left: usize },
    /// Numbers of `width` bits, the next one at bit `at`.
    Packed { bytes: &'a [u8], at: usize, left: usize },
}

impl<'a> Levels<'a> {
    /// Reads numbers of `width` bits.
    pub(super) fn new(bytes: &'a [u8], width: u32) -> Result<Self, TableError> {
        if width > 32 {
            return Err(TableError::Damaged("numbers of more than 32 bits"));
        }
        Ok(Self {
            rest: bytes,
            width,
            run: Run::Repeated { number: 0, left: 0 },
        })
    }

    /// Reads the next number.
    pub(super) fn next(&mut self) -> Result<u32, TableError> {
        loop {
            match &mut self.run {
                Run::Repeated { left: 0, .. } | Run::Packed { left: 0, .. } => self.run = self.next_run()?,
                Run::Repeated { number, left } => {
                    *left -= 1;
                    return Ok(*number);
                }
                Run::Packed { bytes, at, left } => {
                    *left -= 1;
                    let number = bits(bytes, *at, self.width)?;
                    *at += self.width as usize;
                    return Ok(number);
                }
            }
        }
    }

    fn next_run(&mut self) -> Result<Run<'a>, TableError> {
        let head = self.varint()?;
        let count = (head >> 1) as usize;
        if head & 1 == 0 {
            let mut number = [0; 4];
            let bytes = self.take(self.width.div_ceil(8) as usize)?;
            number[..bytes.len()].copy_from_slice(bytes);
            let number = u32::from_le_bytes(number);
            return Ok(Run::Repeated { number, left: count });
        }
        // Eight numbers each. The last bytes may be left out where no number is needed.
        let bytes = count.saturating_mul(self.width as usize).min(self.rest.len());
        Ok(Run::Packed {
            bytes: self.take(bytes)?,
            at: 0,
            left: count.saturating_mul(8),
        })
    }

    fn varint(&mut self) -> Result<u32, TableError> {
        let mut number = 0;
        for shift in (0..32).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(TableError::Damaged("a run of Parquet that is too long"))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], TableError> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(CUT_OFF)?;
        self.rest = rest;
        Ok(bytes)
    }
}

/// Returns the number of `width` bits at bit `at`, the lowest bit first.
fn bits(bytes: &[u8], at: usize, width: u32) -> Result<u32, TableError> {
    let end = (at + width as usize).div_ceil(8);
    let mut window = [0; 8];
    let bytes = bytes.get(at / 8..end).ok_or(CUT_OFF)?;
    window[..bytes.len()].copy_from_slice(bytes);
    let number = u64::from_le_bytes(window) >> (at % 8);
    Ok((number & ((1 << width) - 1)) as u32)
}

#[cfg(test)]
mod tests {
    use super::Levels;

    #[test]
    fn runs_and_packed_bits_are_read_as_the_format_describes_them() {
        // The example of the specification: 0 to 7 in three bits.
        let packed = [0b11, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        let mut levels = Levels::new(&packed, 3).unwrap();
        let numbers: Vec<u32> = (0..8).map(|_| levels.next().unwrap()).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(levels.next().is_err());
        let mut run = Levels::new(&[6, 0x39, 0x05], 11).unwrap();
        assert_eq!([(); 3].map(|()| run.next().unwrap()), [0x539; 3]);
        assert!(run.next().is_err());
        // A run of nothing has no number, and ends with the bytes.
        assert!(Levels::new(&[0, 0, 0], 1).unwrap().next().is_err());
        let mut none = Levels::new(&[8], 0).unwrap();
        assert_eq!(none.next().unwrap(), 0);
    }
}
