//! The number of files and sockets that the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shoal_node::config::Limits;

/// The descriptors of a node besides its clients' connections: its files, and as many connections to the lake
/// as it uses at once.
const BESIDES: u64 = 4096;

/// Requests as many as the system grants, and warns if that is too few for the configured connections.
///
/// The initial limit of a process is low for programs that use `select`; this one does not.
pub(super) fn raise(limits: &Limits) {
    let granted = getrlimit(Resource::Nofile).maximum;
    let wanted = Rlimit {
        current: granted,
        maximum: granted,
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
    let (open, needed) = (
        getrlimit(Resource::Nofile).current,
        limits.connections as u64 + BESIDES,
    );
    if let Some(open) = open.filter(|&open| open < needed) {
        let hint = "raise the hard limit of open files (LimitNOFILE= of systemd, ulimit -Hn) or lower limits.connections";
        tracing::warn!(
            open,
            needed,
            hint,
            "the limit of open files is too low for the configured limits"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_may_open_as_many_as_the_system_grants() {
        raise(&Limits::default());
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
