//! Encodes numbers, strings, times and headers as bytes, for footers on disk and messages.
//!
//! All numbers are little-endian; a field of variable length is preceded by its length. Decoding does not
//! trust its input: any bytes yield a value or [`Malformed`], and take no more memory than the input.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};

/// Bytes that do not decode. The exact reason does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are not what they should be")]
pub struct Malformed;

/// Writes the length of `bytes`, then the bytes.
pub fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Writes the number of headers, then the headers in their order.
pub fn write_headers(out: &mut Vec<u8>, headers: &HeaderMap) {
    out.extend_from_slice(&(headers.len() as u32).to_le_bytes());
    for (name, value) in headers {
        write_bytes(out, name.as_str().as_bytes());
        write_bytes(out, value.as_bytes());
    }
}

/// Writes a time: one byte (0: none, 1: since the epoch, 2: before the epoch), then the distance from the
/// epoch in seconds and nanoseconds.
pub fn write_time(out: &mut Vec<u8>, time: Option<SystemTime>) {
    let (kind, distance) = match time.map(|time| time.duration_since(SystemTime::UNIX_EPOCH)) {
        None => (0, Duration::ZERO),
        Some(Ok(after)) => (1, after),
        Some(Err(before)) => (2, before.duration()),
    };
    out.push(kind);
    out.extend_from_slice(&distance.as_secs().to_le_bytes());
    out.extend_from_slice(&distance.subsec_nanos().to_le_bytes());
}

/// Decodes fields from the front of untrusted bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads `bytes` from their beginning.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes that have not been read.
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Reads headers that [`write_headers`] wrote.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if the bytes end too early or hold a name or value that HTTP does not allow.
    pub fn headers(&mut self) -> Result<HeaderMap, Malformed> {
        let mut headers = HeaderMap::new();
        for _ in 0..self.u32()? {
            let name = HeaderName::from_bytes(self.bytes()?).map_err(malformed)?;
            let value = HeaderValue::from_bytes(self.bytes()?).map_err(malformed)?;
            headers.try_append(name, value).map_err(malformed)?;
        }
        Ok(headers)
    }

    /// Reads a time that [`write_time`] wrote.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if the bytes end too early or encode no time that this system can represent.
    pub fn time(&mut self) -> Result<Option<SystemTime>, Malformed> {
        let [kind] = self.array()?;
        let (seconds, nanos) = (self.u64()?, self.u32()?);
        if nanos >= 1_000_000_000 {
            return Err(Malformed);
        }
        let distance = Duration::new(seconds, nanos);
        let time = match kind {
            0 => return Ok(None),
            1 => SystemTime::UNIX_EPOCH.checked_add(distance),
            2 => SystemTime::UNIX_EPOCH.checked_sub(distance),
            _ => None,
        };
        time.map(Some).ok_or(Malformed)
    }

    /// Reads a string that [`write_bytes`] wrote.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if the bytes end too early or are not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(malformed)
    }

    /// Reads bytes that [`write_bytes`] wrote.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if the bytes end too early.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    /// Reads `length` bytes.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if fewer bytes are left.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads eight bytes.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if fewer bytes are left.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads four bytes.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if fewer bytes are left.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads `N` bytes.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if fewer bytes are left.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }
}

fn malformed<E>(_: E) -> Malformed {
    Malformed
}
