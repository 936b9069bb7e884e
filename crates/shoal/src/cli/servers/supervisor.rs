//! What a server reports to the service manager that started it, by systemd's protocol (`Type=notify`).

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A state that the service manager waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerState {
    /// All sockets listen.
    Ready,
    /// The server was asked to stop, and ends what is in flight.
    Stopping,
}

impl ServerState {
    fn message(self) -> &'static [u8] {
        match self {
            Self::Ready => b"READY=1",
            Self::Stopping => b"STOPPING=1",
        }
    }
}

/// Reports a state, if a service manager waits for it.
pub(crate) fn report(state: ServerState) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(&socket, state.message()) {
        tracing::warn!(?socket, %error, "the service manager (NOTIFY_SOCKET) cannot be reached");
    }
}

fn send(socket: &OsString, message: &[u8]) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to_addr(message, &address(socket)?)?;
    Ok(())
}

/// A name that begins with `@` is in the abstract namespace of Linux, another one is a path.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(socket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_reach_sockets_in_folders_and_in_the_abstract_namespace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("@shoal-test-{}", std::process::id());
        for socket in [path.into_os_string(), name.into()] {
            let manager = UnixDatagram::bind_addr(&address(&socket).unwrap()).unwrap();
            for state in [ServerState::Ready, ServerState::Stopping] {
                send(&socket, state.message()).unwrap();
                let mut received = [0; 32];
                let length = manager.recv(&mut received).unwrap();
                assert_eq!(&received[..length], state.message());
            }
        }
    }

    #[test]
    fn a_manager_that_is_gone_is_an_error_and_no_wait() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone").into_os_string();
        let error = send(&gone, ServerState::Ready.message()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
