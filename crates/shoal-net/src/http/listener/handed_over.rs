//! Sockets that the service manager opened before it started this process (systemd's socket activation).
//! Clients that connect while no process serves them wait in the kernel's queue, so a restart refuses none.

use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;
use parking_lot::Mutex;

/// The sockets of this process that nobody listens on yet.
static SOCKETS: Mutex<Vec<TcpListener>> = Mutex::new(Vec::new());

/// Takes the sockets that the service manager hands over, if it does. To be called once, before anything
/// listens.
pub fn take_over() {
    let mut descriptors = ListenFd::from_env();
    let mut sockets = SOCKETS.lock();
    for place in 0..descriptors.len() {
        match descriptors.take_tcp_listener(place) {
            Ok(socket) => sockets.extend(socket),
            Err(error) => {
                tracing::warn!(place, %error, "a descriptor that the service manager hands over is not used");
            }
        }
    }
}

/// Returns the addresses of the sockets that no setting has used.
pub fn unused() -> Vec<SocketAddr> {
    let sockets = SOCKETS.lock();
    sockets
        .iter()
        .filter_map(|socket| socket.local_addr().ok())
        .collect()
}

/// Returns the socket for an address. A socket for all addresses of IPv6 is one for all of IPv4, too.
pub(super) fn at(address: SocketAddr) -> Option<TcpListener> {
    let is_it = |socket: &TcpListener| {
        socket.local_addr().is_ok_and(|open| {
            let are_all = open.ip().is_unspecified() && address.ip().is_unspecified();
            open.port() == address.port() && (open.ip() == address.ip() || are_all)
        })
    };
    let mut sockets = SOCKETS.lock();
    let place = sockets.iter().position(is_it)?;
    Some(sockets.swap_remove(place))
}
