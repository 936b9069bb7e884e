//! Sockets that the service manager opened before it started this process (systemd's socket activation).
//! Clients that connect while no process serves them wait in the kernel's queue, so a restart refuses none.

use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;
use parking_lot::Mutex;

/// The sockets that were handed over and that no listener has taken yet.
static SOCKETS: Mutex<Vec<TcpListener>> = Mutex::new(Vec::new());

/// Takes the sockets that the service manager hands over, if it does. Call it once, before anything listens.
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

/// Takes the socket for an address, if there is one.
pub(super) fn at(address: SocketAddr) -> Option<TcpListener> {
    let is_it = |socket: &TcpListener| socket.local_addr().is_ok_and(|open| serves(open, address));
    let mut sockets = SOCKETS.lock();
    let place = sockets.iter().position(is_it)?;
    Some(sockets.swap_remove(place))
}

/// Returns true if a socket at `open` serves the clients of `address`. One at all addresses of IPv6 serves
/// those of IPv4, too.
fn serves(open: SocketAddr, address: SocketAddr) -> bool {
    let are_all = open.ip().is_unspecified() && address.ip().is_unspecified();
    open.port() == address.port() && (open.ip() == address.ip() || are_all)
}

#[cfg(test)]
mod tests {
    use super::serves;

    #[test]
    fn a_socket_serves_the_setting_with_its_address_and_no_other() {
        for (open, address, is_it) in [
            ("127.0.0.1:9000", "127.0.0.1:9000", true),
            ("0.0.0.0:9000", "0.0.0.0:9000", true),
            ("[::]:9000", "0.0.0.0:9000", true),
            ("[::]:9000", "127.0.0.1:9000", false),
            ("127.0.0.1:9000", "0.0.0.0:9000", false),
            ("127.0.0.1:9000", "127.0.0.1:9001", false),
            ("10.0.0.1:9000", "10.0.0.2:9000", false),
        ] {
            let found = serves(open.parse().unwrap(), address.parse().unwrap());
            assert_eq!(found, is_it, "{open} {address}");
        }
    }
}
