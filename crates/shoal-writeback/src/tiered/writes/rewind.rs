//! A request body that can be read again from the start: the first bytes are kept until it is decided which
//! reader gets the body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use shoal_net::http::connection::{ClientBody, ClientBodyError};
use shoal_s3::payload::MemoryReservation;

/// Maximum number of bytes of one body that are kept. The rest of a longer body is not read before the
/// decision.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The body for the first reader. A clone decides which reader gets it.
#[derive(Clone)]
pub(super) struct Rewindable(Arc<Mutex<State>>);

struct State {
    body: ClientBody,
    /// The bytes read so far; `None` once no second reader can need them.
    kept: Option<Vec<Bytes>>,
    kept_bytes: usize,
    /// True if reading must pause: the kept bytes have reached [`KEPT_BYTES_MAX`], or their memory limit.
    is_full: bool,
    reservation: MemoryReservation,
    waiting: Option<Waker>,
}

impl Rewindable {
    pub(super) fn new(body: ClientBody) -> Self {
        Self(Arc::new(Mutex::new(State {
            body,
            kept: Some(Vec::new()),
            kept_bytes: 0,
            is_full: false,
            reservation: MemoryReservation::none(),
            waiting: None,
        })))
    }

    /// Lets the first reader read to the end.
    pub(super) fn goes_on(self) {
        self.0.lock().release();
    }

    /// Returns the whole body for another reader. The first reader gets no more bytes.
    pub(super) fn rewound(self) -> ClientBody {
        let mut state = self.0.lock();
        let kept = state.release();
        let mut body = std::mem::replace(&mut state.body, ClientBody::empty());
        body.read_again(kept);
        body
    }
}

impl State {
    /// Stops keeping bytes and wakes the first reader. Returns the bytes that were kept.
    fn release(&mut self) -> Vec<Bytes> {
        self.reservation = MemoryReservation::none();
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
        self.kept.take().unwrap_or_default()
    }

    fn keep(&mut self, data: &Bytes) {
        if let Some(kept) = &mut self.kept {
            kept.push(data.clone());
            self.kept_bytes += data.len();
            let has_room = self.reservation.grow_to(self.kept_bytes).is_ok();
            self.is_full = !has_room || self.kept_bytes >= KEPT_BYTES_MAX;
        }
    }
}

impl Body for Rewindable {
    type Data = Bytes;
    type Error = ClientBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        let mut state = self.0.lock();
        if state.is_full && state.kept.is_some() {
            state.waiting = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut state.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            state.keep(data);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().body.size_hint()
    }
}
