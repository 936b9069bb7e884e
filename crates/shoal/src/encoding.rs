//! Numbers, texts, times and headers as bytes: in footers on disk and in requests between nodes.
//!
//! All numbers are little-endian; what has a length is preceded by it. Reading trusts nobody: any bytes give a value or
//! [`Malformed`], and no more memory than the bytes themselves take.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};

/// Bytes that are not what they should be. Why exactly does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are not what they should be")]
pub struct Malformed;

/// Writes bytes with their length.
pub fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Writes headers in their order and number.
pub fn write_headers(out: &mut Vec<u8>, headers: &HeaderMap) {
    out.extend_from_slice(&(headers.len() as u32).to_le_bytes());
    for (name, value) in headers {
        write_bytes(out, name.as_str().as_bytes());
        write_bytes(out, value.as_bytes());
    }
}

/// One byte says whether there is a time and on which side of the epoch, then seconds and nanoseconds from it.
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

/// Takes fields off the front of bytes nobody vouches for.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads `bytes` from their beginning.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// What has not been read.
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Headers, as [`write_headers`] wrote them.
    pub fn headers(&mut self) -> Result<HeaderMap, Malformed> {
        let mut headers = HeaderMap::new();
        for _ in 0..self.u32()? {
            let name = HeaderName::from_bytes(self.bytes()?).map_err(malformed)?;
            let value = HeaderValue::from_bytes(self.bytes()?).map_err(malformed)?;
            headers.try_append(name, value).map_err(malformed)?;
        }
        Ok(headers)
    }

    /// A time, as [`write_time`] wrote it.
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

    /// A text, as [`write_bytes`] wrote it.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(malformed)
    }

    /// Bytes, as [`write_bytes`] wrote them.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// So many bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }
}

fn malformed<E>(_: E) -> Malformed {
    Malformed
}
