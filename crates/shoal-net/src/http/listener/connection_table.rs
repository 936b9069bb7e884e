//! The connections of one listener, and the choice of those to close when the listener is full.
//!
//! An idle connection costs its client nothing, so there may be thousands of them. When the listener is full
//! and another client arrives, idle connections are closed: the oldest ones of the payer with the most
//! connections. Connections without a verified request count as one payer, so that silent ones are closed
//! first.

use std::collections::HashMap;
use std::sync::Arc;

use shoal_policy::fair::Payer;
use tokio::task::{AbortHandle, Id};

use crate::fair::ConnectionPayer;
use crate::http::connection::Exchange;

/// Divisor of the number of connections that are closed at a time: closing several at once makes scans rare.
const PART_CLOSED: usize = 64;

/// The connections of one listener.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable {
    connections: HashMap<Id, Connection>,
    entered: u64,
}

#[derive(Debug)]
struct Connection {
    /// The sequence number of the connection.
    number: u64,
    payer: Arc<ConnectionPayer>,
    exchange: Arc<Exchange>,
    task: AbortHandle,
}

/// The properties of a connection that [`leaving`] decides by.
#[derive(Clone, Copy, Debug)]
struct ConnectionSnapshot {
    id: Id,
    number: u64,
    payer: Payer,
    is_idle: bool,
}

impl ConnectionTable {
    /// Adds a new connection.
    pub(super) fn enter(&mut self, task: AbortHandle, payer: Arc<ConnectionPayer>, exchange: Arc<Exchange>) {
        self.entered += 1;
        let connection = Connection {
            number: self.entered,
            payer,
            exchange,
            task,
        };
        self.connections.insert(connection.task.id(), connection);
    }

    /// Removes a connection that has ended.
    pub(super) fn leave(&mut self, id: Id) {
        self.connections.remove(&id);
    }

    /// Closes some idle connections. Returns their number.
    pub(super) fn make_room(&mut self) -> usize {
        let seen = self
            .connections
            .iter()
            .map(|(id, connection)| ConnectionSnapshot {
                id: *id,
                number: connection.number,
                payer: connection.payer.get(),
                is_idle: !connection.exchange.is_answering(),
            });
        let leaving = leaving(seen.collect());
        for id in &leaving {
            if let Some(connection) = self.connections.remove(id) {
                connection.task.abort();
            }
        }
        leaving.len()
    }
}

/// Returns the connections to close: the oldest idle ones of the payer that has the most connections relative
/// to its share.
fn leaving(connections: Vec<ConnectionSnapshot>) -> Vec<Id> {
    let at_a_time = 1 + connections.len() / PART_CLOSED;
    let mut of_payer: HashMap<u32, (usize, Payer, Vec<ConnectionSnapshot>)> = HashMap::new();
    for seen in connections {
        let (count, _, idle) = of_payer
            .entry(seen.payer.id)
            .or_insert_with(|| (0, seen.payer, Vec::new()));
        *count += 1;
        if seen.is_idle {
            idle.push(seen);
        }
    }
    let heaviest = of_payer
        .into_values()
        .filter(|(_, _, idle)| !idle.is_empty())
        .max_by_key(|(count, payer, _)| (count * 1000 / payer.share.max(1) as usize, payer.id));
    let Some((_, _, mut idle)) = heaviest else {
        return Vec::new();
    };
    idle.sort_unstable_by_key(|seen| seen.number);
    idle.into_iter().take(at_a_time).map(|seen| seen.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection's payer, the payer's share, and true if the connection is idle.
    type Described = (u32, u32, bool);

    /// Returns connections in order of arrival.
    fn table(connections: &[Described]) -> Vec<ConnectionSnapshot> {
        let numbered = connections.iter().zip(1..);
        numbered
            .map(|(&(payer, share, is_idle), number)| ConnectionSnapshot {
                id: tokio::spawn(async {}).id(),
                number,
                payer: Payer { id: payer, share },
                is_idle,
            })
            .collect()
    }

    fn chosen(connections: &[Described]) -> Vec<u64> {
        let seen = table(connections);
        let leaving = leaving(seen.clone());
        let number = |id| seen.iter().find(|seen| seen.id == id).unwrap().number;
        leaving.into_iter().map(number).collect()
    }

    #[tokio::test]
    async fn the_oldest_idle_connection_of_the_payer_with_most_goes_first() {
        let table: [(&[Described], &[u64]); 6] = [
            (&[], &[]),
            (&[(1, 1, false), (1, 1, false)], &[]),
            (&[(2, 1, true), (1, 1, false), (1, 1, true), (1, 1, true)], &[3]),
            (&[(1, 1, false), (1, 1, false), (2, 1, true)], &[3]),
            (&[(1, 9, true), (1, 9, true), (1, 9, true), (2, 1, true)], &[4]),
            (&[(1, 1, true), (2, 1, true)], &[2]),
        ];
        for (connections, expected) in table {
            assert_eq!(chosen(connections), expected, "{connections:?}");
        }
    }

    #[tokio::test]
    async fn many_go_at_once_when_there_are_many() {
        assert_eq!(chosen(&[(1, 1, true); 640]).len(), 11);
    }
}
