//! Sends a request to the lake within a change that has begun, so that no other change of the name is in
//! flight at the same time.

use shoal_cache::exchange::{Admitted, ResponseResult};
use shoal_cache::lake::{Verdict, judged, unknown};
use shoal_registry::changes::LakeChange;

use crate::tier::TierUnavailable;

/// Sends a request to the lake by `send` and ends the change with the outcome. The request continues if its
/// client disconnects, and is aborted if this node loses the right to send it.
///
/// # Errors
///
/// As for `send`; also if the request was carried out but the registry could not record that.
pub(super) async fn carry_out<F>(
    change: LakeChange,
    mut admitted: Box<Admitted>,
    send: impl FnOnce(Box<Admitted>) -> F,
) -> ResponseResult
where
    F: Future<Output = ResponseResult> + Send + 'static,
{
    let operation = admitted.classified.operation;
    admitted.permit = Some(change.permit());
    let request = send(admitted);
    let carried = tokio::spawn(async move {
        let (answered, verdict) = judged(operation, request).await;
        match verdict {
            Verdict::Done => {
                if let Err(error) = change.done().await {
                    TierUnavailable::because(&error);
                    return Err(unknown());
                }
            }
            // If this fails, the registry learns of it later.
            Verdict::Refused => drop(change.refused().await),
            Verdict::Unknown => drop(change),
        }
        answered
    });
    carried.await.unwrap_or_else(|_panicked| Err(unknown()))
}
