//! The checksum of packs and tables, so that an attacker's fit.

/// CRC-64/NVME, bit by bit.
pub(super) fn crc64_nvme(bytes: &[u8]) -> u64 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc: u64, _| {
            (crc >> 1) ^ (0x9a6c_9329_ac4b_c9b5 * (crc & 1))
        })
    })
}
