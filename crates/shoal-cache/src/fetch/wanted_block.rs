//! A block that is being fetched, and the read that wants it.

use std::sync::Arc;

use shoal_net::link::Transfer;
use shoal_s3::object::Version;
use shoal_s3::range::ByteRange;

use super::read_context::ReadContext;
use crate::nodes::obtain::Obtain;
use crate::single_flight::Leader;

/// A block to fetch, and the read that wants it.
pub(super) struct WantedBlock {
    pub(super) version: Arc<Version>,
    pub(super) context: Arc<ReadContext>,
    pub(super) obtain: Obtain,
    /// Delivers the bytes to the readers.
    pub(super) leader: Leader,
    /// The transfer that carries the block; `None` if a client has waited for it from the start, at no rate.
    pub(super) transfer: Option<Transfer>,
}

impl WantedBlock {
    /// Returns the index of the block in its version.
    pub(super) fn index(&self) -> u32 {
        self.leader.span().id.index
    }

    /// Returns the transfer while it may wait: no client waits for the block, or only readers at whose rate
    /// it comes.
    pub(super) fn unhurried(&self) -> Option<&Transfer> {
        self.transfer.as_ref().filter(|transfer| transfer.may_wait())
    }

    /// As [`Self::unhurried`], for bytes that another node sends: that node charges its own quotas.
    pub(super) fn unhurried_by_peer(&self) -> Option<Transfer> {
        let transfer = self.transfer.as_ref().and_then(Transfer::beside_quotas);
        transfer.filter(Transfer::may_wait)
    }

    /// Returns the bytes of the block that have not arrived.
    pub(super) fn missing(&self) -> ByteRange {
        ByteRange::new(self.leader.received(), self.leader.span().len)
    }
}
